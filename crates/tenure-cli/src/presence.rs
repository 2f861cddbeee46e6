//! Whether the process of a holder is on this machine: a hint for people, never a reason to end its lease.
//!
//! A store knows a host name and a pid. A container may have the host name of its machine and its own pids, and another process may have the pid by
//! now. Only the lease says who holds a name.

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use tenure::Owner;

/// What this machine knows of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// This machine has a process with this pid.
    Here,
    /// It has none.
    Gone,
    /// The process is on another machine, or its host is unknown.
    Elsewhere,
}

impl Presence {
    pub(crate) fn of(owner: &Owner) -> Self {
        let pid = owner.pid().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        match pid {
            Some(pid) if is_on_this_machine(owner) => match test_kill_process(pid) {
                Err(Errno::SRCH) => Presence::Gone,
                // A process of another user can't be signalled, but exists.
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
