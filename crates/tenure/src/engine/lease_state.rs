//! A held lease, seen by the task whose turn it is.
//!
//! The tasks of one process take turns on a lease. [`SharedLease`] has what belongs to the lease (its deadline, its loss), [`Turn`] what
//! belongs to one turn (its fence, its start). Asking costs a look at the clock and two atomics: no lock, no I/O. If it can't be proved that
//! the lease is held, the answer is "not held" (I4).

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;

use crate::engine::bid::{Bid, Bond};
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use crate::time::clock::{Clock, Moment};
use crate::types::fence::Fence;
use crate::types::loss::{Loss, LossKind};
use crate::types::name::Name;
use crate::types::owner::Token;
use crate::types::process::{AtHome, Home};

/// No fence: it is nobody's turn.
const NOBODY: u64 = 0;
/// Set in the turn of a task that gave its turn back after the lease was lost. Fences are smaller.
const LOST: u64 = 1 << 63;

/// The part of a lease that its holder looks at, and the keeper writes.
#[derive(Debug)]
pub(crate) struct SharedLease {
    pub(crate) name: Name,
    pub(crate) token: Token,
    /// What a request for it asks for at most.
    pub(crate) term: Duration,
    /// The process that has it; a forked child has a copy, and not the lease.
    home: Home,
    /// Until then the store may still execute a request for it that it did not answer.
    may_execute_until: Option<Moment>,
    bond: Option<Arc<Bond>>,
    pub(crate) clock: Clock,
    /// Believed until then, in µs of the clock.
    deadline: AtomicU64,
    /// The store has it until then at most, in µs of the clock, as far as requests were answered.
    in_store_until: AtomicU64,
    /// How many renewals the store has not answered since its last answer, and may execute.
    open_renewals: AtomicUsize,
    /// The fence of the task whose turn it is.
    turn: AtomicU64,
    /// The last renewal was not answered.
    unanswered: AtomicBool,
    /// A part of a layered store is out of reach.
    degraded: AtomicU64,
    /// Boxed, because few of many leases are lost.
    loss: OnceLock<Box<Loss>>,
    /// How many tasks wait for its loss. Most turns end without any, and then wake nobody.
    watchers: AtomicUsize,
    changed: Notify,
}

impl SharedLease {
    pub(crate) fn new(name: Name, bid: &Bid, fence: u64, clock: Clock, deadline: Moment) -> Self {
        if let Some(bond) = &bid.bond {
            bond.keep(fence);
        }
        let term = bid.claim.terms.first_term();
        let in_store_until = clock.now() + term;
        SharedLease {
            name,
            token: bid.token.clone(),
            term,
            home: bid.home,
            may_execute_until: bid.may_execute_until,
            bond: bid.bond.clone(),
            clock,
            deadline: AtomicU64::new(deadline.as_micros()),
            in_store_until: AtomicU64::new(in_store_until.as_micros()),
            open_renewals: AtomicUsize::new(0),
            turn: AtomicU64::new(NOBODY),
            unanswered: AtomicBool::new(false),
            degraded: AtomicU64::new(u64::from(bid.is_degraded)),
            loss: OnceLock::new(),
            watchers: AtomicUsize::new(0),
            changed: Notify::new(),
        }
    }

    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_micros(self.deadline.load(Ordering::Acquire))
    }

    /// Moves the deadline, unless the lease was lost before.
    pub(crate) fn set_deadline(&self, deadline: Moment) {
        self.deadline.store(deadline.as_micros(), Ordering::Release);
    }

    /// A renewal is about to be sent.
    pub(crate) fn renewal_sent(&self) {
        self.open_renewals.fetch_add(1, Ordering::AcqRel);
    }

    /// The store answered a renewal that asked for this term.
    pub(crate) fn renewal_answered(&self, term: Duration) {
        let until = self.clock.now() + term;
        self.in_store_until.fetch_max(until.as_micros(), Ordering::AcqRel);
        self.open_renewals.store(0, Ordering::Release);
    }

    /// A renewal was not executed, and never will be.
    pub(crate) fn renewal_not_executed(&self) {
        let less = |open: usize| open.checked_sub(1);
        let _ = self.open_renewals.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }

    /// Until when the store may have the lease at most, which is longer than its holder believes in it. The store may execute a renewal that
    /// it has not answered at this very moment.
    pub(crate) fn in_store_until(&self) -> Moment {
        let known = Moment::from_micros(self.in_store_until.load(Ordering::Acquire));
        match self.open_renewals.load(Ordering::Acquire) {
            0 => known,
            _ => known.max(self.clock.now() + self.term),
        }
    }

    /// How long the store may have it at most from now on; zero when the store said that it has not.
    pub(crate) fn left_in_store(&self) -> Duration {
        match self.loss.get().map(|loss| loss.kind()) {
            Some(LossKind::Taken { .. } | LossKind::Gone) => Duration::ZERO,
            _ => self.in_store_until().since(self.clock.now()),
        }
    }

    /// The lease goes back to the store. Returns until when the store may still execute a request for it.
    pub(crate) fn let_go(&self) -> Option<Moment> {
        self.may_execute_until.max(self.bond.as_ref().and_then(|bond| bond.let_go()))
    }

    /// Whether the client may have asked for it more than once: then a second grant may be on its way.
    pub(crate) fn may_be_pushed(&self) -> bool {
        self.bond.is_some() || self.may_execute_until.is_some()
    }

    /// Enters what the answer to a renewal says. Of two at the same time the one that was sent later decides, in whatever order they are
    /// entered: so the moment of sending is the higher part of the number.
    pub(crate) fn set_degraded(&self, is_degraded: bool, sent: Moment) {
        self.degraded.fetch_max(sent.as_micros() << 1 | u64::from(is_degraded), Ordering::AcqRel);
    }

    pub(crate) fn is_degraded(&self) -> bool {
        self.degraded.load(Ordering::Acquire) & 1 == 1
    }

    pub(crate) fn set_unanswered(&self, unanswered: bool) {
        self.unanswered.store(unanswered, Ordering::Release);
    }

    /// Ends the lease; the first reason stays. [`tell`](Self::tell) wakes the tasks that wait for the loss.
    pub(crate) fn lose(&self, kind: LossKind) -> &Loss {
        self.loss.get_or_init(|| Box::new(Loss::new(self.name.clone(), kind)))
    }

    /// Wakes the tasks that wait for the loss.
    pub(crate) fn tell(&self) {
        // The loss was entered before this, and a watcher is counted before it looks for the loss: one of them sees the other.
        fence(Ordering::SeqCst);
        self.wake_watchers();
    }

    fn wake_watchers(&self) {
        if self.watchers.load(Ordering::SeqCst) > 0 {
            self.changed.notify_waiters();
        }
    }

    /// The loss, if the lease was lost or its deadline is past.
    pub(crate) fn loss(&self) -> Option<&Loss> {
        self.loss_at(self.clock.now())
    }

    /// The same for a caller that has looked at the clock.
    pub(crate) fn loss_at(&self, now: Moment) -> Option<&Loss> {
        if self.loss.get().is_none() && now >= self.deadline() {
            let unanswered = self.unanswered.load(Ordering::Acquire);
            self.lose(if unanswered { LossKind::Unreachable } else { LossKind::Expired });
        }
        self.loss.get().map(|loss| &**loss)
    }

    /// Whether the store still has it, as far as this client knows. Closing a domain takes nothing from the store.
    pub(crate) fn is_in_store(&self) -> bool {
        let now = self.clock.now();
        self.loss_at(now).is_none_or(|loss| *loss.kind() == LossKind::Closed) && now < self.deadline()
    }
}

/// One task's turn on a lease. It is over when the lease is at another fence.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) lease: Arc<SharedLease>,
    pub(crate) fence: Fence,
    pub(crate) started: Moment,
}

impl Turn {
    pub(crate) fn begin(lease: Arc<SharedLease>, fence: u64, started: Moment) -> Self {
        lease.turn.store(fence, Ordering::SeqCst);
        Turn { lease, fence: Fence::new(fence), started }
    }

    /// Ends the turn, and wakes the tasks that watch it. False if it was over before. If the lease was lost before, the turn ended by that loss,
    /// and a task that looks at it later must find the loss.
    pub(crate) fn end(&self) -> bool {
        let fence = self.fence.get();
        let end = if self.lease.loss.get().is_some() { fence | LOST } else { NOBODY };
        let ended = self.lease.turn.compare_exchange(fence, end, Ordering::SeqCst, Ordering::SeqCst);
        self.lease.wake_watchers();
        ended.is_ok()
    }

    fn is_over(&self) -> bool {
        self.lease.turn.load(Ordering::SeqCst) & !LOST != self.fence.get()
    }

    /// Whether it is still held, as far as can be proved here and now. False in a forked child (I4).
    pub(crate) fn is_held(&self) -> bool {
        self.lease.home.is_here() && !self.is_over() && self.lease.loss().is_none()
    }

    /// How long it is held for sure if no renewal succeeds any more.
    pub(crate) fn remaining(&self) -> Duration {
        if !self.is_held() {
            return Duration::ZERO;
        }
        self.lease.deadline().since(self.lease.clock.now())
    }

    /// Why it is not held, if it is not.
    pub(crate) fn loss(&self) -> Option<Loss> {
        if !self.lease.home.is_here() {
            return Some(Loss::new(self.lease.name.clone(), LossKind::Forked));
        }
        if self.is_over() {
            return Some(Loss::new(self.lease.name.clone(), LossKind::Released));
        }
        self.lease.loss().cloned()
    }

    /// Resolves when it is not held any more; in a forked child, when it is next polled.
    pub(crate) async fn ended(&self) -> Loss {
        self.at_home(self.watch()).await.unwrap_or_else(|loss| loss)
    }

    /// Runs a future of the process that has the lease. In a forked child that is a loss, and the child leaks its copy of the future.
    pub(crate) async fn at_home<T>(&self, future: impl Future<Output = T>) -> Result<T, Loss> {
        let at_home = AtHome::new(self.lease.home, future).await;
        at_home.map_err(|_| Loss::new(self.lease.name.clone(), LossKind::Forked))
    }

    /// Resolves when it is not held any more. To be polled [`at_home`](Self::at_home) only.
    pub(crate) async fn watch(&self) -> Loss {
        let lease = &self.lease;
        let _watcher = Watcher::new(&lease.watchers);
        loop {
            let mut changed = pin!(lease.changed.notified());
            changed.as_mut().enable();
            if let Some(loss) = self.loss() {
                return loss;
            }
            // The keeper notifies. This looks at the clock too, because the keeper's runtime may have shut down.
            lease.clock.until(lease.deadline(), changed).await;
        }
    }
}

/// Counts a task that waits for a loss.
struct Watcher<'a>(&'a AtomicUsize);

impl<'a> Watcher<'a> {
    fn new(watchers: &'a AtomicUsize) -> Self {
        watchers.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Watcher(watchers)
    }
}

impl Drop for Watcher<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
