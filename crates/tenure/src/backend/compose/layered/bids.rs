//! How far every bid of this client got in the two stores, and what is known of its lease in the outer one.
//!
//! The layer above knows one position in one queue. Here a bid has one in each store: it waits in the inner queue, then in the outer one, and
//! keeps the inner lease meanwhile.
//!
//! Whether a lease is degraded follows from two moments and is not a switch: two renewals may be under way at the same time, and the one that
//! was sent later counts, whichever ends later.

use std::collections::HashMap;
use std::time::Duration;

use crate::sync::Mutex;
use crate::time::clock::Moment;
use crate::types::owner::Token;

/// How many bids are remembered before the table looks for those that are over.
const MANY: usize = 1_024;
/// How long a bid is remembered after its last change, at least: longer than any pause between two requests of a waiter.
const LONG: Duration = Duration::from_secs(30);

/// One bid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LayeredBid {
    /// When it joined the inner queue.
    pub(super) inner_joined_at: Option<u64>,
    /// When it joined the outer queue.
    pub(super) outer_joined_at: Option<u64>,
    /// When the client sent the last request that the outer store answered as the lease's holder.
    pub(super) proven: Option<Moment>,
    /// When the client sent the last renewal that succeeded without the outer store.
    pub(super) missed: Option<Moment>,
    /// The inner store granted it alone. It stays degraded: a grant that the outer store makes later has other fences.
    pub(super) began_alone: bool,
    /// The outer store did not answer a leave with this token. It may still execute that leave, so the client does not ask with the token
    /// there again (rule 6 of waiting).
    pub(super) is_unusable: bool,
    /// Until then the outer store may execute an unacknowledged request that takes the name.
    pub(super) may_execute_until: Option<Moment>,
    /// The token of a ticket that it replaced in the inner store only. In the outer one that token still has the name.
    pub(super) replaced: Option<Token>,
    /// How long its lease lasts.
    pub(super) ttl: Duration,
}

impl LayeredBid {
    pub(super) fn is_degraded(&self) -> bool {
        self.began_alone || self.missed > self.proven
    }
}

#[derive(Default)]
pub(super) struct LayeredBids(Mutex<Table>);

#[derive(Default)]
struct Table {
    /// Each with the moment after which it is forgotten.
    bids: HashMap<Token, (LayeredBid, Moment)>,
    /// How many were left when the table last dropped those that are over.
    kept: usize,
}

impl LayeredBids {
    pub(super) fn get(&self, token: &Token) -> LayeredBid {
        self.0.lock().bids.get(token).map(|(bid, _)| bid.clone()).unwrap_or_default()
    }

    /// Changes a bid; one without any facts is not stored.
    pub(super) fn change(&self, token: &Token, now: Moment, change: impl FnOnce(&mut LayeredBid)) {
        let mut table = self.0.lock();
        let mut bid = table.bids.get(token).map(|(bid, _)| bid.clone()).unwrap_or_default();
        change(&mut bid);
        if bid == LayeredBid::default() {
            table.bids.remove(token);
            return;
        }
        // Nobody gives a lost lease back, so its bid would stay here for ever.
        if table.bids.len() >= MANY.max(2 * table.kept) {
            table.bids.retain(|_, (_, over)| now < *over);
            table.kept = table.bids.len();
        }
        let over = now + (2 * bid.ttl).max(LONG);
        table.bids.insert(token.clone(), (bid, over));
    }

    /// Removes a bid that is over.
    pub(super) fn end(&self, token: &Token) -> LayeredBid {
        self.0.lock().bids.remove(token).map(|(bid, _)| bid).unwrap_or_default()
    }
}
