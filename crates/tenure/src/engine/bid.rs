//! One attempt of this client to get a lease. All its requests carry the same token.
//!
//! The store may execute an unacknowledged request late, until the moment after which it refuses it: a bid knows that moment
//! (`may_execute_until`). If the token comes to a guard or a ticket while a background task still asks with it, the two share a [`Bond`], so
//! that neither gives back what the other has.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::core::claim::Claim;
use crate::core::deadlines::TimePair;
use crate::core::record::{Op, Wait};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::time::clock::Moment;
use crate::types::owner::{Session, Token};
use crate::types::process::Home;

/// One attempt of this client to get a lease.
#[derive(Clone, Debug)]
pub(crate) struct Bid {
    pub(crate) token: Token,
    /// The process that began it.
    pub(crate) home: Home,
    /// What it asks for. A task with another claim needs a new bid.
    pub(crate) claim: Arc<Claim>,
    /// The highest fence that the client had seen in the name's group when the bid began.
    pub(crate) floor: u64,
    pub(crate) joined_at: Option<u64>,
    pub(crate) pair: Option<TimePair>,
    /// When a waiter asks again; `None` before its first request.
    pub(crate) due: Option<Moment>,
    /// The token of an earlier bid that holds the name, which this one replaces.
    pub(crate) replaces: Option<Token>,
    /// Until then the store may still execute a request that it did not answer.
    pub(crate) may_execute_until: Option<Moment>,
    /// The lease excludes fewer others than the claim asked for.
    pub(crate) is_degraded: bool,
    /// Shared with the lease that it leads to, if a background task asks.
    pub(crate) bond: Option<Arc<Bond>>,
}

impl Bid {
    pub(crate) fn new(session: &Session, claim: Arc<Claim>, floor: u64) -> Self {
        let token = Token::fresh(session, &claim.label, claim.terms.ttl);
        Bid {
            token,
            home: session.home,
            claim,
            floor,
            joined_at: None,
            pair: None,
            due: None,
            replaces: None,
            may_execute_until: None,
            is_degraded: false,
            bond: None,
        }
    }

    /// The bid with a floor of at least this fence.
    pub(crate) fn above(mut self, fence: u64) -> Self {
        self.floor = self.floor.max(fence);
        self
    }

    /// The bid as a background task goes on with it.
    pub(crate) fn sought(mut self) -> Self {
        self.bond.get_or_insert_default();
        self
    }

    /// The request for a lease: the first, or a heartbeat.
    pub(crate) fn op(&self, waits: bool, polls: bool, not_after: u64) -> Op {
        let (token, ttl, floor) = (self.token.clone(), self.claim.terms.first_term(), self.floor);
        if let Some(from) = self.replaces.clone() {
            return Op::Adopt { from, token, ttl, floor, not_after };
        }
        let wait = match self.joined_at {
            _ if !waits => Wait::No,
            Some(joined_at) => Wait::Keep { joined_at },
            None => Wait::Join,
        };
        Op::Acquire { token, ttl, wait, polls, floor, not_after }
    }

    /// Whether a lease for this bid is what a task with that claim asked for.
    pub(crate) fn serves(&self, claim: &Arc<Claim>) -> bool {
        claim.is_served_by(&self.claim)
    }
}

/// What a background task shares with the lease that its bid led to.
#[derive(Debug, Default)]
pub(crate) struct Bond {
    /// A guard or a ticket has the token: the background task must not give it back.
    is_kept: AtomicBool,
    /// The fence of the grant.
    fence: AtomicU64,
    may_execute_until: AtomicU64,
}

impl Bond {
    pub(crate) fn keep(&self, fence: u64) {
        self.fence.store(fence, Ordering::SeqCst);
        self.is_kept.store(true, Ordering::SeqCst);
    }

    /// The lease goes back to the store. Returns until when the store may still execute a request of the background task.
    pub(crate) fn let_go(&self) -> Option<Moment> {
        self.is_kept.store(false, Ordering::SeqCst);
        let may_execute_until = self.may_execute_until.load(Ordering::SeqCst);
        (may_execute_until > 0).then(|| Moment::from_micros(may_execute_until))
    }

    /// Whether a grant with this fence came after the one that the guard has.
    pub(crate) fn is_outlived_by(&self, fence: u64) -> bool {
        fence > self.fence.load(Ordering::SeqCst)
    }

    /// The background task ends. If a guard has the token, the guard learns until when a request may execute; if not, returns false, and the
    /// background task gives the bid back. The order here and in `let_go` makes one of them see the other.
    pub(crate) fn pass_on(&self, may_execute_until: Option<Moment>) -> bool {
        let may_execute_until = may_execute_until.map_or(0, Moment::as_micros);
        self.may_execute_until.fetch_max(may_execute_until, Ordering::SeqCst);
        self.is_kept.load(Ordering::SeqCst)
    }
}

/// Wakes the background task: no task waits any more, a push came, or the domain was closed.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    rung: Notify,
    is_granted: AtomicBool,
}

impl Alarm {
    pub(crate) fn ring(&self) {
        self.rung.notify_one();
    }

    /// A push granted the name: there is nothing left to seek.
    pub(crate) fn ring_granted(&self) {
        self.is_granted.store(true, Ordering::SeqCst);
        self.ring();
    }

    pub(crate) fn is_granted(&self) -> bool {
        self.is_granted.load(Ordering::SeqCst)
    }

    pub(crate) async fn wait(&self) {
        self.rung.notified().await;
    }
}
