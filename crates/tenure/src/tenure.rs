//! A held lease, seen by the task whose turn it is.
//!
//! A lease is shared by the tasks of one process that take turns on it: what belongs to the lease (its deadline, its loss) is in
//! [`SharedLease`], what belongs to one turn (its fence, its start) in [`Turn`]. Asking costs a look at the clock and two atomics: no
//! lock, no I/O. Every doubt is answered with "not held" (I4).

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;

use crate::bid::{Bid, Bond};
use crate::clock::{Clock, Moment};
use crate::fence::Fence;
use crate::loss::{Loss, LossKind};
use crate::name::Name;
use crate::owner::Token;
use crate::process::Home;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

/// No fence: it is nobody's turn.
const NOBODY: u64 = 0;

/// The part of a lease that its holder looks at, and the keeper writes.
#[derive(Debug)]
pub(crate) struct SharedLease {
    pub(crate) name: Name,
    pub(crate) token: Token,
    /// What a request for it asks for at most.
    pub(crate) term: Duration,
    /// The process that has it; a forked child has a copy, and not the lease.
    home: Home,
    /// Until then a request for it that was never answered may still be executed.
    haunted_until: Option<Moment>,
    bond: Option<Arc<Bond>>,
    clock: Clock,
    /// Believed until then, in µs of the clock.
    deadline: AtomicU64,
    /// The store has it until then at most, in µs of the clock, as far as requests were answered.
    in_store_until: AtomicU64,
    /// How many renewals were sent since the last answer that the store may have executed, or may still.
    open_renewals: AtomicUsize,
    /// The fence of the task whose turn it is.
    turn: AtomicU64,
    /// The last renewal was not answered.
    unanswered: AtomicBool,
    /// A part of a layered store is out of reach.
    degraded: AtomicBool,
    /// Boxed: few leases are lost, of the many that are held.
    loss: OnceLock<Box<Loss>>,
    /// How many wait for its loss. Most turns end unwatched, and need not look for whom to wake.
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
            haunted_until: bid.haunted_until,
            bond: bid.bond.clone(),
            clock,
            deadline: AtomicU64::new(deadline.as_micros()),
            in_store_until: AtomicU64::new(in_store_until.as_micros()),
            open_renewals: AtomicUsize::new(0),
            turn: AtomicU64::new(NOBODY),
            unanswered: AtomicBool::new(false),
            degraded: AtomicBool::new(bid.is_degraded),
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

    /// Until when the store may have it at most: longer than its holder may believe in it. A renewal whose answer is missing may be executed
    /// at this moment.
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

    /// It goes back to the store; returns until when a request for it may still be executed.
    pub(crate) fn let_go(&self) -> Option<Moment> {
        self.haunted_until.max(self.bond.as_ref().and_then(|bond| bond.let_go()))
    }

    /// Whether the store may have been asked for it more than once: then a grant of it may be on its way that nobody needs.
    pub(crate) fn may_be_pushed(&self) -> bool {
        self.bond.is_some() || self.haunted_until.is_some()
    }

    pub(crate) fn set_degraded(&self, degraded: bool) {
        self.degraded.store(degraded, Ordering::Release);
    }

    pub(crate) fn set_unanswered(&self, unanswered: bool) {
        self.unanswered.store(unanswered, Ordering::Release);
    }

    /// Ends the lease; the first reason stays. Whoever waits for it is woken by [`tell`](Self::tell).
    pub(crate) fn lose(&self, kind: LossKind) -> &Loss {
        self.loss.get_or_init(|| Box::new(Loss::new(self.name.clone(), kind)))
    }

    /// Wakes whoever waits for the loss, after it was entered.
    pub(crate) fn tell(&self) {
        // The loss was entered before this, and a watcher is counted before it looks for one: each sees the other, or is seen.
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

    /// Whether the store still has it, as far as is known here. A closed domain reports a loss to its holders, and takes nothing from the store.
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

    /// Ends the turn, and tells whoever watches it; false when it was over before.
    pub(crate) fn end(&self) -> bool {
        let fence = self.fence.get();
        let ended = self.lease.turn.compare_exchange(fence, NOBODY, Ordering::SeqCst, Ordering::SeqCst);
        self.lease.wake_watchers();
        ended.is_ok()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.lease.turn.load(Ordering::SeqCst) != self.fence.get()
    }
}

/// A cheap, cloneable view of a held lease: its fence, the time left, whether it was lost.
///
/// A [`Guard`](crate::Guard) derefs to it, and [`Lock::run`](crate::Lock::run) hands it to the work.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure::Error> {
/// let domain = tenure::Domain::open("memory:").await?;
/// let guard = domain.lock("orders/42").acquire().await?;
///
/// let tenure = guard.tenure().clone();
/// assert!(tenure.is_held());
/// assert_eq!(tenure.name(), "orders/42");
///
/// guard.release().await?;
/// assert!(!tenure.is_held());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Tenure(pub(crate) Turn);

impl Tenure {
    /// What is locked.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.lease.name.as_str()
    }

    /// The secret that proves ownership to the store, as it is stored there.
    #[must_use]
    pub fn token(&self) -> &str {
        self.0.lease.token.as_str()
    }

    /// The fence of this turn: hand it to the resource with every write.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.0.fence
    }

    /// When this turn began, on the wall clock.
    #[must_use]
    pub fn since(&self) -> SystemTime {
        let clock = &self.0.lease.clock;
        clock.wall() - clock.now().since(self.0.started)
    }

    /// Whether it is still held, as far as can be proved here and now, without I/O. Errs towards false; in a forked child it is false.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.lease.home.is_here() && !self.0.is_over() && self.0.lease.loss().is_none()
    }

    /// How long it is held for sure if no renewal succeeds any more; zero when it is not held.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if !self.is_held() {
            return Duration::ZERO;
        }
        self.0.lease.deadline().since(self.0.lease.clock.now())
    }

    /// When that ends, on the wall clock: the present moment plus [`remaining`](Self::remaining).
    #[must_use]
    pub fn until(&self) -> SystemTime {
        self.0.lease.clock.wall() + self.remaining()
    }

    /// Whether the lease excludes the processes of this machine only, because the outer store of a [layered
    /// domain](crate::Domain::layered) is out of reach and may be ([`Degrade::Allow`](crate::Degrade::Allow)). False in every other domain.
    ///
    /// It can change while the lease is held: it becomes true when a renewal does not reach the outer store, and false when a later one finds
    /// the lease still there. One that was acquired without the outer store, or has ended there, stays degraded until it is released.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// let domain = tenure::Domain::open("memory:").await?;
    /// assert!(!domain.lock("orders/42").acquire().await?.degraded());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn degraded(&self) -> bool {
        self.0.lease.degraded.load(Ordering::Acquire)
    }

    /// Resolves when the lease is lost, before it ends in the store and another can have the name; or when its guard gave it back. A lease that
    /// is ended by force (taken over, broken, deleted) is told as soon as the store says so. In a forked child it resolves at once.
    ///
    /// # Cancel safety
    /// It only looks: dropping the future changes nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// # async fn work() -> u32 { 7 }
    /// let domain = tenure::Domain::open("memory:").await?;
    /// let guard = domain.lock("orders/42").acquire().await?;
    /// let done = tokio::select! {
    ///     done = work() => done,
    ///     loss = guard.lost() => return Err(loss.into()),
    /// };
    /// # assert_eq!(done, 7);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lost(&self) -> Loss {
        let lease = &self.0.lease;
        // Before anything is counted or watched: a parent's thread may have been at it when this process was forked.
        if !lease.home.is_here() {
            return self.forked();
        }
        let _watcher = Watcher::new(&lease.watchers);
        loop {
            let mut changed = pin!(lease.changed.notified());
            changed.as_mut().enable();
            if let Some(loss) = self.loss() {
                return loss;
            }
            // The keeper tells; the clock is looked at all the same, for the keeper may be gone with its runtime.
            lease.clock.until(lease.deadline(), changed).await;
        }
    }

    fn forked(&self) -> Loss {
        Loss::new(self.0.lease.name.clone(), LossKind::Forked)
    }

    /// Why it is not held, if it is not.
    pub(crate) fn loss(&self) -> Option<Loss> {
        if !self.0.lease.home.is_here() {
            return Some(self.forked());
        }
        if self.0.is_over() {
            return Some(Loss::new(self.0.lease.name.clone(), LossKind::Released));
        }
        self.0.lease.loss().cloned()
    }
}

/// Counts someone who waits for a loss.
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

impl fmt::Debug for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenure")
            .field("name", &self.name())
            .field("fence", &self.fence().get())
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}
