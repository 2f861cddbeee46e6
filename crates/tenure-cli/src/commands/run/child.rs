//! The command that runs while the name is held.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{
    Pid, Signal, WaitStatus, getpid, getppid, kill_process, kill_process_group,
    set_parent_process_death_signal, setpgid,
};

use super::Run;
use super::deadline::Moment;
use super::signals;
use super::tree::{self, Known};
use super::watch::Facts;
use super::wire::Relayed;
use crate::exit_code;
use crate::sys::{self, Mask, Program};

/// Which process group the command runs in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Group {
    /// One of its own: a signal reaches all that it started, and nothing else.
    Own,
    /// The one of `tenure`: the terminal's signals reach both, and it may read from the terminal when `tenure` may.
    Shared(Pid),
}

impl Group {
    /// Shared where there is a terminal, be it in the foreground or not: a job in the background can be brought forward.
    pub(crate) fn fitting() -> Self {
        let has_terminal = std::fs::File::open("/dev/tty").is_ok();
        match sys::group_of(getpid()) {
            Some(group) if has_terminal => Group::Shared(group),
            // In a pid namespace whose first process was not made the leader of a group, that of the terminal has no number.
            _ => Group::Own,
        }
    }
}

/// A command that was started.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    group: Group,
    end: Option<End>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By itself, with this exit code.
    Exited(u8),
    /// By a signal.
    Killed(i32),
}

impl End {
    /// How it ended, if it did.
    pub(crate) fn of(status: WaitStatus) -> Option<Self> {
        let exited = status.exit_status().map(|code| End::Exited(u8::try_from(code).unwrap_or(u8::MAX)));
        status.terminating_signal().map(End::Killed).or(exited)
    }

    /// What a shell makes of it.
    pub(crate) fn code(self) -> u8 {
        match self {
            End::Exited(code) => code,
            End::Killed(signal) => exit_code::by_signal(signal),
        }
    }

    /// As a number that is not zero.
    pub(crate) fn encode(self) -> u32 {
        match self {
            End::Exited(code) => EXITED | u32::from(code),
            End::Killed(signal) => KILLED | signal.unsigned_abs(),
        }
    }

    pub(crate) fn decode(number: u32) -> Option<Self> {
        let [low, ..] = number.to_le_bytes();
        match number & !0xff {
            EXITED => Some(End::Exited(low)),
            KILLED => Some(End::Killed(i32::from(low))),
            _ => None,
        }
    }
}

const EXITED: u32 = 0x100;
const KILLED: u32 = 0x200;

impl Child {
    /// Starts the command. It gets the signal mask that `tenure` was given, and keeps `lifeline` open. It dies with this process, from its
    /// first instruction on: that is the net below the front, which stops the whole tree. With `--on-lost ignore` it does not, for that is a loss.
    ///
    /// # Errors
    /// Those of exec, among them that there is no such command.
    pub(crate) fn start(
        run: &Run,
        environment: impl Iterator<Item = (OsString, OsString)>,
        group: Group,
        mask: Mask,
        lifeline: Option<&OwnedFd>,
        facts: &Facts,
    ) -> io::Result<Self> {
        let program = Program::new(run.command.iter().cloned(), environment)?;
        let (parent, leader) = (getpid(), if let Group::Shared(group) = group { Some(group) } else { None });
        // SIGPIPE is ignored by Rust programs, and by no others.
        let caught: Vec<Signal> = signals::forwarded().chain([Signal::CHILD, Signal::PIPE]).collect();
        let pid = program.spawn(&caught, &mask, || {
            // By itself, for the minder may be killed before it learns of it.
            facts.started(Moment::now(), getpid());
            setpgid(None, leader)?;
            if !run.limits.ignores_loss() {
                set_parent_process_death_signal(Some(Signal::KILL))?;
            }
            if getppid() != Some(parent) {
                return Err(Errno::CHILD);
            }
            lifeline.map_or(Ok(()), |lifeline| fcntl_setfd(lifeline, FdFlags::empty()))
        })?;
        Ok(Child { pid, group, end: None })
    }

    /// A command that another process started, which is gone; and how it ended, if that one has seen it.
    pub(crate) fn adopted(pid: Pid, group: Group, end: Option<End>) -> Self {
        Child { pid, group, end }
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Its process group.
    pub(crate) fn group(&self) -> Pid {
        match self.group {
            Group::Own => self.pid,
            Group::Shared(group) => group,
        }
    }

    /// Its process group, when it has one of its own.
    pub(crate) fn own_group(&self) -> Option<Pid> {
        matches!(self.group, Group::Own).then_some(self.pid)
    }

    /// As one whose number is known.
    pub(crate) fn known(&self) -> Known {
        Known { pid: self.pid, group: self.own_group() }
    }

    /// Passes a signal on, unless the terminal has sent it to the command as well.
    pub(crate) fn forward(&self, relayed: Relayed) {
        let has_ended = self.end.is_some();
        let _ = match self.group {
            // Once it was reaped, its number may be another's, unless its group is still there.
            Group::Own if has_ended && !tree::has_group(self.pid) => Ok(()),
            Group::Own => kill_process_group(self.pid, relayed.signal),
            Group::Shared(_) if has_ended => Ok(()),
            Group::Shared(_) if relayed.from_terminal => Ok(()),
            Group::Shared(_) => kill_process(self.pid, relayed.signal),
        };
    }

    /// Passes a signal on that is to end all that the command started as well, in whatever group or session: each gets it once.
    pub(crate) fn forward_to_all(&self, relayed: Relayed, strangers: &[Pid]) {
        self.forward(relayed);
        let is_of_group = matches!(self.group, Group::Own) || relayed.from_terminal;
        let has_it = |pid: Pid, group: i32| match is_of_group {
            true => group == self.group().as_raw_pid(),
            false => pid == self.pid && self.end.is_none(),
        };
        tree::signal_others(relayed.signal, strangers, has_it);
        if self.end.is_some() && relayed.signal != Signal::TERM {
            self.ask_rest_to_end(strangers);
        }
    }

    /// Asks what the command left behind to end. What a shell without job control starts in the background ignores INT and QUIT.
    pub(crate) fn ask_rest_to_end(&self, strangers: &[Pid]) {
        tree::ask_to_end(self.known(), None, strangers);
    }

    /// How it ended, once it has.
    pub(crate) fn end(&self) -> Option<End> {
        self.end
    }

    /// Enters what was learnt of it.
    pub(crate) fn changed(&mut self, status: WaitStatus) {
        self.end = self.end.or(End::of(status));
    }
}
