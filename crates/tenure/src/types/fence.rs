//! A number that grows with every grant on a name, and the check that makes it worth having.

use std::fmt;

/// Fences are below this: Redis scripts count exactly up to there.
pub(crate) const FENCE_END: u64 = 1 << 53;

/// A number that grows strictly with every grant on a name, also over restarts, failovers and expiries of the store.
///
/// No lock with a lease can stop a process that was paused between its check and its write. The resource can: hand the fence along
/// with each write, and refuse a write whose fence is lower than one that was seen before ([`HighWater`]).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure::Error> {
/// let domain = tenure::Domain::open("memory:").await?;
///
/// let first = domain.lock("orders/42").run(async |lease| lease.fence()).await?.value;
/// let second = domain.lock("orders/42").run(async |lease| lease.fence()).await?.value;
/// assert!(second > first);
/// println!("update orders set total = 7, fence = {second} where id = 42 and fence <= {second}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fence(u64);

impl Fence {
    /// A fence that was stored or sent as a number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Fence(number)
    }

    /// The number; below 2^53 until the year 2255.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<u64> for Fence {
    fn from(number: u64) -> Self {
        Fence(number)
    }
}

impl From<Fence> for u64 {
    fn from(fence: Fence) -> u64 {
        fence.0
    }
}

/// The check on the resource's side: remembers the highest fence, and refuses lower ones.
///
/// A holder may write many times with the same fence. Keep this where the resource is, under the resource's own lock.
///
/// # Examples
/// ```
/// use tenure::{Fence, HighWater};
///
/// let mut seen = HighWater::default();
/// assert!(seen.admit(Fence::new(7)).is_ok());
/// assert!(seen.admit(Fence::new(9)).is_ok());
/// let stale = seen.admit(Fence::new(7)).unwrap_err();
/// assert_eq!(stale.to_string(), "write with fence 7 refused: fence 9 was seen before");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HighWater(Option<Fence>);

impl HighWater {
    /// Goes on from a fence that was stored with the resource.
    #[must_use]
    pub const fn from_stored(fence: Fence) -> Self {
        HighWater(Some(fence))
    }

    /// The highest fence that was admitted, to be stored with the resource.
    #[must_use]
    pub const fn highest(&self) -> Option<Fence> {
        self.0
    }

    /// Admits a write of this holder, unless a later holder has written.
    ///
    /// # Errors
    /// [`Stale`] when a higher fence was admitted before.
    pub fn admit(&mut self, fence: Fence) -> Result<(), Stale> {
        match self.0 {
            Some(seen) if fence < seen => Err(Stale { refused: fence, seen }),
            _ => {
                self.0 = Some(fence);
                Ok(())
            }
        }
    }
}

/// A write was refused because a later holder has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stale {
    /// The fence of the write.
    pub refused: Fence,
    /// The higher one that was seen before.
    pub seen: Fence,
}

impl fmt::Display for Stale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "write with fence {} refused: fence {} was seen before", self.refused, self.seen)
    }
}

impl std::error::Error for Stale {}
