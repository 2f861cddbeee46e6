//! The process that the user started: it stands for the command, towards the shell and the terminal.
//!
//! The lease is not kept here but in the [minder](super::minder), a process of its own outside the terminal's foreground group. So Ctrl-Z stops
//! this process and the command, as the shell expects, and the lease is renewed all the same. The front passes signals on, stops when the command
//! was stopped, and exits as the minder does.
//!
//! Each of the two watches the other. A front that is killed is seen by the minder at once; here, a minder that is killed, or stopped until
//! its lease is about to expire, is killed with all below it, and what was to be reported at the end is reported here.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitStatus};
use rustix::time::{Itimerspec, TimerfdTimerFlags, timerfd_settime};

use super::Run;
use super::child::{Child, End, Group};
use super::deadline::Moment;
use super::report::{Kind, Report, Verdict};
use super::tree::{self, Change, Known};
use super::watch::Watch;
use super::wire::{self, Relayed, Told};
use crate::exit_code;
use crate::output::{self, say, say_at_once};
use crate::sys::SignalFd;
use crate::text::escaped;

/// How long to sleep when nothing is to be watched.
const LONGEST_SLEEP: Duration = Duration::from_secs(3_600);

/// What the front has.
pub(crate) struct Front<'a> {
    pub(crate) run: &'a Run,
    pub(crate) report: &'a Report<'a>,
    pub(crate) minder: Pid,
    /// Children that are none of the command's.
    pub(crate) strangers: Vec<Pid>,
    /// Where the command runs.
    pub(crate) group: Group,
    pub(crate) wire: UnixStream,
    pub(crate) signals: SignalFd,
    /// Rings also for a time in which the machine slept, as soon as it wakes up.
    pub(crate) alarm: OwnedFd,
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
                return code.unwrap_or_else(|| {
                    let verdict = self.minder_killed();
                    self.conclude(&verdict)
                });
            }
            let now = Moment::now();
            if now >= self.watch.kill_at() {
                let verdict = self.minder_hangs();
                return self.conclude(&verdict);
            }
            let mut next = self.watch.kill_at();
            if !self.watch.is_stopping() {
                if now >= self.watch.term_at() {
                    self.watch.begin_stopping();
                    if let Some(command) = self.command().filter(|_| self.watch.asks()) {
                        tree::ask_to_end(command, Some(self.minder), &self.strangers);
                    }
                }
                next = next.min(self.watch.term_at());
            }
            self.sleep(next.since(now), is_connected);
            self.relay_signals();
            while is_connected && let Some(told) = wire::receive(&self.wire) {
                match told {
                    Told::Lifeline(lifeline) => self.lifeline = Some(lifeline),
                    Told::Gone => is_connected = false,
                }
            }
        }
    }

    /// The exit code of the minder once it has ended; `None` inside when it was killed.
    fn minder_ended(&mut self) -> Option<Option<u8>> {
        while let Change::Of(pid, status) = tree::next_change() {
            if pid != self.minder {
                self.learn(pid, status);
                // As long as there is a minder, the orphans that come here are those of strangers.
                if let Some(strangers) = tree::children_beside(self.minder) {
                    self.strangers = strangers;
                }
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

    /// The minder can't report any more.
    fn conclude(&self, verdict: &Verdict) -> u8 {
        self.watch.facts.over(Moment::now());
        output::finish_speaking();
        self.report.write(&self.watch.facts, verdict);
        verdict.code
    }

    /// By someone, or by itself in a panic.
    fn minder_killed(&mut self) -> Verdict {
        let facts = &self.watch.facts;
        if facts.grant().is_none() {
            say(
                "process that was to keep the lease was killed before it had one; the command was not started",
            );
            return Verdict::new(Kind::OsError, exit_code::OS);
        }
        // What the command left behind is left alone.
        if let Some((kind, code)) = facts.verdict() {
            if kind != Kind::Lost {
                let name = escaped(&self.run.name);
                say(format_args!(
                    "process that kept the lease was killed before it gave `{name}` back, which is free when its lease has ended"
                ));
            }
            return Verdict::new(kind, code);
        }
        if let Some((pid, started_at)) = facts.command().filter(|_| self.run.limits.ignores_loss()) {
            say_at_once("lease lost: the process that kept the lease was killed; the command goes on");
            let command = Child::adopted(pid, self.group, facts.end());
            let code = self.stand_for_orphan(command, started_at);
            return Verdict::new(Kind::Lost, code);
        }
        self.end_all();
        say("lease lost: the process that kept the lease was killed; the command was killed");
        Verdict::new(Kind::Lost, exit_code::LOST)
    }

    /// Or it could not run for as long as this process could not.
    fn minder_hangs(&mut self) -> Verdict {
        let (is_on_time, tells) = (self.watch.is_stopping(), self.watch.begin_telling());
        self.end_all();
        match (tells, is_on_time) {
            (false, _) => {}
            (true, true) => say("lease lost: the process that keeps the lease hangs; the command was killed"),
            (true, false) => say(output::overslept(&self.run.name)),
        }
        Verdict::new(Kind::Lost, exit_code::LOST)
    }

    /// Kills the minder and all below it; returns when nothing is left. What is to be said is said after it: stderr may block.
    fn end_all(&mut self) {
        let minder = Known { pid: self.minder, group: None };
        let all: Vec<Known> = [minder].into_iter().chain(self.command()).collect();
        // The command becomes a child of this process when the minder is gone, and is not reaped before it was killed with its group.
        let mut is_minder_gone = false;
        loop {
            is_minder_gone = is_minder_gone || tree::reap(self.minder);
            tree::kill(&all, &self.strangers);
            if is_minder_gone && self.is_all_ended() {
                break;
            }
            self.sleep(tree::SWEEP, false);
            while self.signals.next().is_some() {}
        }
        self.lifeline = None;
    }

    /// The command, if there is one.
    fn command(&self) -> Option<Known> {
        let (pid, _) = self.watch.facts.command()?;
        Some(Child::adopted(pid, self.group, None).known())
    }

    /// Reaps what has ended; true when nothing is left below this process.
    fn is_all_ended(&self) -> bool {
        loop {
            match tree::next_change() {
                Change::Of(pid, status) => self.learn(pid, status),
                Change::Nothing => return self.has_only_strangers(),
                Change::NoChild => return true,
            }
        }
    }

    /// Whether nothing of the command is left among those that live below this process.
    pub(crate) fn has_only_strangers(&self) -> bool {
        !self.strangers.is_empty() && !tree::has_any(&self.strangers)
    }

    /// The command may become a child of this process, and end as such.
    pub(crate) fn learn(&self, pid: Pid, status: WaitStatus) {
        let facts = &self.watch.facts;
        let is_command = facts.command().is_some_and(|(command, _)| pid == command);
        if let Some(end) = End::of(status).filter(|_| is_command) {
            facts.ended(end);
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
    pub(crate) fn sleep(&self, limit: Duration, is_connected: bool) {
        let limit = Timespec::try_from(limit.min(LONGEST_SLEEP)).expect("an hour is not too long");
        let once = Itimerspec { it_interval: Timespec::default(), it_value: limit };
        let _ = timerfd_settime(&self.alarm, TimerfdTimerFlags::empty(), &once);
        let mut sources = [self.signals.as_fd(), self.alarm.as_fd(), self.wire.as_fd()]
            .map(|source| PollFd::from_borrowed_fd(source, PollFlags::IN));
        let count = if is_connected { 3 } else { 2 };
        // Interrupted or not, the caller looks at everything again.
        let _ = poll(&mut sources[..count], Some(&limit));
    }
}
