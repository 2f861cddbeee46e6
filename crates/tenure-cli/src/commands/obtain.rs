//! Waiting for a name on behalf of a script, for `acquire` and `hold`. `run` does the same in its holder process, which gets signals from the wrapper.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use rustix::process::{Signal, getpid};
use tenure::{Error, Guard};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use super::give_back::LONGEST_OUTAGE;
use super::waiting::{self, Screen, Wait, WaitResult};
use crate::args;
use crate::exit_code;
use crate::output::{self, say_in_background};
use crate::sys;
use crate::text::{escaped, rough};

/// How long to try to leave the queue before a message says so.
const LONGEST_FAREWELL: Duration = Duration::from_secs(2);

/// The result of a wait.
pub(crate) enum Obtained {
    /// The name is held.
    Held { guard: Guard, waited: Duration },
    /// It is not held, and a message says why; the exit code.
    Not(u8),
}

/// Waits for the name until the limit, until a signal, or until `reason` resolves with an exit code.
pub(crate) async fn obtain(
    wait: &Wait<'_>,
    asked: &args::Domain,
    signals: &mut TerminationSignals,
    reason: impl Future<Output = u8>,
) -> Result<Obtained, Error> {
    let screen = Screen::new(sys::group_of(getpid()));
    let outcome = tokio::select! {
        biased;
        outcome = wait.acquire(&screen) => outcome,
        never = screen.obey_stops() => match never {},
        signal = signals.next() => {
            leave(wait, asked, signals.next()).await;
            return Ok(Obtained::Not(exit_code::by_signal(signal.as_raw())));
        }
        code = reason => {
            leave(wait, asked, signals.next()).await;
            return Ok(Obtained::Not(code));
        }
    };
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => {
            // If too few replicas or servers acknowledged it, the store may still have granted the name.
            leave(wait, asked, signals.next()).await;
            return Err(error);
        }
    };
    match outcome {
        WaitResult::Acquired(guard, waited) => {
            output::acquired(&guard, waited);
            Ok(Obtained::Held { guard, waited })
        }
        outcome => {
            // Before the message: stderr may block, and a waiter that stays in the queue delays others.
            leave(wait, asked, signals.next()).await;
            Ok(Obtained::Not(waiting::refused(wait, asked, &outcome)))
        }
    }
}

/// Leaves the queue, and undoes in the store what was dropped. A store that hangs forgets a waiter by itself. But a request that it may have executed
/// can hold the name for a whole ttl, so `tenure` tries longer to undo that, until `interrupted` resolves, and says so.
pub(crate) async fn leave(wait: &Wait<'_>, asked: &args::Domain, interrupted: impl Future) {
    let Wait { domain, name, .. } = wait;
    let mut closed = pin!(domain.close());
    if tokio::time::timeout(LONGEST_FAREWELL, &mut closed).await.is_ok() || domain.left_in_store().is_zero() {
        return;
    }
    say_in_background(format_args!(
        "the store may have executed a request for `{}`; trying to undo it for up to {}",
        escaped(name),
        rough(LONGEST_OUTAGE),
    ));
    tokio::select! {
        _ = tokio::time::timeout(LONGEST_OUTAGE - LONGEST_FAREWELL, closed) => {}
        _ = interrupted => {}
    }
    let left = domain.left_in_store();
    if !left.is_zero() {
        output::not_undone(name, asked, left);
    }
}

/// The signals that ask a process to end, except those that it was started to ignore.
pub(crate) struct TerminationSignals(Vec<(Signal, Stream)>);

impl TerminationSignals {
    pub(crate) fn new() -> io::Result<Self> {
        let stream = |number: Signal| Ok((number, signal(SignalKind::from_raw(number.as_raw()))?));
        sys::termination_signals().map(stream).collect::<io::Result<_>>().map(TerminationSignals)
    }

    /// The next one. Dropping the future loses none.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            let came = self
                .0
                .iter_mut()
                .find_map(|(signal, stream)| stream.poll_recv(cx).is_ready().then_some(*signal));
            came.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}
