//! Where every bid of this client stands in the two stores, and what is known of its lease in the outer one.
//!
//! The layer above knows one place in one queue. Here a bid has one in each store: it waits in the inner queue, then in the outer one, and
//! keeps the inner lease meanwhile.
//!
//! Whether a lease is degraded is computed from two moments, and not switched on and off: two renewals may be under way at the same time, and
//! the one that was sent later counts, whichever ends later.

use std::collections::HashMap;
use std::time::Duration;

use crate::sync::Mutex;
use crate::time::clock::Moment;
use crate::types::owner::Token;

/// How many bids are remembered before those that are over by now are looked for.
const MANY: usize = 1_024;
/// How long a bid is remembered after it was last asked about, at least: longer than any pause between two requests of a waiter.
const LONG: Duration = Duration::from_secs(30);

/// One bid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// Its place in the inner queue.
    pub(super) inner: Option<u64>,
    /// Its place in the outer queue.
    pub(super) outer: Option<u64>,
    /// When the request was sent by which the outer store last showed that the lease is there.
    pub(super) proven: Option<Moment>,
    /// When the request was sent that was last gone on without.
    pub(super) missed: Option<Moment>,
    /// It was granted without the outer store, and stays degraded: what comes to be there later has fences of its own.
    pub(super) began_alone: bool,
    /// The outer store was asked to leave with this token, and did not answer. That request may still be executed, so the token is
    /// not asked with there again (rule 6 of waiting).
    pub(super) is_unusable: bool,
    /// Until then a request which the outer store did not answer may take the name there.
    pub(super) may_execute_until: Option<Moment>,
    /// The token of a ticket that it replaced inside alone: outside that one has the name.
    pub(super) replaced: Option<Token>,
    /// How long its lease lasts.
    pub(super) ttl: Duration,
}

impl Standing {
    pub(super) fn is_degraded(&self) -> bool {
        self.began_alone || self.missed > self.proven
    }
}

#[derive(Default)]
pub(super) struct Bids(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// Each with the moment after which nobody asks about it any more.
    standings: HashMap<Token, (Standing, Moment)>,
    /// How many there were after it was last looked which of them are over.
    living: usize,
}

impl Bids {
    pub(super) fn standing(&self, token: &Token) -> Standing {
        self.0.lock().standings.get(token).map(|(standing, _)| standing.clone()).unwrap_or_default()
    }

    /// Changes where a bid stands; one of which nothing is known is not remembered.
    pub(super) fn change(&self, token: &Token, now: Moment, change: impl FnOnce(&mut Standing)) {
        let mut known = self.0.lock();
        let mut standing =
            known.standings.get(token).map(|(standing, _)| standing.clone()).unwrap_or_default();
        change(&mut standing);
        if standing == Standing::default() {
            known.standings.remove(token);
            return;
        }
        // A lease that was lost is never given back, and would stay here.
        if known.standings.len() >= MANY.max(2 * known.living) {
            known.standings.retain(|_, (_, over)| now < *over);
            known.living = known.standings.len();
        }
        let over = now + (2 * standing.ttl).max(LONG);
        known.standings.insert(token.clone(), (standing, over));
    }

    /// The bid is over; returns where it stood.
    pub(super) fn end(&self, token: &Token) -> Standing {
        self.0.lock().standings.remove(token).map(|(standing, _)| standing).unwrap_or_default()
    }
}
