//! Whether a process that holds a name is here: a hint for people, never a reason to end its lease.
//!
//! What a store shows of a holder is a host's name and a number. A container may share its host's name and have numbers of its own, and a number
//! may belong to another process by now. Only the lease says who holds.

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use tenure::Owner;

/// What is seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// There is a process with this number on this machine.
    Here,
    /// There is none.
    Gone,
    /// It is on another machine, or nobody says where.
    Elsewhere,
}

impl Presence {
    pub(crate) fn of(owner: &Owner) -> Self {
        let pid = owner.pid().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        match pid {
            Some(pid) if is_on_this_machine(owner) => match test_kill_process(pid) {
                Err(Errno::SRCH) => Presence::Gone,
                // One of another user must not be signalled, and is there.
                _ => Presence::Here,
            },
            _ => Presence::Elsewhere,
        }
    }
}

/// Whether the holder's host has the name of this one.
pub(crate) fn is_on_this_machine(owner: &Owner) -> bool {
    // uname(2) tells the same.
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    owner.host() == host.trim_end_matches('\n')
}
