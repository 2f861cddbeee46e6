//! What is asked for, and the verbs to ask for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::api::guard::Guard;
use crate::core::claim::Claim;
use crate::core::deadlines::Terms;
use crate::core::record::Op;
use crate::engine::acquire::{self, Outcome, Patience};
use crate::engine::bid::Bid;
use crate::engine::client::Client;
use crate::engine::lease_state::Turn;
use crate::engine::take_over;
use crate::time::clock::Moment;
use crate::types::error::Error;
use crate::types::name::Name;
use crate::types::status::Busy;

/// A claim on a name: options, and the verbs `acquire`, `try_acquire`, `run` and `take_over`.
///
/// Making one costs no I/O, and it can be kept and used again. A bad name or option is reported by the verbs.
///
/// # Which verb?
/// - [`run`](Self::run) when the work is a future: it stops the work on loss and awaits the release. Start here.
/// - [`acquire`](Self::acquire) when the lock is held across something that is not one future. Watch [`lost`](Guard::lost).
/// - [`try_acquire`](Self::try_acquire) when someone else doing the work is as good.
/// - [`take_over`](Self::take_over) when the holder is known to be gone or wrong.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure::Error> {
/// use std::time::Duration;
///
/// let domain = tenure::Domain::open("memory:").await?;
/// let lock = domain.lock("orders/42").ttl(Duration::from_secs(30)).label("nightly");
///
/// let guard = lock.acquire().await?;
/// guard.release().await?;
/// let again = lock.acquire().await?;
/// # drop(again);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a lock does nothing until one of its verbs is awaited"]
pub struct Lock {
    pub(crate) client: Arc<Client>,
    /// A bad name and its error are kept for the verbs.
    claim: Result<Arc<Claim>, (Box<str>, Error)>,
    /// Not part of the claim: tasks that differ in it share a lease.
    max_outage: Option<Duration>,
}

impl Lock {
    pub(crate) fn new(client: Arc<Client>, name: &str, terms: Terms) -> Self {
        let claim = match Name::new(name) {
            Ok(name) => Ok(Arc::new(Claim { name, terms, label: Arc::default() })),
            Err(error) => Err((name.into(), error)),
        };
        Lock { client, claim, max_outage: None }
    }

    /// What is asked for.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// # let domain = tenure::Domain::open("memory:").await?;
    /// assert_eq!(domain.lock("orders/42").name(), "orders/42");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.claim {
            Ok(claim) => claim.name.as_str(),
            Err((name, _)) => name,
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Claim)) -> Self {
        if let Ok(claim) = &mut self.claim {
            change(Arc::make_mut(claim));
        }
        self
    }

    /// How long the lease lasts when nobody renews it: 100 ms to 24 h, 10 s by default. It is renewed at a third of it, so this is
    /// how long others wait for a holder that died.
    pub fn ttl(self, ttl: Duration) -> Self {
        self.with(|claim| claim.terms.ttl = ttl)
    }

    /// Renewal ends so that the lease ends after this long, whatever its holder does.
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.with(|claim| claim.terms.max_hold = Some(max_hold))
    }

    /// A text that others see when they ask who holds the name; at most 200 bytes.
    pub fn label(self, label: impl AsRef<str>) -> Self {
        self.with(|claim| claim.label = label.as_ref().into())
    }

    /// The lease is not renewed in the background: it ends after one ttl, unless [renewed by hand](Guard::renew).
    pub fn no_renewal(self) -> Self {
        self.with(|claim| claim.terms.renewed = false)
    }

    /// How long a wait goes on while the store can't be reached. It counts from the first request that fails, and starts again after every
    /// answer. [`try_acquire`](Self::try_acquire) and [`take_over`](Self::take_over), which don't wait, ignore it.
    ///
    /// | | the store can't be reached at first | it goes away during the wait |
    /// |---|---|---|
    /// | [`acquire`](Self::acquire), [`run`](Self::run) | error at once | error after one ttl |
    /// | [`try_acquire_for`](Self::try_acquire_for), [`try_run_for`](Self::try_run_for) | error when `limit` is over | error when `limit` is over |
    /// | any of them with `max_outage` | error after `max_outage` | error after `max_outage` |
    ///
    /// A task that stands in the queue comes back to its place after the outage, if the name is still held then. If the name became free during the
    /// outage, the first waiter that reaches the store gets it. A call that came during the outage joins the queue at the end.
    ///
    /// # Examples
    /// Wait for the name for as long as it takes, through outages of up to ten minutes each:
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// # use std::time::Duration;
    /// # let domain = tenure::Domain::open("memory:").await?;
    /// let lock = domain.lock("orders/42").max_outage(Duration::from_secs(600));
    /// let guard = lock.acquire().await?;
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_outage(mut self, max_outage: Duration) -> Self {
        self.max_outage = Some(max_outage);
        self
    }

    /// Waits until the name is ours, however long that takes.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if the store can't be reached: at once for a new call, and after one ttl without an answer
    /// for a task that waits in the queue; [`max_outage`](Self::max_outage) changes both. [`Forked`](crate::ErrorKind::Forked) in a forked child of a process that used the domain. [`Invalid`](crate::ErrorKind::Invalid) for a bad name or option, [`Closed`](crate::ErrorKind::Closed) after
    /// [`close`](crate::Domain::close); on a [lazy](crate::Domain::lazy) domain, whatever opening it says.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue at once. If the name was granted meanwhile, it goes to the next.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// # let domain = tenure::Domain::open("memory:").await?;
    /// let guard = domain.lock("orders/42").acquire().await?;
    /// assert!(guard.is_held());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(&self) -> Result<Guard, Error> {
        let claim = self.claim()?;
        match acquire::acquire(&self.client, claim, self.patience(true, None)).await? {
            Outcome::Turn(turn) => Ok(self.guard(claim, turn)),
            Outcome::Busy(_) => unreachable!("a task that waits without a limit is never told busy"),
        }
    }

    /// Takes the name if it is free and nobody waits for it.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire). That someone else holds the name is no error.
    ///
    /// # Cancel safety
    /// Dropping the future gives back what was granted meanwhile.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// # let domain = tenure::Domain::open("memory:").await?;
    /// if let Some(guard) = domain.lock("nightly").try_acquire().await?.ok() {
    ///     println!("we do it, with fence {}", guard.fence());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_acquire(&self) -> Result<Attempt, Error> {
        self.attempt(false, None).await
    }

    /// Waits for the name, but not longer than `limit`; zero means not to wait at all. An outage of the store does not end the wait early,
    /// unless [`max_outage`](Self::max_outage) says so.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if the store can't be reached when the time is up; else as [`acquire`](Self::acquire).
    /// If the name is still held when the time is up, that is not an error.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// # use std::time::Duration;
    /// # use tenure::Attempt;
    /// # let domain = tenure::Domain::open("memory:").await?;
    /// # let held = domain.lock("orders/42").acquire().await?;
    /// match domain.lock("orders/42").try_acquire_for(Duration::from_millis(5)).await? {
    ///     Attempt::Acquired(guard) => println!("fence {}", guard.fence()),
    ///     Attempt::Busy(busy) => println!("{busy}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_acquire_for(&self, limit: Duration) -> Result<Attempt, Error> {
        let limit = (!limit.is_zero()).then(|| self.client.clock.now() + limit);
        self.attempt(limit.is_some(), limit).await
    }

    /// Ends the present lease, whoever has it, and takes its place ahead of the queue. Its holder is told.
    ///
    /// The old holder may be at work until it has been told: only a resource that checks the [fence](crate::Fence) is safe from it.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open whether the old lease was ended; the name is given back in that case.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// # let domain = tenure::Domain::open("memory:").await?;
    /// let old = domain.lock("orders/42").acquire().await?;
    /// let new = domain.lock("orders/42").take_over().await?;
    /// old.lost().await;
    /// assert!(!old.is_held() && new.is_held() && new.fence() > old.fence());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn take_over(&self) -> Result<Guard, Error> {
        let claim = self.claim()?;
        let op = |bid: &Bid, not_after| {
            let (token, ttl) = (bid.token.clone(), bid.claim.terms.first_term());
            Op::TakeOver { token, ttl, floor: bid.floor, not_after }
        };
        let turn = take_over::take(&self.client, claim, op).await?;
        Ok(self.guard(claim, turn))
    }

    fn patience(&self, waits: bool, limit: Option<Moment>) -> Patience {
        Patience { waits, limit, max_outage: self.max_outage }
    }

    async fn attempt(&self, waits: bool, limit: Option<Moment>) -> Result<Attempt, Error> {
        let claim = self.claim()?;
        match acquire::acquire(&self.client, claim, self.patience(waits, limit)).await? {
            Outcome::Turn(turn) => Ok(Attempt::Acquired(self.guard(claim, turn))),
            Outcome::Busy(busy) => {
                self.client.table.lock().metrics.busy += 1;
                Ok(Attempt::Busy(*busy))
            }
        }
    }

    fn guard(&self, claim: &Arc<Claim>, turn: Turn) -> Guard {
        Guard::new(Arc::clone(&self.client), turn, Arc::clone(claim))
    }

    fn claim(&self) -> Result<&Arc<Claim>, Error> {
        let claim = self.claim.as_ref().map_err(|(_, error)| error.clone())?;
        claim.check()?;
        Ok(claim)
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lock = f.debug_struct("Lock");
        match &self.claim {
            Ok(claim) => {
                lock.field("name", &claim.name).field("terms", &claim.terms).field("label", &claim.label)
            }
            Err((name, error)) => lock.field("name", name).field("invalid", error),
        };
        lock.finish_non_exhaustive()
    }
}

/// The outcome of an attempt that may find the name busy.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure::Error> {
/// # let domain = tenure::Domain::open("memory:").await?;
/// let first = domain.lock("orders/42").try_acquire().await?;
/// assert!(first.is_acquired());
/// assert!(domain.lock("orders/42").try_acquire().await?.ok().is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the name may be busy; and a guard in it gives the name back as soon as it is dropped"]
pub enum Attempt<T = Guard> {
    /// The name is, or was, ours.
    Acquired(T),
    /// Someone else has it.
    Busy(Busy),
}

impl<T> Attempt<T> {
    /// What was acquired, if it was.
    pub fn ok(self) -> Option<T> {
        match self {
            Attempt::Acquired(acquired) => Some(acquired),
            Attempt::Busy(_) => None,
        }
    }

    /// Whether it was acquired.
    #[must_use]
    pub fn is_acquired(&self) -> bool {
        matches!(self, Attempt::Acquired(_))
    }
}
