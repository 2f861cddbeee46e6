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
use super::messages::RelayedSignal;
use super::process_tree::{self, KnownProcess};
use super::shared::SharedFacts;
use super::signals;
use crate::exit_code;
use crate::sys::{self, Mask, Program};

/// Which process group the command runs in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Group {
    /// Its own: a signal reaches everything that it started, and nothing else.
    Own,
    /// That of `tenure`: the terminal's signals reach both, and the command may read from the terminal if `tenure` may.
    Shared(Pid),
}

impl Group {
    /// Shared if there is a terminal, in the foreground or not: a background job can be brought to the foreground.
    pub(crate) fn fitting() -> Self {
        let has_terminal = std::fs::File::open("/dev/tty").is_ok();
        match sys::group_of(getpid()) {
            Some(group) if has_terminal => Group::Shared(group),
            // In a pid namespace, the group of the terminal may be outside, and then has no number.
            _ => Group::Own,
        }
    }
}

/// A command that was started.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    group: Group,
    end: Option<CommandEnd>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandEnd {
    /// By itself, with this exit code.
    Exited(u8),
    /// By a signal.
    Killed(i32),
}

impl CommandEnd {
    /// How it ended, if it has.
    pub(crate) fn of(status: WaitStatus) -> Option<Self> {
        let exited =
            status.exit_status().map(|code| CommandEnd::Exited(u8::try_from(code).unwrap_or(u8::MAX)));
        status.terminating_signal().map(CommandEnd::Killed).or(exited)
    }

    /// The exit code that a shell gives it.
    pub(crate) fn code(self) -> u8 {
        match self {
            CommandEnd::Exited(code) => code,
            CommandEnd::Killed(signal) => exit_code::by_signal(signal),
        }
    }

    /// As a number that is not zero.
    pub(crate) fn encode(self) -> u32 {
        match self {
            CommandEnd::Exited(code) => EXITED | u32::from(code),
            CommandEnd::Killed(signal) => KILLED | signal.unsigned_abs(),
        }
    }

    pub(crate) fn decode(number: u32) -> Option<Self> {
        let [low, ..] = number.to_le_bytes();
        match number & !0xff {
            EXITED => Some(CommandEnd::Exited(low)),
            KILLED => Some(CommandEnd::Killed(i32::from(low))),
            _ => None,
        }
    }
}

const EXITED: u32 = 0x100;
const KILLED: u32 = 0x200;

impl Child {
    /// Starts the command with the signal mask that `tenure` was given, and with `lifeline` open. The kernel kills it if this process dies, from its
    /// first instruction on; the wrapper kills its descendants. Not with `--on-lost ignore`, because that would be a loss.
    ///
    /// # Errors
    /// Those of exec, such as a command that does not exist.
    pub(crate) fn start(
        run: &Run,
        environment: impl Iterator<Item = (OsString, OsString)>,
        group: Group,
        mask: Mask,
        lifeline: Option<&OwnedFd>,
        facts: &SharedFacts,
    ) -> io::Result<Self> {
        let program = Program::new(run.command.iter().cloned(), environment)?;
        let (parent, leader) = (getpid(), if let Group::Shared(group) = group { Some(group) } else { None });
        // Rust programs ignore SIGPIPE; the command must not.
        let caught: Vec<Signal> = signals::forwarded().chain([Signal::CHILD, Signal::PIPE]).collect();
        let pid = program.spawn(&caught, &mask, || {
            // The child records it itself, because the holder may be killed before it could.
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

    /// A command that the holder started, which is gone; `end` if the holder saw it end.
    pub(crate) fn adopted(pid: Pid, group: Group, end: Option<CommandEnd>) -> Self {
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

    /// Its process group, if it is its own.
    pub(crate) fn own_group(&self) -> Option<Pid> {
        matches!(self.group, Group::Own).then_some(self.pid)
    }

    /// For [`process_tree`].
    pub(crate) fn known(&self) -> KnownProcess {
        KnownProcess { pid: self.pid, group: self.own_group() }
    }

    /// Passes a signal on, unless the terminal sent it to the command, too.
    pub(crate) fn forward(&self, relayed: RelayedSignal) {
        let has_ended = self.end.is_some();
        let _ = match self.group {
            // After it was reaped, another process may have its pid, unless its group still exists.
            Group::Own if has_ended && !process_tree::has_group(self.pid) => Ok(()),
            Group::Own => kill_process_group(self.pid, relayed.signal),
            Group::Shared(_) if has_ended => Ok(()),
            Group::Shared(_) if relayed.from_terminal => Ok(()),
            Group::Shared(_) => kill_process(self.pid, relayed.signal),
        };
    }

    /// Passes a termination signal on to everything that the command started, in any group or session. Each process gets it once.
    pub(crate) fn forward_to_all(&self, relayed: RelayedSignal, unrelated: &[Pid]) {
        self.forward(relayed);
        let is_of_group = matches!(self.group, Group::Own) || relayed.from_terminal;
        let has_it = |pid: Pid, group: i32| match is_of_group {
            true => group == self.group().as_raw_pid(),
            false => pid == self.pid && self.end.is_none(),
        };
        process_tree::signal_others(relayed.signal, unrelated, has_it);
        if self.end.is_some() && relayed.signal != Signal::TERM {
            self.terminate_rest(unrelated);
        }
    }

    /// Sends TERM to the processes that the command left behind: background processes of a shell without job control ignore INT and QUIT.
    pub(crate) fn terminate_rest(&self, unrelated: &[Pid]) {
        process_tree::terminate(self.known(), None, unrelated);
    }

    /// How it ended, once it has.
    pub(crate) fn end(&self) -> Option<CommandEnd> {
        self.end
    }

    /// Records a change.
    pub(crate) fn changed(&mut self, status: WaitStatus) {
        self.end = self.end.or(CommandEnd::of(status));
    }
}
