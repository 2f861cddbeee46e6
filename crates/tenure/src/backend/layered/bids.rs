//! Where every bid of this client stands: in which queue, at which place, or held without the outer store.
//!
//! The layer above knows one place in one queue. Here a bid has one in each store: it waits in the inner queue, then in the outer one, and
//! keeps the inner lease meanwhile.

use std::collections::HashMap;

use crate::owner::Token;
use crate::sync::Mutex;

/// How many bids are remembered before those that nobody asked about for long are forgotten.
const MANY: usize = 1_024;

/// One bid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// Its place in the inner queue.
    pub(super) inner: Option<u64>,
    /// Its place in the outer queue.
    pub(super) outer: Option<u64>,
    /// It is held without the outer store.
    pub(super) is_degraded: bool,
    /// Counts the changes, so that old ones can be told.
    touched: u64,
}

#[derive(Default)]
pub(super) struct Bids(Mutex<Known>);

#[derive(Default)]
struct Known {
    standings: HashMap<Token, Standing>,
    changes: u64,
}

impl Bids {
    pub(super) fn standing(&self, token: &Token) -> Standing {
        self.0.lock().standings.get(token).copied().unwrap_or_default()
    }

    pub(super) fn is_degraded(&self, token: &Token) -> bool {
        self.standing(token).is_degraded
    }

    /// Changes where a bid stands; one that stands nowhere in particular is not remembered.
    pub(super) fn change(&self, token: &Token, change: impl FnOnce(&mut Standing)) {
        let mut known = self.0.lock();
        known.changes += 1;
        let touched = known.changes;
        let mut standing = known.standings.remove(token).unwrap_or_default();
        change(&mut standing);
        standing.touched = 0;
        if standing != Standing::default() {
            // A lease that was lost is never given back, and would stay here.
            if known.standings.len() >= MANY {
                let oldest = touched.saturating_sub(MANY as u64 * 8);
                known.standings.retain(|_, standing| standing.touched > oldest);
            }
            known.standings.insert(token.clone(), Standing { touched, ..standing });
        }
    }

    /// The bid is over; returns where it stood.
    pub(super) fn end(&self, token: &Token) -> Standing {
        self.0.lock().standings.remove(token).unwrap_or_default()
    }
}
