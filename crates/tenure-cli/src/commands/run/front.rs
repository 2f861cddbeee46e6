//! The process that the user started: it stands for the command, towards the shell and the terminal.
//!
//! The lease is not kept here but in the [minder](super::minder), a process of its own outside the terminal's foreground group. So Ctrl-Z stops
//! this process and the command, as the shell expects, and the lease is renewed all the same. The front passes signals on, stops when the command
//! was stopped, and exits as the minder does.
//!
//! Each of the two watches the other. A front that is killed is seen by the minder at once; here, a minder that is killed, or stopped until
//! its lease is about to expire, is killed with all below it.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, getpid, kill_process};

use super::deadline::{Moment, Watch};
use super::tree::{self, Change};
use super::wire::{self, Relayed, Told};
use crate::exit_code;
use crate::output::{self, say};
use crate::sys::SignalFd;

/// How long to sleep when nothing is to be watched.
const LONGEST_SLEEP: Duration = Duration::from_secs(3_600);

/// What the front has.
pub(crate) struct Front<'a> {
    /// What is to be held.
    pub(crate) name: &'a str,
    pub(crate) minder: Pid,
    pub(crate) wire: UnixStream,
    pub(crate) signals: SignalFd,
    pub(crate) watch: &'static Watch,
    /// Kept open until all that runs under the lease is gone.
    pub(crate) lifeline: Option<OwnedFd>,
}

impl Front<'_> {
    /// Stands until the minder has ended; returns the exit code.
    pub(crate) fn stand(mut self) -> u8 {
        let mut is_connected = true;
        loop {
            if let Some(code) = self.minder_ended() {
                return code.unwrap_or_else(|| self.minder_killed());
            }
            let now = Moment::now();
            if now >= self.watch.kill_at() {
                return self.minder_hangs();
            }
            let mut next = self.watch.kill_at();
            if !self.watch.is_stopping() {
                if now >= self.watch.term_at() {
                    self.watch.begin_stopping();
                    tree::ask_to_end(Some(self.minder));
                }
                next = next.min(self.watch.term_at());
            }
            self.sleep(next.since(now), is_connected);
            self.relay_signals();
            while is_connected && let Some(told) = wire::receive(&self.wire) {
                match told {
                    Told::Suspend => {
                        let _ = kill_process(getpid(), Signal::STOP);
                    }
                    Told::Lifeline(lifeline) => self.lifeline = Some(lifeline),
                    Told::Gone => is_connected = false,
                }
            }
        }
    }

    /// The exit code of the minder once it has ended; `None` inside when it was killed.
    fn minder_ended(&self) -> Option<Option<u8>> {
        while let Change::Of(pid, status) = tree::next_change() {
            if pid != self.minder {
                continue;
            }
            if let Some(code) = status.exit_status() {
                return Some(u8::try_from(code).ok());
            }
            if status.signaled() {
                return Some(None);
            }
        }
        None
    }

    /// By someone, or by itself in a panic.
    fn minder_killed(&mut self) -> u8 {
        if self.watch.had_lease() {
            self.end_all();
            say("lease lost: the process that kept the lease was killed; the command was killed");
            return exit_code::LOST;
        }
        say("process that was to keep the lease was killed before it had one; the command was not started");
        exit_code::OS
    }

    /// Or it could not run for as long as this process could not.
    fn minder_hangs(&mut self) -> u8 {
        let (is_on_time, tells) = (self.watch.is_stopping(), self.watch.begin_telling());
        self.end_all();
        match (tells, is_on_time) {
            (false, _) => {}
            (true, true) => say("lease lost: the process that keeps the lease hangs; the command was killed"),
            (true, false) => say(output::overslept(self.name)),
        }
        exit_code::LOST
    }

    /// Kills the minder and all below it; returns when nothing is left. What is to be said is said after it: stderr may block.
    fn end_all(&mut self) {
        while !self.is_all_ended() {
            tree::kill(None);
            self.sleep(tree::SWEEP, false);
            while self.signals.next().is_some() {}
        }
        self.lifeline = None;
    }

    /// Reaps what has ended; true when nothing is left below this process.
    fn is_all_ended(&self) -> bool {
        loop {
            match tree::next_change() {
                Change::Of(..) => {}
                Change::Nothing => return false,
                Change::NoChild => return true,
            }
        }
    }

    fn relay_signals(&self) {
        while let Some((signal, from_terminal)) = self.signals.next() {
            if signal != Signal::CHILD {
                Relayed { signal, from_terminal }.send(&self.wire);
            }
        }
    }

    /// Until something happens, or the time is over.
    fn sleep(&self, limit: Duration, is_connected: bool) {
        let limit = Timespec::try_from(limit.min(LONGEST_SLEEP)).expect("an hour is not too long");
        let mut sources = [PollFd::new(&self.signals, PollFlags::IN), PollFd::new(&self.wire, PollFlags::IN)];
        let count = if is_connected { 2 } else { 1 };
        // Interrupted or not, the caller looks at everything again.
        let _ = poll(&mut sources[..count], Some(&limit));
    }
}
