//! The process that keeps the lease and starts the command.
//!
//! A child of the [front](super::front), in a process group of its own, so that no terminal stops it, and the parent of the command, so that all
//! that the command starts stays below it. It outlives the front: when that is killed, it kills the command with all that came of it, and
//! gives the name back when nothing of it is left.

use std::io;
use std::os::unix::net::UnixStream;
use std::pin::pin;

use rustix::process::{Pid, Signal, setpgid};
use tenure::{Domain, Error};

use super::Run;
use super::child::Group;
use super::keeping;
use super::report::{Kind, Report, Verdict};
use super::signals::{self, Event, Events};
use super::tree;
use super::watch::Watch;
use crate::address::Source;
use crate::commands::obtain;
use crate::commands::waiting::{self, Outcome, Screen, Wait};
use crate::exit_code;
use crate::output;
use crate::sys::{self, Mask};

/// What the minder has from before it was forked off.
pub(crate) struct Minder<'a> {
    pub(crate) run: &'a Run,
    pub(crate) domain: Domain,
    /// Who named the domain.
    pub(crate) source: Source,
    pub(crate) report: &'a Report<'a>,
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
        let (report, watch) = (self.report, self.watch);
        let verdict = runtime.block_on(self.acquire_and_run());
        // The process ends here, and all that the runtime has with it.
        std::mem::forget(runtime);
        let verdict = verdict?;
        output::finish_speaking();
        report.write(&watch.facts, &verdict);
        Ok(verdict.code)
    }

    async fn acquire_and_run(self) -> io::Result<Verdict> {
        let mut events = Events::new(self.wire.try_clone()?, self.front)?;
        // From here on signals are events, also those that `tenure` was started with blocked: else the end of the command might not be heard.
        Mask::of(signals::forwarded().chain([Signal::CHILD])).unblock();
        // A terminal in `tostop` mode would stop this process for writing a message.
        Mask::of([Signal::TTOU]).block();

        let lock = self.run.terms.lock(&self.domain, &self.run.name);
        let wait =
            Wait { domain: &self.domain, name: &self.run.name, lock: &lock, patience: &self.run.patience };
        Ok(match self.acquire(&wait, &mut events).await {
            Ok(Ok(Outcome::Acquired(guard, waited))) => self.run(guard, waited, events).await,
            Ok(Ok(outcome)) => {
                // First, for stderr may be halted: a place that is kept holds up others.
                obtain::part(&wait, &self.run.domain, keeping::until_told_to_end(&mut events)).await;
                Verdict::refused(waiting::refused(&wait, &self.run.domain, &outcome), &outcome)
            }
            Ok(Err(error)) => {
                // What too few replicas, or too few servers, have acknowledged was taken all the same, and nobody wants it.
                obtain::part(&wait, &self.run.domain, keeping::until_told_to_end(&mut events)).await;
                self.failed(&error)
            }
            Err(Interrupted(signal)) => {
                obtain::part(&wait, &self.run.domain, keeping::until_told_to_end(&mut events)).await;
                Verdict::new(Kind::Interrupted, exit_code::by_signal(signal.as_raw()))
            }
        })
    }

    /// Waits for the name as long as was asked for, and until a signal that would end a process.
    async fn acquire(
        &self,
        wait: &Wait<'_>,
        events: &mut Events,
    ) -> Result<Result<Outcome, Error>, Interrupted> {
        let screen = Screen::new(sys::group_of(self.front));
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
                        Signal::CONT => {
                            screen.resume();
                            events.resume_front();
                        }
                        Signal::WINCH => screen.redraw(),
                        signal => return Err(Interrupted(signal)),
                    },
                    Event::Child => {}
                },
                outcome = &mut acquiring => return Ok(outcome),
            }
        }
    }

    pub(crate) fn failed(&self, error: &Error) -> Verdict {
        let code = exit_code::of_error(error);
        output::failed(code, self.source.blamed(error));
        Verdict::failed(code)
    }
}

/// A signal came before the name was acquired.
struct Interrupted(Signal);

/// A panic must not pass for the exit of a command: the front takes an abort for the death of its minder.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}
