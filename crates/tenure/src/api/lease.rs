//! A held lease, as its holder sees it.

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::engine::lease_state::Turn;
use crate::types::fence::Fence;
use crate::types::loss::{Loss, LossKind};

/// A cheap, cloneable view of a held lease: its fence, the time left, whether it was lost.
///
/// [`Guard::lease`](crate::Guard::lease) returns it, and [`Lock::run`](crate::Lock::run) hands it to the work.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure::Error> {
/// let domain = tenure::Domain::open("memory:").await?;
/// let guard = domain.lock("orders/42").acquire().await?;
///
/// let lease = guard.lease().clone();
/// assert!(lease.is_held());
/// assert_eq!(lease.name(), "orders/42");
///
/// guard.release().await?;
/// assert!(!lease.is_held());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Lease(pub(crate) Turn);

impl Lease {
    /// What is locked.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.lease.name.as_str()
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
        self.0.is_held()
    }

    /// How long it is held for sure if no renewal succeeds any more; zero when it is not held.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
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
    /// assert!(!domain.lock("orders/42").acquire().await?.is_degraded());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.0.lease.is_degraded()
    }

    /// Resolves when the lease is lost, before it ends in the store and another client can have the name. If someone ends the lease by force
    /// (takes it over, breaks it, deletes it), this resolves as soon as the store says so. In a forked child it resolves at once.
    ///
    /// It never resolves if the guard gave the lease back before it was lost: [`ended`](Self::ended) resolves then, too.
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
        let end = self.ended().await;
        match end.kind() {
            LossKind::Released => std::future::pending().await,
            _ => end,
        }
    }

    /// Resolves when the lease is not held any more: it was [lost](Self::lost), or its guard gave it back. Then the kind is
    /// [`Released`](LossKind::Released).
    ///
    /// # Cancel safety
    /// It only looks: dropping the future changes nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// use tenure::LossKind;
    ///
    /// let domain = tenure::Domain::open("memory:").await?;
    /// let guard = domain.lock("orders/42").acquire().await?;
    /// let lease = guard.lease().clone();
    /// guard.release().await?;
    /// assert_eq!(*lease.ended().await.kind(), LossKind::Released);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn ended(&self) -> Loss {
        self.0.ended().await
    }
}

impl Lease {
    /// Why it is not held, if it is not.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.0.loss()
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", &self.name())
            .field("fence", &self.fence().get())
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}
