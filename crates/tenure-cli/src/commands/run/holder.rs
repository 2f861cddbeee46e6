//! The process that holds the lease and starts the command.
//!
//! It is a child of the [wrapper](super::wrapper) in its own process group, so that no terminal stops it. It is the parent of the command, so that
//! everything that the command starts stays below it. If the wrapper is killed, the holder kills the command and its descendants, and gives the
//! name back when none is left.

use std::io;
use std::os::unix::net::UnixStream;
use std::pin::pin;

use rustix::process::{Pid, Signal, setpgid};
use tenure::{Domain, Error};

use super::Run;
use super::child::Group;
use super::min_hold;
use super::process_tree;
use super::report::{Report, RunOutcome, RunResult};
use super::shared::SharedState;
use super::signals::{self, Events, RunEvent};
use crate::address::Source;
use crate::commands::obtain;
use crate::commands::waiting::{self, Screen, Wait, WaitResult};
use crate::exit_code;
use crate::output;
use crate::sys::{self, Mask};

/// What the holder has from before the fork.
pub(crate) struct HolderProcess<'a> {
    pub(crate) run: &'a Run,
    pub(crate) domain: Domain,
    /// Where the URL came from.
    pub(crate) source: Source,
    pub(crate) report: &'a Report<'a>,
    pub(crate) wrapper: Pid,
    pub(crate) wire: UnixStream,
    pub(crate) shared: &'static SharedState,
    /// The process group for the command.
    pub(crate) group: Group,
    /// The signal mask that `tenure` was started with. The command gets it.
    pub(crate) mask: Mask,
}

impl HolderProcess<'_> {
    /// Acquires the name and runs the command; returns the exit code.
    pub(crate) fn execute(self) -> io::Result<u8> {
        let _abort = AbortOnPanic;
        setpgid(None, None)?;
        process_tree::adopt_orphans()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (report, shared) = (self.report, self.shared);
        let result = runtime.block_on(self.acquire_and_run());
        // The process ends here: there is no need to wait for the runtime's threads.
        std::mem::forget(runtime);
        let result = result?;
        output::flush_messages();
        report.write(&shared.facts, &result);
        Ok(result.code)
    }

    async fn acquire_and_run(self) -> io::Result<RunResult> {
        let mut events = Events::new(self.wire.try_clone()?, self.wrapper)?;
        // From here on signals are events. Blocked signals are unblocked, too: SIGCHLD tells that the command has ended.
        Mask::of(signals::forwarded().chain([Signal::CHILD])).unblock();
        // A terminal in `tostop` mode would stop this process for writing a message.
        Mask::of([Signal::TTOU]).block();

        let lock = self.run.terms.lock(&self.domain, &self.run.name);
        let wait = Wait {
            domain: &self.domain,
            name: &self.run.name,
            lock: &lock,
            wait_options: &self.run.wait_options,
        };
        Ok(match self.acquire(&wait, &mut events).await {
            Ok(Ok(WaitResult::Acquired(guard, waited))) => self.run(guard, waited, events).await,
            Ok(Ok(outcome)) => {
                // Before the message: stderr may block, and a waiter that stays in the queue delays others.
                obtain::leave(&wait, &self.run.domain, min_hold::until_told_to_end(&mut events)).await;
                RunResult::refused(waiting::refused(&wait, &self.run.domain, &outcome), &outcome)
            }
            Ok(Err(error)) => {
                // If too few replicas or servers acknowledged it, the store may still have granted the name.
                obtain::leave(&wait, &self.run.domain, min_hold::until_told_to_end(&mut events)).await;
                self.failed(&error)
            }
            Err(Interrupted(signal)) => {
                obtain::leave(&wait, &self.run.domain, min_hold::until_told_to_end(&mut events)).await;
                RunResult::new(RunOutcome::Interrupted, exit_code::by_signal(signal.as_raw()))
            }
        })
    }

    /// Waits for the name until the limit, or until a signal that would end a process.
    async fn acquire(
        &self,
        wait: &Wait<'_>,
        events: &mut Events,
    ) -> Result<Result<WaitResult, Error>, Interrupted> {
        let screen = Screen::new(sys::group_of(self.wrapper));
        let mut acquiring = pin!(wait.acquire(&screen));
        loop {
            tokio::select! {
                biased;
                event = events.next() => match event {
                    RunEvent::WrapperGone => return Err(Interrupted(Signal::KILL)),
                    RunEvent::Signal(relayed) => match relayed.signal {
                        Signal::TSTP => {
                            screen.pause();
                            events.suspend_wrapper();
                        }
                        Signal::CONT => {
                            screen.resume();
                            events.resume_wrapper();
                        }
                        Signal::WINCH => screen.redraw(),
                        signal => return Err(Interrupted(signal)),
                    },
                    RunEvent::Child => {}
                },
                outcome = &mut acquiring => return Ok(outcome),
            }
        }
    }

    pub(crate) fn failed(&self, error: &Error) -> RunResult {
        let code = exit_code::of_error(error);
        output::failed(code, self.source.blamed(error));
        RunResult::failed(code)
    }
}

/// A signal came before the name was acquired.
struct Interrupted(Signal);

/// Turns a panic into an abort. The exit code of a panic would look like that of the command; an abort tells the wrapper that its holder died.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}
