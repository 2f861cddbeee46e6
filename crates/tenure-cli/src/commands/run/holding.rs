//! The time in which the command runs: until it ends, or has to be stopped.
//!
//! It ends with the process that was started; what that leaves behind is not waited for, unless `--wait-all` says so: then it ends when the minder
//! has no child left, which as a subreaper it has as long as anything lives that the command started. After a signal to end it is otherwise: the same signal went
//! to all of its process group, where others may take longer to end, and the name is kept for them. A command that runs for too long
//! (`--max-hold`) is stopped with all that came of it; its lease is watched over all the while, and a loss goes first.

use std::fmt::Display;
use std::time::Duration;

use rustix::process::Signal;
use tenure::Lease;

use super::child::{Child, End};
use super::deadline::{LOOK_AGAIN, Moment, Plan};
use super::limits::Limits;
use super::signals::{self, Event, Events};
use super::tree::{self, Change};
use super::watch::Watch;
use crate::output::{self, say_at_once, say_more};
use crate::text::{escaped, rough};

/// How often `-v` says what is waited for after the command.
const SAY_AGAIN: Duration = Duration::from_secs(30);

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The command ended by itself: under the lease, or after a loss that was to be ignored.
    Exited(End),
    /// The lease was lost, or about to be; the command and all that came of it is gone.
    Lost,
    /// The command ran for too long; it and all that came of it is gone.
    TimedOut,
    /// The front was killed; the command and all that came of it is gone.
    FrontGone,
}

/// Where it stands.
#[derive(Clone, Copy, Debug)]
enum Course {
    /// The command runs.
    Running,
    /// It was asked to end, and is killed at that moment.
    Ending { kill_at: Moment, ended: Ended },
    /// All that came of it is killed.
    Killing { ended: Ended },
}

/// What a command runs under.
pub(crate) struct Terms<'a> {
    pub(crate) events: &'a mut Events,
    pub(crate) lease: &'a Lease,
    /// The one that the watch follows.
    pub(crate) plan: Plan,
    pub(crate) limits: Limits,
    pub(crate) watch: &'a Watch,
}

/// A command that runs under a lease.
pub(crate) struct Holding<'a> {
    child: Child,
    terms: Terms<'a>,
    too_long_at: Moment,
    course: Course,
    was_told_to_end: bool,
    /// A signal other than TERM told the command to end; what it leaves behind may ignore that.
    rest_may_ignore: bool,
    is_lost: bool,
    /// What was last told of it.
    is_degraded: bool,
    /// When `-v` says next what the command left behind.
    rest_told_at: Moment,
}

impl<'a> Holding<'a> {
    pub(crate) fn new(child: Child, started_at: Moment, terms: Terms<'a>) -> Self {
        let too_long_at = terms.limits.max_hold.map_or(Moment::FAR, |limit| started_at.after(limit));
        let (course, is_degraded) = (Course::Running, terms.watch.facts.was_degraded());
        Holding {
            child,
            terms,
            too_long_at,
            course,
            was_told_to_end: false,
            rest_may_ignore: false,
            is_lost: false,
            is_degraded,
            rest_told_at: started_at,
        }
    }

    /// Until the command has ended, or nothing is left of it.
    pub(crate) async fn until_ended(&mut self) -> Ended {
        loop {
            if let Some(ended) = self.step() {
                self.terms.watch.rest();
                // What was killed while it was stopped is not continued any more, and its job is to end.
                self.terms.events.resume_front();
                return ended;
            }
            let now = Moment::now();
            // The timers of the runtime stand still while the machine sleeps.
            let sleep = self.next_step(now).since(now).min(LOOK_AGAIN);
            let is_watched = self.is_watched();
            tokio::select! {
                biased;
                event = self.terms.events.next() => self.happened(event),
                loss = self.terms.lease.lost(), if is_watched => {
                    let kill_at = self.terms.plan.forced_kill_at(Moment::now());
                    self.lose(&loss.to_string(), kill_at);
                }
                () = tokio::time::sleep(sleep) => {}
            }
        }
    }

    /// Whether a signal said that it should end.
    pub(crate) fn was_told_to_end(&self) -> bool {
        self.was_told_to_end
    }

    /// Whether the lease was lost, and the command went on.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Whether a loss would change anything.
    fn is_watched(&self) -> bool {
        let is_stopped_for_loss = match self.course {
            Course::Running => false,
            Course::Ending { ended, .. } | Course::Killing { ended } => ended != Ended::TimedOut,
        };
        !self.is_lost && !is_stopped_for_loss
    }

    fn next_step(&self, now: Moment) -> Moment {
        let has_plan = self.is_watched() && !self.terms.limits.ignores_loss();
        let look_at = if has_plan { self.terms.plan.look_at(now) } else { Moment::FAR };
        match self.course {
            // That the last of them has ended is an event, as the end of the command is.
            Course::Running if self.child.end().is_none() || self.terms.limits.wait_all => {
                look_at.min(self.too_long_at)
            }
            Course::Ending { kill_at, .. } => look_at.min(kill_at),
            Course::Running | Course::Killing { .. } => now.after(tree::SWEEP),
        }
    }

    fn happened(&mut self, event: Event) {
        match event {
            Event::Signal(relayed) => {
                let is_ending = signals::ends_a_process(relayed.signal);
                self.was_told_to_end |= is_ending;
                if is_ending && self.terms.limits.wait_all {
                    self.rest_may_ignore = self.child.end().is_none() && relayed.signal != Signal::TERM;
                    self.child.forward_to_all(relayed, &[]);
                } else {
                    self.child.forward(relayed);
                }
                // Without the command, nobody else shows a shell that its job was stopped, or goes on.
                let is_job = self.child.end().is_some() && self.child.own_group().is_none();
                match relayed.signal {
                    Signal::TSTP if is_job => self.terms.events.suspend_front(),
                    Signal::CONT if is_job => self.terms.events.resume_front(),
                    _ => {}
                }
            }
            Event::FrontGone => self.course = Course::Killing { ended: Ended::FrontGone },
            // Every step looks at the children.
            Event::Child => {}
        }
    }

    /// Does what is due.
    fn step(&mut self) -> Option<Ended> {
        let nothing_left = self.look_at_children();
        match self.course {
            Course::Running => {
                if let Some(end) = self.child.end() {
                    if nothing_left || !self.waits_for_rest() {
                        return Some(self.ended_by_itself(end));
                    }
                    self.tell_of_rest();
                    if std::mem::take(&mut self.rest_may_ignore) {
                        self.child.ask_rest_to_end(&[]);
                    }
                }
            }
            Course::Ending { ended, .. } | Course::Killing { ended } if nothing_left => return Some(ended),
            Course::Ending { .. } | Course::Killing { .. } => {}
        }
        let now = Moment::now();
        if self.is_watched() {
            self.look_at_reach();
            self.look_at_lease(now);
        }
        match self.course {
            Course::Running if now >= self.too_long_at => self.stop_after_limit(now),
            Course::Ending { kill_at, ended } if now >= kill_at => {
                say_at_once("command did not end in time and is killed");
                self.course = Course::Killing { ended };
            }
            _ => {}
        }
        if matches!(self.course, Course::Killing { .. }) {
            tree::kill(&[self.child.known()], &[]);
        }
        None
    }

    /// Whether the command has left something behind that NAME is kept for.
    fn waits_for_rest(&self) -> bool {
        self.terms.limits.wait_all || self.was_told_to_end && tree::has_group(self.child.group())
    }

    /// Says with `-v`, and now and then again, why NAME is still held.
    fn tell_of_rest(&mut self) {
        let now = Moment::now();
        if now < self.rest_told_at || !self.terms.limits.wait_all {
            return;
        }
        self.rest_told_at = now.after(SAY_AGAIN);
        let pids: Vec<String> = tree::below().iter().map(|pid| pid.as_raw_pid().to_string()).collect();
        let name = escaped(self.terms.lease.name());
        say_more(format_args!(
            "command has ended; `{name}` is held until what it started has ended, too: pid {}",
            pids.join(", ")
        ));
    }

    /// The command is done. It must not pass for done under the lease when that was lost meanwhile.
    fn ended_by_itself(&mut self, end: End) -> Ended {
        if self.is_lost || self.terms.lease.is_held() && !self.terms.watch.is_stopping() {
            return Ended::Exited(end);
        }
        let name = escaped(self.terms.lease.name());
        self.tell(format_args!("lease on `{name}` was lost before the command was done"));
        if self.terms.limits.ignores_loss() {
            self.is_lost = true;
            return Ended::Exited(end);
        }
        Ended::Lost
    }

    /// Tells once that other machines are excluded no longer, or again.
    fn look_at_reach(&mut self) {
        let Terms { lease, watch, .. } = &self.terms;
        let is_degraded = lease.degraded();
        if std::mem::replace(&mut self.is_degraded, is_degraded) == is_degraded {
            return;
        }
        if is_degraded {
            watch.facts.note_degraded();
            say_at_once(output::degraded(lease.name()));
        } else {
            let name = escaped(lease.name());
            say_at_once(format_args!("outer store is back: `{name}` is held on all machines again"));
        }
    }

    fn look_at_lease(&mut self, now: Moment) {
        let Terms { plan, lease, watch, limits, .. } = &mut self.terms;
        // What is to be ignored is told when it has happened.
        if limits.ignores_loss() {
            return;
        }
        if plan.look(now, lease.remaining()) {
            watch.follow(plan);
        }
        if now >= plan.term_at() {
            let (why, kill_at) =
                (format!("lease on `{}` was not renewed in time", lease.name()), plan.kill_at());
            self.lose(&why, kill_at);
        }
    }

    /// The lease is lost, or about to be: the command is to be gone by `kill_at`.
    fn lose(&mut self, why: &str, kill_at: Moment) {
        let Terms { plan, lease, watch, limits, .. } = &self.terms;
        let (now, why) = (Moment::now(), escaped(why));
        if limits.ignores_loss() {
            watch.facts.over(now);
            self.tell(format_args!("{why}; the command goes on"));
            self.is_lost = true;
            return;
        }
        let kill_at = match self.course {
            Course::Running => kill_at,
            Course::Ending { kill_at: before, .. } => kill_at.min(before),
            Course::Killing { .. } => now,
        };
        let asks = plan.asks() && now < kill_at;
        match asks {
            _ if now >= plan.late_at() => self.tell(output::overslept(lease.name())),
            true => self.tell(format_args!("{why}; the command is stopped")),
            false => self.tell(format_args!("{why}; the command is killed")),
        }
        watch.begin_stopping();
        if asks {
            tree::ask_to_end(self.child.known(), None, &[]);
            self.course = Course::Ending { kill_at, ended: Ended::Lost };
        } else {
            self.course = Course::Killing { ended: Ended::Lost };
        }
    }

    fn stop_after_limit(&mut self, now: Moment) {
        let (limits, ended) = (self.terms.limits, Ended::TimedOut);
        let limit = rough(limits.max_hold.unwrap_or_default());
        let notice = limits.notice_of_limit();
        if notice.is_zero() {
            say_at_once(format_args!("command ran for longer than --max-hold {limit}; it is killed"));
            self.course = Course::Killing { ended };
        } else {
            say_at_once(format_args!("command ran for longer than --max-hold {limit}; it is stopped"));
            tree::ask_to_end(self.child.known(), None, &[]);
            self.course = Course::Ending { kill_at: now.after(notice), ended };
        }
    }

    /// Says why the command is stopped, unless the front has.
    fn tell(&self, why: impl Display) {
        if self.terms.watch.begin_telling() {
            say_at_once(why);
        }
    }

    /// Reaps what has ended; true when there is no process left below this one.
    fn look_at_children(&mut self) -> bool {
        loop {
            match tree::next_change() {
                Change::Of(pid, status) if pid == self.child.pid() => {
                    self.child.changed(status);
                    if let Some(end) = self.child.end() {
                        self.terms.watch.facts.ended(end);
                    }
                    if status.stopped() && self.child.own_group().is_none() {
                        self.terms.events.suspend_front();
                    } else if status.continued() && self.child.own_group().is_none() {
                        self.terms.events.resume_front();
                    }
                }
                Change::Of(..) => {}
                Change::Nothing => return false,
                Change::NoChild => return true,
            }
        }
    }
}
