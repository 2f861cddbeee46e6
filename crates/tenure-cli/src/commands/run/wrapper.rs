//! The process that the user started. It represents the command towards the shell and the terminal.
//!
//! The lease is in the [holder](super::holder), a process outside the terminal's foreground group. So Ctrl-Z stops the wrapper and the command, as
//! the shell expects, while the holder keeps renewing. The wrapper passes signals on, stops if the command is stopped, and exits as the holder does.
//!
//! The two processes watch each other. The holder sees immediately that the wrapper was killed. If the holder is killed, or hangs until its lease is
//! about to expire, the wrapper kills everything below itself and writes the report.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitStatus};
use rustix::time::{Itimerspec, TimerfdTimerFlags, timerfd_settime};

use super::Run;
use super::child::{Child, CommandEnd, Group};
use super::deadline::Moment;
use super::messages::{self, FromHolder, RelayedSignal};
use super::process_tree::{self, Change, KnownProcess};
use super::report::{Report, RunOutcome, RunResult};
use super::shared::SharedState;
use crate::exit_code;
use crate::output::{self, say, say_in_background};
use crate::sys::SignalFd;
use crate::text::escaped;

/// How long to sleep without a deadline.
const LONGEST_SLEEP: Duration = Duration::from_secs(3_600);

/// The state of the wrapper.
pub(crate) struct Wrapper<'a> {
    pub(crate) run: &'a Run,
    pub(crate) report: &'a Report<'a>,
    pub(crate) holder: Pid,
    /// Children that do not belong to the command.
    pub(crate) unrelated: Vec<Pid>,
    /// The process group of the command.
    pub(crate) group: Group,
    pub(crate) wire: UnixStream,
    pub(crate) signals: SignalFd,
    /// A timer that counts the time in which the machine sleeps, and fires as soon as it wakes up.
    pub(crate) alarm: OwnedFd,
    pub(crate) shared: &'static SharedState,
    /// Kept open until no process runs under the lease.
    pub(crate) lifeline: Option<OwnedFd>,
}

impl Wrapper<'_> {
    /// Waits until the holder has ended; returns the exit code.
    pub(crate) fn wait(mut self) -> u8 {
        let mut is_connected = true;
        loop {
            if let Some(code) = self.holder_ended() {
                return code.unwrap_or_else(|| {
                    let result = self.holder_killed();
                    self.conclude(&result)
                });
            }
            let now = Moment::now();
            if now >= self.shared.kill_at() {
                let result = self.holder_hangs();
                return self.conclude(&result);
            }
            let mut next = self.shared.kill_at();
            if !self.shared.is_stopping() {
                if now >= self.shared.term_at() {
                    self.shared.begin_stopping();
                    if let Some(command) = self.command().filter(|_| self.shared.sends_term()) {
                        process_tree::terminate(command, Some(self.holder), &self.unrelated);
                    }
                }
                next = next.min(self.shared.term_at());
            }
            self.sleep(next.since(now), is_connected);
            self.relay_signals();
            while is_connected && let Some(told) = messages::receive(&self.wire) {
                match told {
                    FromHolder::Lifeline(lifeline) => self.lifeline = Some(lifeline),
                    FromHolder::Gone => is_connected = false,
                }
            }
        }
    }

    /// The exit code of the holder once it has ended; `None` inside when it was killed.
    fn holder_ended(&mut self) -> Option<Option<u8>> {
        while let Change::Of(pid, status) = process_tree::next_change() {
            if pid != self.holder {
                self.learn(pid, status);
                // While the holder lives, only orphans of unrelated processes become children of the wrapper.
                if let Some(unrelated) = process_tree::children_beside(self.holder) {
                    self.unrelated = unrelated;
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

    /// Writes the report that the holder can no longer write.
    fn conclude(&self, result: &RunResult) -> u8 {
        self.shared.facts.over(Moment::now());
        output::flush_messages();
        self.report.write(&self.shared.facts, result);
        result.code
    }

    /// Someone killed the holder, or it aborted in a panic.
    fn holder_killed(&mut self) -> RunResult {
        let facts = &self.shared.facts;
        if facts.grant().is_none() {
            say(
                "process that was to hold the lease was killed before it had one; the command was not started",
            );
            return RunResult::new(RunOutcome::OsError, exit_code::OS);
        }
        // The command had ended: the processes that it left behind are not touched.
        if let Some((outcome, code)) = facts.result() {
            if outcome != RunOutcome::Lost {
                let name = escaped(&self.run.name);
                say(format_args!(
                    "process that held the lease was killed before it gave `{name}` back; the name is free when its lease ends"
                ));
            }
            return RunResult::new(outcome, code);
        }
        if let Some((pid, started_at)) = facts.command().filter(|_| self.run.limits.ignores_loss()) {
            say_in_background("lease lost: the process that held the lease was killed; the command goes on");
            let command = Child::adopted(pid, self.group, facts.end());
            let code = self.wait_without_holder(command, started_at);
            return RunResult::new(RunOutcome::Lost, code);
        }
        self.end_all();
        say("lease lost: the process that held the lease was killed; the command was killed");
        RunResult::new(RunOutcome::Lost, exit_code::LOST)
    }

    /// The holder hangs, or neither process got time to run.
    fn holder_hangs(&mut self) -> RunResult {
        let is_on_time = self.shared.is_stopping();
        // From here on the holder begins no message.
        let is_first = self.shared.begin_message();
        self.end_all();
        // The holder may have been killed before it had written the message that it began.
        let is_needed = is_first || !self.shared.is_message_written();
        match is_on_time && is_first {
            _ if !is_needed => {}
            true => say("lease lost: the process that holds the lease hangs; the command was killed"),
            false => say(output::overslept(&self.run.name)),
        }
        RunResult::new(RunOutcome::Lost, exit_code::LOST)
    }

    /// Kills the holder and everything below it; returns when no process is left. Messages come after it, because stderr may block.
    fn end_all(&mut self) {
        let holder = KnownProcess { pid: self.holder, group: None };
        let all: Vec<KnownProcess> = [holder].into_iter().chain(self.command()).collect();
        // When the holder is gone, the command becomes a child of this process. It must not be reaped before its group was killed.
        let mut is_holder_gone = false;
        loop {
            is_holder_gone = is_holder_gone || process_tree::reap(self.holder);
            process_tree::kill(&all, &self.unrelated);
            if is_holder_gone && self.is_all_ended() {
                break;
            }
            self.sleep(process_tree::SWEEP, false);
            while self.signals.next().is_some() {}
        }
        self.lifeline = None;
    }

    /// The command, if there is one.
    fn command(&self) -> Option<KnownProcess> {
        let (pid, _) = self.shared.facts.command()?;
        Some(Child::adopted(pid, self.group, None).known())
    }

    /// Reaps children that have ended; true if no process of the command is left below this one.
    fn is_all_ended(&self) -> bool {
        loop {
            match process_tree::next_change() {
                Change::Of(pid, status) => self.learn(pid, status),
                Change::Nothing => return self.has_only_unrelated(),
                Change::NoChild => return true,
            }
        }
    }

    /// Whether only unrelated processes are left below this one.
    pub(crate) fn has_only_unrelated(&self) -> bool {
        !self.unrelated.is_empty() && !process_tree::has_any(&self.unrelated)
    }

    /// Records the end of the command, which may have become a child of this process.
    pub(crate) fn learn(&self, pid: Pid, status: WaitStatus) {
        let facts = &self.shared.facts;
        let is_command = facts.command().is_some_and(|(command, _)| pid == command);
        if let Some(end) = CommandEnd::of(status).filter(|_| is_command) {
            facts.ended(end);
        }
    }

    fn relay_signals(&self) {
        while let Some((signal, from_terminal)) = self.signals.next() {
            if signal != Signal::CHILD {
                RelayedSignal { signal, from_terminal }.send(&self.wire);
            }
        }
    }

    /// Sleeps until an event or the end of the time.
    pub(crate) fn sleep(&self, limit: Duration, is_connected: bool) {
        let limit = Timespec::try_from(limit.min(LONGEST_SLEEP)).expect("an hour is not too long");
        let once = Itimerspec { it_interval: Timespec::default(), it_value: limit };
        let _ = timerfd_settime(&self.alarm, TimerfdTimerFlags::empty(), &once);
        let mut sources = [self.signals.as_fd(), self.alarm.as_fd(), self.wire.as_fd()]
            .map(|source| PollFd::from_borrowed_fd(source, PollFlags::IN));
        let count = if is_connected { 3 } else { 2 };
        // The caller checks everything again, so an interruption does not matter.
        let _ = poll(&mut sources[..count], Some(&limit));
    }
}
