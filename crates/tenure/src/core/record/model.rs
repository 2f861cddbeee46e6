//! The whole protocol in small worlds, explored to the end: the real [`Record`](super::Record) and the real
//! [`Deadlines`](crate::core::deadlines::Deadlines), with clients, a network and faults around them.
//!
//! Two or three clients; every message is delivered at any time after it was sent, in any order, twice, or never; clients crash, are
//! paused with a grant in flight, and give up at any point. In every world that can be reached: no two clients believe that they
//! hold the name (S1), nobody believes what the store does not know (I2), fences of critical sections grow (I3), a token that its
//! client has done with stays gone (I5), and, once nothing fails any more, every living waiter gets the name and the record empties.
//!
//! Nobody uses force in these worlds, so what a record remembers of it, and only shows, is no part of their states.
//!
//! A model that can't find a mistake proves nothing, so it has teeth: each of a list of mistakes, in the client or in the store,
//! must be found. The explorer is our own, because it has to drive the code that ships and needs no more than that.
//! `TENURE_MODEL=large` explores larger worlds.

use std::time::Duration;

mod client;
mod explore;
mod fingerprint;
mod world;

use explore::explore;
use world::{Budget, Violation};

const LAPSE: Duration = Duration::from_micros(1_500_000);

/// A mistake that the model must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// The deadline counts from when the answer came.
    ReceiveBasedDeadline,
    /// A renewal sets the expiry even if it gets earlier.
    ShorteningRenewal,
    /// The next attempt goes by the token of the last one.
    ReusedToken,
    /// The store executes an acquire whose client has given up on it long ago.
    NoNotAfter,
    /// The client leaves once, although an acquire that was never answered may still be executed.
    LeavesOnce,
    /// A grant that lay in the socket of a paused client is believed from when it is read.
    PushBelievedFromReceipt,
    /// Waiters rely on being told.
    NoBeats,
    /// The fence is the time, and nothing else.
    FenceByClockAlone,
}

/// A world to explore: how many clients and attempts, what may go wrong, and how long is too long.
#[derive(Debug)]
struct Scope {
    clients: u8,
    attempts: u8,
    tick: Duration,
    budget: Budget,
    renews_longer: bool,
    /// How much longer than a beat every waiter pauses, as if many others were ahead of it.
    pause: Duration,
    /// From one in so many worlds it is tried whether everybody gets the name.
    continue_one_in: u64,
    /// How long that may take, and how much longer for each client that crashed.
    patience: Duration,
    patience_per_crash: Duration,
    flaw: Option<Flaw>,
}

impl Budget {
    const NONE: Budget = Budget { unanswered: 0, duplicates: 0, crashes: 0, cancels: 0, set_backs: 0 };
    const UNANSWERED: Budget = Budget { unanswered: 1, ..Budget::NONE };
}

/// Two clients that want the name once. Ticks are a fraction of every time that the protocol knows.
const TWO: Scope = Scope {
    clients: 2,
    attempts: 1,
    tick: Duration::from_millis(250),
    budget: Budget::NONE,
    renews_longer: false,
    pause: Duration::ZERO,
    continue_one_in: 16,
    patience: Duration::from_millis(2_000),
    patience_per_crash: Duration::from_millis(1_000),
    flaw: None,
};
/// Coarse ticks make room for more clients, attempts and faults.
const COARSE: Scope = Scope { tick: Duration::from_millis(500), ..TWO };

/// Explores a scope to its end, and finds nothing.
fn holds(scope: &'static Scope) {
    let found = explore(scope, None);
    println!(
        "{} worlds, {} steps between them, {} continued to the end; {} clients, {} attempts, {:?}",
        found.worlds, found.steps, found.continued, scope.clients, scope.attempts, scope.budget
    );
    if let Some((violation, way)) = found.violation {
        panic!("{violation:?} after {} steps: {way:?}", way.len());
    }
}

/// Explores a scope with a flaw, and finds what it leads to.
fn bites(scope: &'static Scope, violation: Violation) {
    let found = explore(scope, Some(violation));
    let (_, way) = found
        .violation
        .unwrap_or_else(|| panic!("{:?} was not found in {} worlds", scope.flaw, found.worlds));
    println!(
        "{:?}: {violation:?} after {} steps, found in {} worlds: {way:?}",
        scope.flaw,
        way.len(),
        found.worlds
    );
}

fn is_large() -> bool {
    std::env::var("TENURE_MODEL").is_ok_and(|size| size == "large")
}

mod teeth;
mod worlds;
