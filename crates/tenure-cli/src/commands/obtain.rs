//! Waiting for a name on behalf of a script: what `acquire` and `hold` share. `run` does the same in its holder, which hears of signals from
//! its wrapper.

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

/// How long to try to leave the queue, or to give back what nobody wants any more.
const LONGEST_FAREWELL: Duration = Duration::from_secs(2);

/// What became of it.
pub(crate) enum Obtained {
    /// The name is held.
    Held { guard: Guard, waited: Duration },
    /// It is not, and that has been told; the exit code.
    Not(u8),
}

/// Waits for the name as long as was asked for, until a signal, and until there is another reason to give up, which is an exit code.
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
            // What too few replicas, or too few servers, have acknowledged was taken all the same, and nobody wants it.
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
            // First, for stderr may be halted: a place that is kept holds up others.
            leave(wait, asked, signals.next()).await;
            Ok(Obtained::Not(waiting::refused(wait, asked, &outcome)))
        }
    }
}

/// Waits until what was dropped is undone in the store. A place in the queue of a store that hangs is forgotten there; but a request that may have
/// been executed may hold the name for a whole ttl: that is tried for longer, until `interrupted` resolves, and told.
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

/// The signals that ask a process to end, but for those that it was started to ignore.
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
