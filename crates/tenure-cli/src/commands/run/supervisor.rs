//! Supervises the command until it ends or must be stopped.
//!
//! The command ends when its process ends. The supervisor does not wait for processes that it leaves behind, with two exceptions. With `--wait-all`
//! it waits until the holder, a subreaper, has no child left. After a termination signal it waits for the command's process group, which got the
//! same signal and may take longer to end. `--max-hold` stops the command with all its descendants. A lost lease comes before `--max-hold`.

use std::fmt::Display;
use std::time::Duration;

use rustix::process::Signal;
use tenure::Lease;

use super::child::{Child, CommandEnd};
use super::deadline::{CLOCK_CHECK, Moment, Plan};
use super::limits::Limits;
use super::process_tree::{self, Change};
use super::shared::SharedState;
use super::signals::{self, Events, RunEvent};
use crate::output::{self, say_in_background, say_in_background_and, say_more};
use crate::text::{escaped, rough};

/// How often `-v` says which processes `tenure` waits for after the command.
const SAY_AGAIN: Duration = Duration::from_secs(30);

/// How the supervision ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The command ended by itself: under the lease, or after a loss that `--on-lost ignore` ignores.
    Exited(CommandEnd),
    /// The lease was lost or about to be; the command and its descendants are gone.
    Lost,
    /// The command ran for too long; it and its descendants are gone.
    TimedOut,
    /// The wrapper was killed; the command and its descendants are gone.
    WrapperGone,
}

/// What is happening to the command.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The command runs.
    Running,
    /// It got TERM, and gets KILL at `kill_at`.
    Ending { kill_at: Moment, ended: Ended },
    /// It and its descendants get KILL until none is left.
    Killing { ended: Ended },
}

/// What the command runs under.
pub(crate) struct Setup<'a> {
    pub(crate) events: &'a mut Events,
    pub(crate) lease: &'a Lease,
    /// The plan that the wrapper knows, too.
    pub(crate) plan: Plan,
    pub(crate) limits: Limits,
    pub(crate) shared: &'static SharedState,
}

/// A command that runs under a lease.
pub(crate) struct Supervisor<'a> {
    child: Child,
    setup: Setup<'a>,
    too_long_at: Moment,
    stage: Stage,
    was_told_to_end: bool,
    /// The command got a termination signal other than TERM, which the processes it leaves behind may ignore.
    rest_may_ignore: bool,
    is_lost: bool,
    /// What the last message said.
    is_degraded: bool,
    /// When `-v` next names the processes that the command left behind.
    rest_told_at: Moment,
}

impl<'a> Supervisor<'a> {
    pub(crate) fn new(child: Child, started_at: Moment, setup: Setup<'a>) -> Self {
        let too_long_at = setup.limits.max_hold.map_or(Moment::FAR, |limit| started_at.after(limit));
        let (stage, is_degraded) = (Stage::Running, setup.shared.facts.was_degraded());
        Supervisor {
            child,
            setup,
            too_long_at,
            stage,
            was_told_to_end: false,
            rest_may_ignore: false,
            is_lost: false,
            is_degraded,
            rest_told_at: started_at,
        }
    }

    /// Returns when the command has ended, or no process of it is left.
    pub(crate) async fn until_ended(&mut self) -> Ended {
        loop {
            if let Some(ended) = self.step() {
                self.setup.shared.disarm();
                // A stopped command that was killed sends no CONT any more: let its job in the shell end.
                self.setup.events.resume_wrapper();
                return ended;
            }
            let now = Moment::now();
            // The runtime's timers stand still while the machine sleeps.
            let sleep = self.next_step(now).since(now).min(CLOCK_CHECK);
            let is_watched = self.is_watched();
            tokio::select! {
                biased;
                event = self.setup.events.next() => self.happened(event),
                loss = self.setup.lease.lost(), if is_watched => {
                    let kill_at = self.setup.plan.forced_kill_at(Moment::now());
                    self.lose(&loss.to_string(), kill_at);
                }
                () = tokio::time::sleep(sleep) => {}
            }
        }
    }

    /// Whether a termination signal came.
    pub(crate) fn was_told_to_end(&self) -> bool {
        self.was_told_to_end
    }

    /// Whether the lease was lost, and the command went on.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Whether a loss would change anything.
    fn is_watched(&self) -> bool {
        let is_stopped_for_loss = match self.stage {
            Stage::Running => false,
            Stage::Ending { ended, .. } | Stage::Killing { ended } => ended != Ended::TimedOut,
        };
        !self.is_lost && !is_stopped_for_loss
    }

    fn next_step(&self, now: Moment) -> Moment {
        let has_plan = self.is_watched() && !self.setup.limits.ignores_loss();
        let check_at = if has_plan { self.setup.plan.check_at(now) } else { Moment::FAR };
        match self.stage {
            // The end of the command, and of the last of its descendants, is an event.
            Stage::Running if self.child.end().is_none() || self.setup.limits.wait_all => {
                check_at.min(self.too_long_at)
            }
            Stage::Ending { kill_at, .. } => check_at.min(kill_at),
            Stage::Running | Stage::Killing { .. } => now.after(process_tree::SWEEP),
        }
    }

    fn happened(&mut self, event: RunEvent) {
        match event {
            RunEvent::Signal(relayed) => {
                let is_ending = signals::ends_a_process(relayed.signal);
                self.was_told_to_end |= is_ending;
                if is_ending && self.setup.limits.wait_all {
                    self.rest_may_ignore = self.child.end().is_none() && relayed.signal != Signal::TERM;
                    self.child.forward_to_all(relayed, &[]);
                } else {
                    self.child.forward(relayed);
                }
                // After the command has ended, only the wrapper can show the shell that the job was stopped or continued.
                let is_job = self.child.end().is_some() && self.child.own_group().is_none();
                match relayed.signal {
                    Signal::TSTP if is_job => self.setup.events.suspend_wrapper(),
                    Signal::CONT if is_job => self.setup.events.resume_wrapper(),
                    _ => {}
                }
            }
            RunEvent::WrapperGone => self.stage = Stage::Killing { ended: Ended::WrapperGone },
            // Every step reaps children.
            RunEvent::Child => {}
        }
    }

    /// Does everything that is due.
    fn step(&mut self) -> Option<Ended> {
        let nothing_left = self.reap_children();
        match self.stage {
            Stage::Running => {
                if let Some(end) = self.child.end() {
                    if nothing_left || !self.waits_for_rest() {
                        return Some(self.ended_by_itself(end));
                    }
                    self.tell_of_rest();
                    if std::mem::take(&mut self.rest_may_ignore) {
                        self.child.terminate_rest(&[]);
                    }
                }
            }
            Stage::Ending { ended, .. } | Stage::Killing { ended } if nothing_left => return Some(ended),
            Stage::Ending { .. } | Stage::Killing { .. } => {}
        }
        let now = Moment::now();
        if self.is_watched() {
            self.report_degradation();
            self.check_lease(now);
        }
        match self.stage {
            Stage::Running if now >= self.too_long_at => self.stop_after_limit(now),
            Stage::Ending { kill_at, ended } if now >= kill_at => {
                say_in_background("command did not end in time and is killed");
                self.stage = Stage::Killing { ended };
            }
            _ => {}
        }
        if matches!(self.stage, Stage::Killing { .. }) {
            process_tree::kill(&[self.child.known()], &[]);
        }
        None
    }

    /// Whether NAME is held for processes that the command left behind.
    fn waits_for_rest(&self) -> bool {
        self.setup.limits.wait_all || self.was_told_to_end && process_tree::has_group(self.child.group())
    }

    /// Says with `-v`, every 30 s, why NAME is still held.
    fn tell_of_rest(&mut self) {
        let now = Moment::now();
        if now < self.rest_told_at || !self.setup.limits.wait_all {
            return;
        }
        self.rest_told_at = now.after(SAY_AGAIN);
        let pids: Vec<String> =
            process_tree::below().iter().map(|pid| pid.as_raw_pid().to_string()).collect();
        let name = escaped(self.setup.lease.name());
        say_more(format_args!(
            "command has ended; `{name}` is held until what it started has ended, too: pid {}",
            pids.join(", ")
        ));
    }

    /// The command has ended. If the lease was lost meanwhile, it did not end under the lease.
    fn ended_by_itself(&mut self, end: CommandEnd) -> Ended {
        if self.is_lost || self.setup.lease.is_held() && !self.setup.shared.is_stopping() {
            return Ended::Exited(end);
        }
        let name = escaped(self.setup.lease.name());
        self.tell(format_args!("lease on `{name}` was lost before the command was done"));
        if self.setup.limits.ignores_loss() {
            self.is_lost = true;
            return Ended::Exited(end);
        }
        Ended::Lost
    }

    /// Says once that the lease stopped excluding other machines, or excludes them again.
    fn report_degradation(&mut self) {
        let Setup { lease, shared, .. } = &self.setup;
        let is_degraded = lease.is_degraded();
        if std::mem::replace(&mut self.is_degraded, is_degraded) == is_degraded {
            return;
        }
        if is_degraded {
            shared.facts.note_degraded();
            say_in_background(output::degraded(lease.name()));
        } else {
            let name = escaped(lease.name());
            say_in_background(format_args!("outer store is back: `{name}` is held on all machines again"));
        }
    }

    fn check_lease(&mut self, now: Moment) {
        let Setup { plan, lease, shared, limits, .. } = &mut self.setup;
        // With `--on-lost ignore`, the message comes after the loss.
        if limits.ignores_loss() {
            return;
        }
        if plan.update(now, lease.remaining()) {
            shared.set_plan(plan);
        }
        if now >= plan.term_at() {
            let (why, kill_at) =
                (format!("lease on `{}` was not renewed in time", lease.name()), plan.kill_at());
            self.lose(&why, kill_at);
        }
    }

    /// The lease is lost, or about to be: the command must be gone by `kill_at`.
    fn lose(&mut self, why: &str, kill_at: Moment) {
        let Setup { plan, lease, shared, limits, .. } = &self.setup;
        let (now, why) = (Moment::now(), escaped(why));
        if limits.ignores_loss() {
            shared.facts.over(now);
            self.tell(format_args!("{why}; the command goes on"));
            self.is_lost = true;
            return;
        }
        let kill_at = match self.stage {
            Stage::Running => kill_at,
            Stage::Ending { kill_at: before, .. } => kill_at.min(before),
            Stage::Killing { .. } => now,
        };
        let sends_term = plan.sends_term() && now < kill_at;
        match sends_term {
            _ if now >= plan.wrapper_kill_at() => self.tell(output::overslept(lease.name())),
            true => self.tell(format_args!("{why}; the command is stopped")),
            false => self.tell(format_args!("{why}; the command is killed")),
        }
        shared.begin_stopping();
        if sends_term {
            process_tree::terminate(self.child.known(), None, &[]);
            self.stage = Stage::Ending { kill_at, ended: Ended::Lost };
        } else {
            self.stage = Stage::Killing { ended: Ended::Lost };
        }
    }

    fn stop_after_limit(&mut self, now: Moment) {
        let (limits, ended) = (self.setup.limits, Ended::TimedOut);
        let limit = rough(limits.max_hold.unwrap_or_default());
        let grace = limits.grace_after_limit();
        if grace.is_zero() {
            say_in_background(format_args!("command ran for longer than --max-hold {limit}; it is killed"));
            self.stage = Stage::Killing { ended };
        } else {
            say_in_background(format_args!("command ran for longer than --max-hold {limit}; it is stopped"));
            process_tree::terminate(self.child.known(), None, &[]);
            self.stage = Stage::Ending { kill_at: now.after(grace), ended };
        }
    }

    /// Says why the command is stopped, unless the wrapper has said it.
    fn tell(&self, why: impl Display) {
        let shared = self.setup.shared;
        if shared.begin_message() {
            say_in_background_and(why, || shared.message_written());
        }
    }

    /// Reaps children that have ended; true if no process is left below this one.
    fn reap_children(&mut self) -> bool {
        loop {
            match process_tree::next_change() {
                Change::Of(pid, status) if pid == self.child.pid() => {
                    self.child.changed(status);
                    if let Some(end) = self.child.end() {
                        self.setup.shared.facts.ended(end);
                    }
                    if status.stopped() && self.child.own_group().is_none() {
                        self.setup.events.suspend_wrapper();
                    } else if status.continued() && self.child.own_group().is_none() {
                        self.setup.events.resume_wrapper();
                    }
                }
                Change::Of(..) => {}
                Change::Nothing => return false,
                Change::NoChild => return true,
            }
        }
    }
}
