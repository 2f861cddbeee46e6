//! What a store shows of a name: who holds it, who waits, since when.

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::types::fence::Fence;
use crate::types::name::Name;
use crate::types::owner::{Owner, SessionId, Token};

/// Who holds a name, as the store shows it.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure::Error> {
/// let domain = tenure::Domain::open("memory:").await?;
/// let guard = domain.lock("orders/42").acquire().await?;
///
/// let holder = domain.inspect("orders/42").await?.holder.expect("it is held");
/// assert_eq!(holder.fence, guard.fence());
/// println!("held by {holder}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Who it is.
    pub owner: Owner,
    /// The fence that its lease was granted with. Where the tasks of a process take turns on the lease, theirs are higher by the turn.
    /// A lock of [another library](Owner::is_foreign) has none: what stands here is below every fence that is granted after it.
    pub fence: Fence,
    /// When the lease was granted, by the store's clock, as its fence tells it: approximate under a high load, and without meaning
    /// for a lock of another library.
    pub since: SystemTime,
    /// How long the lease lasts if it is not renewed; [`Duration::MAX`] when it has no expiry, as only locks of other libraries can.
    pub remaining: Duration,
    pub(crate) token: Token,
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holder")
            .field("owner", &self.owner)
            .field("fence", &self.fence)
            .field("since", &self.since)
            .field("remaining", &self.remaining)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, ", self.owner)?;
        if !self.owner.is_foreign() {
            write!(f, "fence {}, ", self.fence)?;
        }
        match self.remaining {
            Duration::MAX => f.write_str("without expiry"),
            remaining => write!(f, "for {} still", crate::types::duration::shown(remaining)),
        }
    }
}

/// Who waits for a name, as the store shows it.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure::Error> {
/// # let domain = tenure::Domain::open("memory:").await?;
/// for waiter in domain.inspect("orders/42").await?.waiters {
///     println!("{} waits for {:?}", waiter.owner, waiter.waited);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// Who it is.
    pub owner: Owner,
    /// For how long it has waited, by the store's clock.
    pub waited: Duration,
}

/// The state of a name, from [`Domain::inspect`](crate::Domain::inspect) and [`Domain::list`](crate::Domain::list).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure::Error> {
/// let domain = tenure::Domain::open("memory:").await?;
/// let guard = domain.lock("orders/42").acquire().await?;
/// let status = domain.inspect("orders/42").await?;
/// assert!(status.is_held() && status.waiters.is_empty());
/// assert_eq!((status.position, status.broken), (None, None));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The name.
    pub name: String,
    /// Who holds it; `None` when it is free.
    pub holder: Option<Holder>,
    /// Who waits for it in the store, first come first. The tasks of one process wait as one, and behind a task of their own process not at all.
    pub waiters: Vec<Waiter>,
    /// Where this domain stands among those that wait: 1 for the first; `None` when it does not wait in the store's queue.
    pub position: Option<usize>,
    /// The fence of the lease that was last ended by force, for a minute after it: what was broken, or taken over. It tells a lease that was broken from
    /// one that was released, where both are gone.
    pub broken: Option<Fence>,
}

impl Status {
    /// What a store showed at its time `now` to a client of this session.
    pub(crate) fn new(
        name: &Name,
        holder: Option<Holder>,
        waiters: &[(Token, u64)],
        broken: Option<u64>,
        now: u64,
        session: &SessionId,
    ) -> Self {
        let is_ours = |(token, _): &(Token, u64)| token.session().as_ref() == Some(session);
        Status {
            name: name.as_str().to_owned(),
            holder,
            position: waiters.iter().position(is_ours).map(|index| index + 1),
            broken: broken.map(Fence::new),
            waiters: waiters
                .iter()
                .map(|(token, joined_at)| Waiter {
                    owner: token.owner(),
                    waited: Duration::from_micros(now.saturating_sub(*joined_at)),
                })
                .collect(),
        }
    }

    /// Whether someone holds it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.holder.is_some()
    }
}

/// The name was not acquired: who holds it, and how many wait.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure::Error> {
/// use tenure::{Attempt, Domain};
///
/// let domain = Domain::open("memory:").await?;
/// let guard = domain.lock("orders/42").label("nightly").acquire().await?;
/// match domain.lock("orders/42").try_acquire().await? {
///     Attempt::Acquired(_) => unreachable!(),
///     Attempt::Busy(busy) => assert_eq!(busy.holder.unwrap().owner.label(), "nightly"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Busy {
    /// Who holds it; `None` when that is not known.
    pub holder: Option<Holder>,
    /// How many others wait for it, if the store said so. It tells an attempt that does not wait; a call that waited, and one that found a
    /// task of its own domain holding the name, don't know.
    pub waiters: Option<usize>,
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.holder {
            Some(holder) => write!(f, "held by {holder}")?,
            None => f.write_str("held by someone")?,
        }
        self.waiters.map_or(Ok(()), |waiters| write!(f, "; {waiters} waiting"))
    }
}

/// How a store is, from [`Domain::health`](crate::Domain::health).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure::Error> {
/// let health = tenure::Domain::open("memory:").await?.health().await?;
/// assert!(health.warnings.is_empty(), "fit to hold locks");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// How long one request took.
    pub round_trip: Duration,
    /// What makes the store less fit to hold locks, one sentence each.
    pub warnings: Vec<String>,
}
