//! `tenure hold`: holds and renews a name for a script, as long as the script keeps the other end of stdin open.
//!
//! The kernel closes the pipe when the script ends, in any way. `hold` also watches it while it waits for the name, so that no waiter stays in the
//! queue for a dead script; but only after a while, so that `hold < /dev/null` acquires a free name.

use std::io::{self, Read as _};
use std::pin::pin;
use std::time::Duration;

use clap::Args;
use rustix::process::{Signal, getpid};
use rustix::termios::tcgetpgrp;
use serde::Serialize;
use tenure::{Domain as Store, Error, Guard, Release};
use tokio::sync::oneshot;

use super::give_back;
use super::obtain::{self, Obtained, TerminationSignals};
use super::on_domain;
use super::run::deadline::{self, CLOCK_CHECK, Moment, Plan};
use super::waiting::Wait;
use crate::args::{Domain, Format, Terms, VerbosityOptions, WaitOptions};
use crate::exit_code;
use crate::json;
use crate::output::{self, say, say_without_blocking};
use crate::stdout;
use crate::sys::{self, Mask};
use crate::text::{escaped, owner};

/// How long to ignore stdin while waiting.
const STDIN_COUNTS_AFTER: Duration = Duration::from_millis(500);

/// How often to retry a terminal that another process group has.
const BACKGROUND_NAP: Duration = Duration::from_millis(250);
/// How long the line may take to print after stdin was closed.
const LONGEST_LAST_WORD: Duration = Duration::from_millis(500);
const READER_STACK: usize = 64 * 1_024;

/// Hold NAME until stdin closes
#[derive(Debug, Args)]
pub(crate) struct Hold {
    #[command(flatten)]
    domain: Domain,

    #[command(flatten)]
    pub(crate) wait_options: WaitOptions,

    #[command(flatten)]
    terms: Terms,

    #[command(flatten)]
    verbosity: VerbosityOptions,

    #[command(flatten)]
    format: Format,

    /// What to hold: any text of up to 1,000 bytes
    name: String,
}

/// The line for programs.
#[derive(Serialize)]
struct Printed<'a> {
    name: &'a str,
    held: bool,
    fence: u64,
    waited_ms: u64,
}

/// Why the name is no longer held.
enum HoldEnd {
    StdinClosed,
    Signal(u8),
    /// The line could not be printed.
    Unheard(io::Error),
    Lost(String),
}

impl Hold {
    pub(crate) fn execute(&self) -> u8 {
        self.verbosity.take_effect();
        on_domain(&self.domain, async |domain| {
            let (mut signals, mut stdin) =
                match TerminationSignals::new().and_then(|signals| Ok((signals, watch_stdin()?))) {
                    Ok(watched) => watched,
                    Err(error) => {
                        output::refused_by_system(&error);
                        return Ok(exit_code::OS);
                    }
                };
            self.obtain_and_hold(domain, &mut signals, &mut stdin).await
        })
    }

    async fn obtain_and_hold(
        &self,
        domain: &Store,
        signals: &mut TerminationSignals,
        stdin: &mut oneshot::Receiver<()>,
    ) -> Result<u8, Error> {
        if domain.counts_sleep() {
            deadline::count_sleep();
        }
        let lock = self.terms.lock(domain, &self.name);
        let stdin_closed = async {
            tokio::time::sleep(STDIN_COUNTS_AFTER).await;
            let _ = (&mut *stdin).await;
            say(format_args!("stdin was closed before `{}` was acquired", escaped(&self.name)));
            self.wait_options.conflict_exit_code
        };
        let wait = Wait { domain, name: &self.name, lock: &lock, wait_options: &self.wait_options };
        let (guard, waited) = match obtain::obtain(&wait, &self.domain, signals, stdin_closed).await? {
            Obtained::Held { guard, waited } => (guard, waited),
            Obtained::Not(code) => return Ok(code),
        };
        let ended = tell_and_hold(self.line(&guard, waited), &guard, signals, stdin).await;
        Ok(match ended {
            HoldEnd::StdinClosed => self.give_back(guard, signals).await.unwrap_or(0),
            HoldEnd::Signal(code) => {
                self.give_back(guard, signals).await;
                code
            }
            HoldEnd::Unheard(refusal) => {
                let name = escaped(&self.name);
                say(format_args!("that `{name}` is held could not be written to stdout: {refusal}"));
                self.give_back(guard, signals).await;
                exit_code::IO
            }
            HoldEnd::Lost(why) => {
                // The script learns of it from the end of this process, and may still be at work. So the name is not given back.
                say_without_blocking(escaped(&why));
                exit_code::LOST
            }
        })
    }

    fn line(&self, guard: &Guard, waited: Duration) -> String {
        let fence = guard.fence().get();
        if self.format.json {
            json::to_line(&Printed { name: &self.name, held: true, fence, waited_ms: json::millis(waited) })
        } else {
            format!("held {} fence {fence}", escaped(&self.name))
        }
    }

    /// Gives the name back; returns the exit code if the lease had been lost.
    async fn give_back(&self, guard: Guard, signals: &mut TerminationSignals) -> Option<u8> {
        let name = escaped(guard.name());
        let had_ended = match give_back::give_back(guard, &self.domain, signals.next()).await? {
            Release::Released => return None,
            Release::Taken { by } => format!("and {} holds it now", owner(&by)),
            _ => "and nobody holds it now".to_owned(),
        };
        say(format_args!("lease on `{name}` had ended before it was given back, {had_ended}"));
        Some(exit_code::LOST)
    }
}

/// Resolves when stdin is at its end. Its thread may wait for as long as this process lives.
fn watch_stdin() -> io::Result<oneshot::Receiver<()>> {
    // Without this, the kernel would stop this process, and its renewals, for using a terminal from the background.
    Mask::of([Signal::TTIN, Signal::TTOU]).block();
    let (closed, is_closed) = oneshot::channel();
    std::thread::Builder::new().stack_size(READER_STACK).spawn(move || {
        let (mut stdin, mut ignored) = (io::stdin().lock(), [0; 4_096]);
        loop {
            match stdin.read(&mut ignored) {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if is_in_background() => std::thread::sleep(BACKGROUND_NAP),
                Ok(0) | Err(_) => break,
            }
        }
        let _ = closed.send(());
    })?;
    Ok(is_closed)
}

/// Whether stdin is a terminal of another foreground group: then it can't be read, but is not at its end.
fn is_in_background() -> bool {
    tcgetpgrp(io::stdin()).is_ok_and(|foreground| Some(foreground) != sys::group_of(getpid()))
}

/// Prints that the name is held, and holds it. It renews the lease even if nobody reads the line.
async fn tell_and_hold(
    line: String,
    guard: &Guard,
    signals: &mut TerminationSignals,
    stdin: &mut oneshot::Receiver<()>,
) -> HoldEnd {
    let mut printing = pin!(stdout::write_aside(line + "\n"));
    tokio::select! {
        biased;
        printed = &mut printing => match printed {
            Ok(()) => until_ended(guard, signals, stdin).await,
            Err(refusal) => HoldEnd::Unheard(refusal),
        },
        ended = until_ended(guard, signals, stdin) => match ended {
            // The line is printed even if stdin was at its end from the beginning.
            HoldEnd::StdinClosed => match tokio::time::timeout(LONGEST_LAST_WORD, printing).await {
                Ok(Err(refusal)) => HoldEnd::Unheard(refusal),
                _ => HoldEnd::StdinClosed,
            },
            ended => ended,
        },
    }
}

/// Holds until there is a reason to stop. The script must learn of a loss while it can still stop in time, so `hold` ends when `run` would send TERM:
/// when a quarter of the lease is left.
async fn until_ended(
    guard: &Guard,
    signals: &mut TerminationSignals,
    stdin: &mut oneshot::Receiver<()>,
) -> HoldEnd {
    let mut plan = Plan::new(Moment::now(), guard.remaining(), None);
    loop {
        let now = Moment::now();
        plan.update(now, guard.remaining());
        if now >= plan.term_at() {
            return HoldEnd::Lost(format!("lease on `{}` was not renewed in time", guard.name()));
        }
        tokio::select! {
            biased;
            loss = guard.lost() => return HoldEnd::Lost(loss.to_string()),
            signal = signals.next() => return HoldEnd::Signal(exit_code::by_signal(signal.as_raw())),
            _ = &mut *stdin => return HoldEnd::StdinClosed,
            () = tokio::time::sleep(plan.check_at(now).since(now).min(CLOCK_CHECK)) => {}
        }
    }
}
