//! One attempt of this client to get a lease: whatever is asked again for it is asked with its token.
//!
//! A request that was never answered may be executed later, as a ghost, until the moment after which the store refuses it. So a bid
//! knows until when it is haunted; and when its token has come to a guard or to a ticket while a background task still asks with it,
//! the two share a [`Bond`], so that neither leaves with what the other has.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::core::claim::Claim;
use crate::core::deadlines::TimePair;
use crate::core::record::{Op, Wait};
use crate::engine::cohort::WaitingTask;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::time::clock::Moment;
use crate::types::owner::{Session, Token};
use crate::types::process::Home;

/// One attempt of this client to get a lease.
#[derive(Clone, Debug)]
pub(crate) struct Bid {
    pub(crate) token: Token,
    /// The process that it was begun in.
    pub(crate) home: Home,
    /// The task that it was begun for. A lease for another one is asked for by a new token.
    pub(crate) claim: Arc<Claim>,
    /// The highest fence that was seen on this name, or on one of its group, when it began.
    pub(crate) floor: u64,
    pub(crate) joined_at: Option<u64>,
    pub(crate) pair: Option<TimePair>,
    /// When a waiter is to ask again; `None` when it has not asked yet.
    pub(crate) due: Option<Moment>,
    /// The token of an earlier bid, which holds the name, and is to be replaced.
    pub(crate) replaces: Option<Token>,
    /// Until then a request that was never answered may still be executed.
    pub(crate) may_execute_until: Option<Moment>,
    /// What it was granted excludes fewer others than it was asked to.
    pub(crate) is_degraded: bool,
    /// Shared with the lease that comes of it, when a background task asks.
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

    /// The bid as a background task goes on with it.
    pub(crate) fn sought(mut self) -> Self {
        self.bond.get_or_insert_default();
        self
    }

    /// The request for a lease: the first, or a beat.
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

    /// Whether a lease for this bid is what that task asked for.
    pub(crate) fn serves(&self, task: &WaitingTask) -> bool {
        task.claim.is_served_by(&self.claim)
    }
}

/// What a background task and the lease that came of its bid tell each other.
#[derive(Debug, Default)]
pub(crate) struct Bond {
    /// A guard, or whoever has its ticket, has the token: nobody else may leave with it.
    is_kept: AtomicBool,
    /// The fence that it was granted with.
    fence: AtomicU64,
    may_execute_until: AtomicU64,
}

impl Bond {
    pub(crate) fn keep(&self, fence: u64) {
        self.fence.store(fence, Ordering::SeqCst);
        self.is_kept.store(true, Ordering::SeqCst);
    }

    /// The lease goes back to the store; returns until when a request of the background task may still be executed.
    pub(crate) fn let_go(&self) -> Option<Moment> {
        self.is_kept.store(false, Ordering::SeqCst);
        let may_execute_until = self.may_execute_until.load(Ordering::SeqCst);
        (may_execute_until > 0).then(|| Moment::from_micros(may_execute_until))
    }

    /// Whether a grant with this fence came after the one that is kept, which had ended by then.
    pub(crate) fn is_outlived_by(&self, fence: u64) -> bool {
        fence > self.fence.load(Ordering::SeqCst)
    }

    /// The background task ends; false when the bid is its to leave, and else the lease knows what haunts it. The order here and
    /// in `let_go` makes one of them see the other.
    pub(crate) fn pass_on(&self, may_execute_until: Option<Moment>) -> bool {
        let may_execute_until = may_execute_until.map_or(0, Moment::as_micros);
        self.may_execute_until.fetch_max(may_execute_until, Ordering::SeqCst);
        self.is_kept.load(Ordering::SeqCst)
    }
}

/// Wakes the background task: nobody waits any more, a push came, or the domain was closed.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    rung: Notify,
    is_granted: AtomicBool,
}

impl Alarm {
    pub(crate) fn ring(&self) {
        self.rung.notify_one();
    }

    /// The name was granted by a push: there is nothing left to seek.
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
