//! What the minder does once it has the lease: start the command, hold the name for it, keep it as long as was asked for, give it back.

use std::io;
use std::time::Duration;

use rustix::process::Signal;
use tenure::{Error, Guard, Release};

use super::child::Child;
use super::deadline::{Moment, Plan};
use super::environment;
use super::holding::{Ended, Holding, Terms};
use super::keeping::{self, Kept};
use super::minder::Minder;
use super::report::{Kind, Verdict};
use super::signals::Events;
use crate::address::{self, Located};
use crate::commands::give_back;
use crate::exit_code;
use crate::output::{self, say};
use crate::text::escaped;

/// How long to ask what is wrong with a store.
const LONGEST_QUESTION: Duration = Duration::from_millis(500);

/// Before what a lease ended that was to be given back.
const DONE: &str = "the command was done";
const KEPT: &str = "--min-hold was over";

impl Minder<'_> {
    /// Whether names live in a directory: the end of this process frees those that it has.
    fn is_directory(&self) -> bool {
        address::locate(&self.run.domain).is_ok_and(Located::is_of_this_machine)
    }

    /// Says what is wrong with the directory of a `file:` domain: that is known without asking anybody.
    async fn warn_of_directory(&self) {
        if self.is_directory()
            && let Ok(warnings) = self.domain.warnings().await
        {
            warnings.iter().for_each(|warning| output::say_at_once(escaped(warning)));
        }
    }

    /// Runs the command under the lease, and gives it back.
    pub(crate) async fn run(self, guard: Guard, waited: Duration, mut events: Events) -> Verdict {
        let (granted_at, facts, limits) = (Moment::now(), &self.watch.facts, self.run.limits);
        facts.granted(granted_at, guard.fence().into());
        // Before the command starts, so that there is no moment in which nobody would stop it.
        let plan = Plan::new(granted_at, guard.remaining(), limits.notice_of_loss());
        if !limits.ignores_loss() {
            self.watch.follow(&plan);
        }
        output::acquired(&guard, waited);
        self.warn_of_directory().await;
        if guard.degraded() {
            facts.note_degraded();
        }
        let child = match self.start(&guard, waited, &events).await {
            Ok(child) => child,
            Err(why) => {
                let verdict = Verdict::failed(why.code());
                self.watch.rest();
                facts.conclude(verdict.kind, verdict.code);
                self.give_back(guard, &mut events, DONE).await;
                facts.over(Moment::now());
                // Last, for stderr may be halted: a name that nothing runs under holds up others.
                self.tell_not_started(&why);
                return verdict;
            }
        };
        let started_at = facts.command().map_or_else(Moment::now, |(_, at)| at);
        let terms = Terms { events: &mut events, lease: &guard, plan, limits, watch: self.watch };
        let mut holding = Holding::new(child, started_at, terms);
        let ended = holding.until_ended().await;
        let (is_lost, was_told_to_end) = (holding.is_lost(), holding.was_told_to_end());

        let mut verdict = verdict(ended, is_lost);
        facts.conclude(verdict.kind, verdict.code);
        if is_lost || matches!(ended, Ended::Lost) {
            facts.over(Moment::now());
            let is_answered = self.give_back_lost(guard, &mut events).await;
            if is_answered && matches!(ended, Ended::Lost) {
                self.tell_of_store().await;
            }
        } else {
            // Who was told to end is not to keep anybody waiting.
            let keeps = !was_told_to_end && !matches!(ended, Ended::FrontGone);
            let was_held = match limits.min_hold.filter(|_| keeps) {
                Some(least) => self.keep_and_give_back(guard, &mut events, granted_at.after(least)).await,
                None => self.give_back(guard, &mut events, DONE).await,
            };
            if !was_held {
                let code = if limits.ignores_loss() { verdict.code } else { exit_code::LOST };
                verdict = Verdict::new(Kind::Lost, code);
            }
            facts.over(Moment::now());
        }
        verdict
    }

    /// Says what is wrong with the store, if anything still is: that may be why a lease was not renewed. Nothing runs any more that had to wait.
    async fn tell_of_store(&self) {
        if let Ok(Err(error)) = tokio::time::timeout(LONGEST_QUESTION, self.domain.health()).await {
            say(self.source.blamed(&error));
        }
    }

    /// After a loss: the store may have the lease all the same, as when it renewed it and the answer was lost. Nothing runs under it any more, and
    /// a release of a lease that another has by now changes nothing. In a directory it ends with this process. False if it could not be given
    /// back, and a message says why.
    async fn give_back_lost(&self, guard: Guard, events: &mut Events) -> bool {
        if self.is_directory() || guard.left_in_store().is_zero() {
            return true;
        }
        let interrupted = keeping::until_told_to_end(events);
        give_back::give_back(guard, &self.run.domain, interrupted).await.is_some()
    }

    /// Keeps the name until then, and gives it back; false when the lease turns out to have been lost before the command was done.
    async fn keep_and_give_back(&self, guard: Guard, events: &mut Events, until: Moment) -> bool {
        match keeping::keep(&guard, events, until).await {
            Kept::Over { is_proved: false } => self.give_back(guard, events, DONE).await,
            Kept::Over { is_proved: true } => {
                self.give_back(guard, events, KEPT).await;
                true
            }
            Kept::Lost => {
                say(format_args!("lease on `{}` was lost before {KEPT}", escaped(guard.name())));
                true
            }
        }
    }

    /// Gives the name back; false when the lease turns out to have been lost before.
    async fn give_back(&self, guard: Guard, events: &mut Events, before: &str) -> bool {
        let name = escaped(guard.name());
        let had_ended =
            match give_back::give_back(guard, &self.run.domain, keeping::until_told_to_end(events)).await {
                // What could not be given back was ours.
                Some(Release::Done) | None => return true,
                Some(Release::Taken { by }) => format!("and {} holds it now", escaped(&by.to_string())),
                Some(_) => "and nobody holds it now".to_owned(),
            };
        say(format_args!("lease on `{name}` had ended before {before}, {had_ended}"));
        false
    }

    async fn start(&self, guard: &Guard, waited: Duration, events: &Events) -> Result<Child, NotStarted> {
        let lifeline = self.domain.lifeline().await.map_err(NotStarted::ByStore)?;
        if let Some(lifeline) = &lifeline {
            events.give_lifeline(lifeline);
        }
        let environment = environment::of_command(self.run, guard, waited);
        Child::start(self.run, environment, self.group, self.mask, lifeline.as_ref(), &self.watch.facts)
            .map_err(NotStarted::BySystem)
    }

    fn tell_not_started(&self, why: &NotStarted) {
        match why {
            NotStarted::ByStore(error) => output::failed(why.code(), self.source.blamed(error)),
            NotStarted::BySystem(error) => {
                output::not_started(&self.run.name, &self.run.command[0].to_string_lossy(), error);
            }
        }
    }
}

/// Why there is no command.
enum NotStarted {
    ByStore(Error),
    BySystem(io::Error),
}

impl NotStarted {
    fn code(&self) -> u8 {
        match self {
            NotStarted::ByStore(error) => exit_code::of_error(error),
            NotStarted::BySystem(error) => exit_code::of_start(error),
        }
    }
}

fn verdict(ended: Ended, is_lost: bool) -> Verdict {
    let verdict = match ended {
        Ended::Exited(end) => Verdict::of_end(end),
        Ended::TimedOut => Verdict::new(Kind::MaxHold, exit_code::TIMED_OUT),
        Ended::Lost => Verdict::new(Kind::Lost, exit_code::LOST),
        Ended::FrontGone => Verdict::new(Kind::Interrupted, exit_code::by_signal(Signal::KILL.as_raw())),
    };
    if is_lost { Verdict::new(Kind::Lost, verdict.code) } else { verdict }
}
