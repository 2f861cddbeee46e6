//! The process that keeps the lease and starts the command.
//!
//! A child of the [front](super::front), in a process group of its own, so that no terminal stops it, and the parent of the command, so that all
//! that the command starts stays below it. It outlives the front: when that is killed, it kills the command with all that came of it, and
//! gives the name back when nothing of it is left.

use std::io;
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpgid, setpgid};
use tenure::{Domain, Error, Guard, Release};

use super::Run;
use super::child::{Child, Group};
use super::deadline::{Moment, Plan, Watch};
use super::environment;
use super::holding::{Ended, Holding};
use super::signals::{Event, Events};
use super::tree;
use crate::address::Source;
use crate::commands::waiting::{self, Outcome, Screen, Wait};
use crate::exit_code;
use crate::output::{self, say, say_more};
use crate::sys::Mask;
use crate::text::{escaped, rough};

/// How long to try to leave the queue.
const LONGEST_FAREWELL: Duration = Duration::from_secs(2);
/// How long to ask what is wrong with a store.
const LONGEST_QUESTION: Duration = Duration::from_millis(500);

/// What the minder has from before it was forked off.
pub(crate) struct Minder<'a> {
    pub(crate) run: &'a Run,
    pub(crate) domain: Domain,
    /// Who named the domain.
    pub(crate) source: Source,
    pub(crate) front: Pid,
    pub(crate) wire: UnixStream,
    pub(crate) watch: &'static Watch,
    /// Where the command is to run.
    pub(crate) group: Group,
    /// What `tenure` was started with, and the command is.
    pub(crate) mask: Mask,
}

impl Minder<'_> {
    /// Does all of it; returns the exit code.
    pub(crate) fn mind(self) -> io::Result<u8> {
        let _abort = AbortOnPanic;
        setpgid(None, None)?;
        tree::adopt_orphans()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let code = runtime.block_on(self.acquire_and_run());
        // The process ends here, and all that the runtime has with it.
        std::mem::forget(runtime);
        code
    }

    async fn acquire_and_run(self) -> io::Result<u8> {
        let mut events = Events::new(self.wire.try_clone()?)?;
        // From here on signals are events. A terminal in `tostop` mode would stop this process for writing a message.
        self.mask.set();
        Mask::of([Signal::TTOU]).block();

        let lock = self.run.terms.lock(&self.domain, &self.run.name);
        let wait =
            Wait { domain: &self.domain, name: &self.run.name, lock: &lock, patience: &self.run.patience };
        Ok(match self.acquire(&wait, &mut events).await {
            Ok(Ok(Outcome::Acquired(guard, waited))) => self.run(guard, waited, events).await,
            Ok(Ok(outcome)) => {
                // First, for stderr may be halted: a place that is kept holds up others.
                self.leave_queue().await;
                waiting::refused(&wait, &self.run.domain, &outcome)
            }
            Ok(Err(error)) => self.failed(&error),
            Err(Interrupted(signal)) => {
                self.leave_queue().await;
                exit_code::by_signal(signal.as_raw())
            }
        })
    }

    /// Waits for the name as long as was asked for, and until a signal that would end a process.
    async fn acquire(
        &self,
        wait: &Wait<'_>,
        events: &mut Events,
    ) -> Result<Result<Outcome, Error>, Interrupted> {
        let screen = Screen::new(getpgid(Some(self.front)).unwrap_or(self.front));
        let mut acquiring = pin!(wait.acquire(&screen));
        loop {
            tokio::select! {
                biased;
                event = events.next() => match event {
                    Event::FrontGone => return Err(Interrupted(Signal::KILL)),
                    Event::Signal(relayed) => match relayed.signal {
                        Signal::TSTP => {
                            screen.pause();
                            events.suspend_front();
                        }
                        Signal::CONT => screen.resume(),
                        Signal::WINCH => screen.redraw(),
                        signal => return Err(Interrupted(signal)),
                    },
                    Event::Child => {}
                },
                outcome = &mut acquiring => return Ok(outcome),
            }
        }
    }

    /// What was left in the queue is taken back in the background, and waited for here; a store that hangs forgets it by itself.
    async fn leave_queue(&self) {
        let _ = tokio::time::timeout(LONGEST_FAREWELL, self.domain.close()).await;
    }

    /// Runs the command under the lease, and gives it back.
    async fn run(self, guard: Guard, waited: Duration, events: Events) -> u8 {
        let acquired = Instant::now();
        // Before the command starts, so that there is no moment in which nobody would stop it.
        let plan = Plan::new(Moment::now(), guard.remaining());
        self.watch.follow(&plan);
        say_more(format_args!(
            "acquired `{}` with fence {}, after {}",
            escaped(guard.name()),
            guard.fence(),
            rough(waited)
        ));
        let child = match self.start(&guard, waited, &events).await {
            Ok(child) => child,
            Err(code) => {
                self.watch.rest();
                give_back(guard, acquired).await;
                return code;
            }
        };
        let holding = Holding::new(child, events, &guard, plan, self.watch, self.front);
        match holding.until_ended().await {
            Ended::Exited(code) => give_back(guard, acquired).await.unwrap_or(code),
            Ended::Lost => {
                self.tell_of_store().await;
                exit_code::LOST
            }
            Ended::FrontGone => {
                give_back(guard, acquired).await;
                exit_code::by_signal(Signal::KILL.as_raw())
            }
        }
    }

    /// Says what is wrong with the store, if anything still is: that may be why a lease was not renewed. Nothing runs any more that had to wait.
    async fn tell_of_store(&self) {
        if let Ok(Err(error)) = tokio::time::timeout(LONGEST_QUESTION, self.domain.health()).await {
            say(self.source.blamed(&error));
        }
    }

    async fn start(&self, guard: &Guard, waited: Duration, events: &Events) -> Result<Child, u8> {
        let lifeline = self.domain.lifeline().await.map_err(|error| self.failed(&error))?;
        if let Some(lifeline) = &lifeline {
            events.give_lifeline(lifeline);
        }
        let environment = environment::of_command(self.run, self.source, guard.fence(), waited);
        Child::start(self.run, environment, self.group, self.mask, lifeline.as_ref()).map_err(|error| {
            output::not_started(&self.run.command[0].to_string_lossy(), &error);
            exit_code::of_start(&error)
        })
    }

    fn failed(&self, error: &Error) -> u8 {
        let code = exit_code::of_error(error);
        output::failed(code, self.source.blamed(error));
        code
    }
}

/// A signal came before the name was acquired.
struct Interrupted(Signal);

/// Gives the name back; the exit code for a lease that turns out to have been lost.
async fn give_back(guard: Guard, acquired: Instant) -> Option<u8> {
    let name = escaped(guard.name());
    let held = acquired.elapsed();
    let had_ended = match guard.release().await {
        Ok(Release::Done) => {
            say_more(format_args!("gave `{name}` back, held for {}", rough(held)));
            return None;
        }
        Ok(Release::Taken { by }) => format!("and {} holds it now", escaped(&by.to_string())),
        Ok(_) => "and nobody holds it now".to_owned(),
        Err(returned) => {
            let error = escaped(&returned.error.to_string());
            say(format_args!(
                "`{name}` could not be given back, and is free when its lease has ended: {error}"
            ));
            return None;
        }
    };
    say(format_args!("lease on `{name}` had ended before the command was done, {had_ended}"));
    Some(exit_code::LOST)
}

/// A panic must not pass for the exit of a command: the front takes an abort for the death of its minder.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}
