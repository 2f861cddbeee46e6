//! The time in which the command runs: until it ends, or has to be stopped.
//!
//! It ends with the process that was started; what that leaves behind is not waited for. After a signal to end it is otherwise: the same signal went
//! to all of its process group, where others may take longer to end, and the name is kept for them.

use std::fmt::Display;

use rustix::process::{Pid, Signal, kill_process};
use tenure::Tenure;

use super::child::Child;
use super::deadline::{Moment, Plan, Watch};
use super::signals::{Event, Events};
use super::tree::{self, Change};
use crate::output::{self, say_at_once};
use crate::text::escaped;

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The command ended by itself, under the lease.
    Exited(u8),
    /// The lease was lost, or about to be; the command and all that came of it is gone.
    Lost,
    /// The front was killed; the command and all that came of it is gone.
    FrontGone,
}

/// Where it stands.
#[derive(Clone, Copy, Debug)]
enum Course {
    /// The command runs.
    Running,
    /// It was asked to end, and is killed at that moment.
    Ending { kill_at: Moment },
    /// All that came of it is killed.
    Killing { ended: Ended },
}

/// A command that runs under a lease.
pub(crate) struct Holding<'a> {
    child: Child,
    events: Events,
    tenure: &'a Tenure,
    plan: Plan,
    watch: &'a Watch,
    front: Pid,
    course: Course,
    was_told_to_end: bool,
}

impl<'a> Holding<'a> {
    /// `plan` is the one that the watch follows.
    pub(crate) fn new(
        child: Child,
        events: Events,
        tenure: &'a Tenure,
        plan: Plan,
        watch: &'a Watch,
        front: Pid,
    ) -> Self {
        Holding { child, events, tenure, plan, watch, front, course: Course::Running, was_told_to_end: false }
    }

    /// Until the command has ended, or nothing is left of it.
    pub(crate) async fn until_ended(mut self) -> Ended {
        loop {
            if let Some(ended) = self.step() {
                self.watch.rest();
                return ended;
            }
            let (now, is_running) = (Moment::now(), matches!(self.course, Course::Running));
            let next = match self.course {
                Course::Running if self.child.exit_code().is_none() => self.plan.look_at(now),
                Course::Ending { kill_at } => kill_at,
                Course::Running | Course::Killing { .. } => now.after(tree::SWEEP),
            };
            tokio::select! {
                biased;
                event = self.events.next() => self.happened(event),
                loss = self.tenure.lost(), if is_running => {
                    self.ask_to_end(&loss.to_string());
                }
                () = tokio::time::sleep(next.since(now)) => {}
            }
        }
    }

    fn happened(&mut self, event: Event) {
        match event {
            Event::Signal(relayed) => {
                let to_end = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM];
                self.was_told_to_end |= to_end.contains(&relayed.signal);
                self.child.forward(relayed);
            }
            Event::FrontGone => self.course = Course::Killing { ended: Ended::FrontGone },
            // Every step looks at the children.
            Event::Child => {}
        }
    }

    /// Does what is due.
    fn step(&mut self) -> Option<Ended> {
        let nothing_left = self.look_at_children();
        let now = Moment::now();
        match self.course {
            Course::Running => {
                if let Some(code) = self.child.exit_code()
                    && !(self.was_told_to_end && tree::has_group(self.child.group()))
                {
                    return Some(self.ended_by_itself(code));
                }
                if self.plan.look(now, self.tenure.remaining()) {
                    self.watch.follow(&self.plan);
                }
                if now >= self.plan.term_at() {
                    let name = self.tenure.name();
                    self.ask_to_end(&format!("lease on `{name}` was not renewed in time"));
                }
            }
            Course::Ending { .. } if nothing_left => return Some(Ended::Lost),
            Course::Ending { kill_at } => {
                if now >= kill_at {
                    say_at_once("command did not end in time and is killed");
                    self.course = Course::Killing { ended: Ended::Lost };
                }
            }
            Course::Killing { ended } if nothing_left => return Some(ended),
            Course::Killing { .. } => {}
        }
        if matches!(self.course, Course::Killing { .. }) {
            tree::kill(self.child.own_group());
        }
        None
    }

    /// The command is done. It must not pass for done under the lease when that was lost meanwhile.
    fn ended_by_itself(&self, code: u8) -> Ended {
        if self.tenure.is_held() && !self.watch.is_stopping() {
            return Ended::Exited(code);
        }
        let name = escaped(self.tenure.name());
        self.tell(format_args!("lease on `{name}` was lost before the command was done"));
        Ended::Lost
    }

    fn ask_to_end(&mut self, why: &str) {
        if Moment::now() >= self.plan.kill_at() {
            self.tell(output::overslept(self.tenure.name()));
            self.watch.begin_stopping();
            self.course = Course::Killing { ended: Ended::Lost };
            return;
        }
        self.tell(format_args!("{}; the command is stopped", escaped(why)));
        self.watch.begin_stopping();
        tree::ask_to_end(None);
        // A lease that was taken by force may be another's by now: its deadline grants no more than the usual time.
        let kill_at = self.plan.kill_at().min(Moment::now().after(self.plan.grace()));
        self.course = Course::Ending { kill_at };
    }

    /// Says why the command is stopped, unless the front has.
    fn tell(&self, why: impl Display) {
        if self.watch.begin_telling() {
            say_at_once(why);
        }
    }

    /// Reaps what has ended; true when there is no process left below this one.
    fn look_at_children(&mut self) -> bool {
        loop {
            match tree::next_change() {
                Change::Of(pid, status) if pid == self.child.pid() => {
                    self.child.changed(status);
                    if status.stopped() && self.child.own_group().is_none() {
                        self.events.suspend_front();
                    } else if status.continued() && self.child.own_group().is_none() {
                        let _ = kill_process(self.front, Signal::CONT);
                    }
                }
                Change::Of(..) => {}
                Change::Nothing => return false,
                Change::NoChild => return true,
            }
        }
    }
}
