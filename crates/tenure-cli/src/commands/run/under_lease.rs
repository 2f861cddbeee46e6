//! What the holder does with the lease: start the command, hold the name while it runs, keep it for `--min-hold`, give it back.

use std::io;
use std::time::Duration;

use rustix::process::Signal;
use tenure::{Error, Guard, Release};

use super::child::Child;
use super::deadline::{Moment, Plan};
use super::environment;
use super::holder::HolderProcess;
use super::min_hold::{self, Kept};
use super::report::{RunOutcome, RunResult};
use super::signals::Events;
use super::supervisor::{Ended, Setup, Supervisor};
use crate::address::{self, Located};
use crate::commands::give_back;
use crate::exit_code;
use crate::output::{self, say};
use crate::text::escaped;

/// How long to ask the store what is wrong with it.
const LONGEST_QUESTION: Duration = Duration::from_millis(500);

/// For the message that a lease had ended before this.
const DONE: &str = "the command was done";
const KEPT: &str = "--min-hold was over";

impl HolderProcess<'_> {
    /// Whether names live in a directory. Then the end of this process frees its names.
    fn is_directory(&self) -> bool {
        address::locate(&self.run.domain).is_ok_and(Located::is_of_this_machine)
    }

    /// Warns of what is wrong with the directory of a `file:` domain. That needs no request.
    async fn warn_of_directory(&self) {
        if self.is_directory()
            && let Ok(warnings) = self.domain.warnings().await
        {
            warnings.iter().for_each(|warning| output::say_in_background(escaped(warning)));
        }
    }

    /// Runs the command under the lease, and gives it back.
    pub(crate) async fn run(self, guard: Guard, waited: Duration, mut events: Events) -> RunResult {
        let (granted_at, facts, limits) = (Moment::now(), &self.shared.facts, self.run.limits);
        facts.granted(granted_at, guard.fence().into());
        // Before the command starts, so that the wrapper can stop it at any time.
        let plan = Plan::new(granted_at, guard.remaining(), limits.grace_after_loss());
        if !limits.ignores_loss() {
            self.shared.set_plan(&plan);
        }
        output::acquired(&guard, waited);
        self.warn_of_directory().await;
        if guard.is_degraded() {
            facts.note_degraded();
        }
        let child = match self.start(&guard, waited, &events).await {
            Ok(child) => child,
            Err(why) => {
                let result = RunResult::failed(why.code());
                self.shared.disarm();
                facts.conclude(result.outcome, result.code);
                self.give_back(guard, &mut events, DONE).await;
                facts.over(Moment::now());
                // After the release: stderr may block, and others wait for the name.
                self.tell_not_started(&why);
                return result;
            }
        };
        let started_at = facts.command().map_or_else(Moment::now, |(_, at)| at);
        let setup = Setup { events: &mut events, lease: guard.lease(), plan, limits, shared: self.shared };
        let mut holding = Supervisor::new(child, started_at, setup);
        let ended = holding.until_ended().await;
        let (is_lost, was_told_to_end) = (holding.is_lost(), holding.was_told_to_end());

        let mut result = result(ended, is_lost);
        facts.conclude(result.outcome, result.code);
        if is_lost || matches!(ended, Ended::Lost) {
            facts.over(Moment::now());
            let is_answered = self.give_back_lost(guard, &mut events).await;
            if is_answered && matches!(ended, Ended::Lost) {
                self.tell_of_store().await;
            }
        } else {
            // After a termination signal, `--min-hold` is ignored.
            let keeps = !was_told_to_end && !matches!(ended, Ended::WrapperGone);
            let was_held = match limits.min_hold.filter(|_| keeps) {
                Some(least) => self.keep_and_release(guard, &mut events, granted_at.after(least)).await,
                None => self.give_back(guard, &mut events, DONE).await,
            };
            if !was_held {
                let code = if limits.ignores_loss() { result.code } else { exit_code::LOST };
                result = RunResult::new(RunOutcome::Lost, code);
            }
            facts.over(Moment::now());
        }
        result
    }

    /// Says what is wrong with the store, if it still is: that may be why the lease was not renewed. The command has ended, so there is time.
    async fn tell_of_store(&self) {
        if let Ok(Err(error)) = tokio::time::timeout(LONGEST_QUESTION, self.domain.health()).await {
            say(self.source.blamed(&error));
        }
    }

    /// Gives back a lease that counts as lost. The store may still have it, for example if it renewed the lease and the answer was lost. If someone
    /// else holds the name by now, the release changes nothing. In a directory the lease ends with this process. Returns false if the release
    /// failed, and says why.
    async fn give_back_lost(&self, guard: Guard, events: &mut Events) -> bool {
        if self.is_directory() || guard.left_in_store().is_zero() {
            return true;
        }
        let interrupted = min_hold::until_told_to_end(events);
        give_back::give_back(guard, &self.run.domain, interrupted).await.is_some()
    }

    /// Keeps the name until `until`, and gives it back; false if the lease was lost before the command ended.
    async fn keep_and_release(&self, guard: Guard, events: &mut Events, until: Moment) -> bool {
        match min_hold::keep(&guard, events, until).await {
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

    /// Gives the name back; false if the lease had been lost before.
    async fn give_back(&self, guard: Guard, events: &mut Events, before: &str) -> bool {
        let name = escaped(guard.name());
        let had_ended =
            match give_back::give_back(guard, &self.run.domain, min_hold::until_told_to_end(events)).await {
                // A lease that could not be given back was still ours.
                Some(Release::Released) | None => return true,
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
        let environment = environment::of_command(self.run, guard.lease(), waited);
        Child::start(self.run, environment, self.group, self.mask, lifeline.as_ref(), &self.shared.facts)
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

/// Why the command was not started.
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

fn result(ended: Ended, is_lost: bool) -> RunResult {
    let result = match ended {
        Ended::Exited(end) => RunResult::of_end(end),
        Ended::TimedOut => RunResult::new(RunOutcome::MaxHold, exit_code::TIMED_OUT),
        Ended::Lost => RunResult::new(RunOutcome::Lost, exit_code::LOST),
        Ended::WrapperGone => {
            RunResult::new(RunOutcome::Interrupted, exit_code::by_signal(Signal::KILL.as_raw()))
        }
    };
    if is_lost { RunResult::new(RunOutcome::Lost, result.code) } else { result }
}
