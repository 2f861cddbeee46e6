//! Ownership of a lease, for one turn.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::api::lease::Lease;
use crate::core::claim::Claim;
use crate::core::record::{Op, Reply};
use crate::engine::client::{Client, Executed};
use crate::engine::lease_state::Turn;
use crate::engine::release;
use crate::types::error::Error;
use crate::types::fence::Fence;
use crate::types::loss::{Loss, LossKind};
use crate::types::release::Release;
use crate::types::ticket::Ticket;

/// Owns a lease; gives it back when dropped.
///
/// While a guard lives, its lease is renewed in the background. It says the fence, the time left, and when the lease is [lost](Self::lost). A [`Lease`]
/// says the same, and can be cloned and handed to other tasks.
///
/// # Drop
/// Dropping never blocks and never panics, and works outside a runtime and on panic. On `memory:` and `file:` the name is released at once, and
/// the end of the process frees it in any case. On a server, the release is a task in the background, on the runtime. If the runtime ends before the task does, as when `main`
/// returns, **the name stays held until its ttl is over**: await [`Domain::close`](crate::Domain::close) first. Prefer
/// [`release`](Self::release), which waits for the store and says what became of the lease.
///
/// # In a forked child
/// A copy of a guard in a forked child owns nothing: it is not [held](Lease::is_held), dropping it does nothing, and the parent holds on.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure::Error> {
/// let domain = tenure::Domain::open("memory:").await?;
///
/// let guard = domain.lock("orders/42").acquire().await?;
/// println!("write with fence {}", guard.fence());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "the lock is given back as soon as the guard is dropped"]
pub struct Guard {
    lease: Lease,
    client: Arc<Client>,
    claim: Arc<Claim>,
    /// A release was sent and not answered: it may have been executed.
    was_unanswered: bool,
    /// There is nothing left to give back.
    is_done: bool,
}

impl Guard {
    pub(crate) fn new(client: Arc<Client>, turn: Turn, claim: Arc<Claim>) -> Self {
        tracing::debug!(target: "tenure", name = %turn.lease.name, fence = turn.fence.get(), "acquired");
        Guard { lease: Lease(turn), client, claim, was_unanswered: false, is_done: false }
    }

    /// The view of this lease, to be cloned and handed around.
    #[must_use]
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// What is locked.
    #[must_use]
    pub fn name(&self) -> &str {
        self.lease.name()
    }

    /// The secret that proves ownership to the store, as it is stored there. Only the guard shows it, and not the [`Lease`] that is handed around.
    #[must_use]
    pub fn token(&self) -> &str {
        self.lease.0.lease.token.as_str()
    }

    /// The fence of this turn: hand it to the resource with every write.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.lease.fence()
    }

    /// When this turn began, on the wall clock.
    #[must_use]
    pub fn since(&self) -> SystemTime {
        self.lease.since()
    }

    /// Whether it is still held, as far as this process can prove now, without I/O. See [`Lease::is_held`].
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.lease.is_held()
    }

    /// How long it is held for sure if no renewal succeeds any more; zero if it is not held.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.lease.remaining()
    }

    /// When [`remaining`](Self::remaining) ends, on the wall clock.
    #[must_use]
    pub fn until(&self) -> SystemTime {
        self.lease.until()
    }

    /// Whether the lease excludes the processes of this machine only. See [`Lease::is_degraded`].
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.lease.is_degraded()
    }

    /// Resolves when the lease is lost, before another client can have the name. See [`Lease::lost`].
    ///
    /// # Cancel safety
    /// It only looks: dropping the future changes nothing.
    pub async fn lost(&self) -> Loss {
        self.lease.lost().await
    }

    /// Gives the lease back, and says what became of it.
    ///
    /// Where another task of this process waits for the name, it begins its turn at once; otherwise the store is told and its answer
    /// awaited.
    ///
    /// # Errors
    /// If the store can't be reached, this tries again for 2 s, or a quarter of the ttl if that is less. Then the guard comes back inside the error, to be tried again. Dropping it instead goes on trying
    /// in the background for as long as the store may have it ([`left_in_store`](Self::left_in_store)). It is not held any longer in either case.
    ///
    /// # Cancel safety
    /// Dropping the future goes on in the background, as dropping the guard does.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// use tenure::Release;
    ///
    /// # let domain = tenure::Domain::open("memory:").await?;
    /// let guard = domain.lock("orders/42").acquire().await?;
    /// match guard.release().await {
    ///     Ok(Release::Released) => {}
    ///     Ok(late) => println!("the lease had ended before: {late:?}"),
    ///     Err(returned) => println!("try again with the guard in it: {}", returned.error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release(mut self) -> Result<Release, Returned> {
        let (client, turn) = (&self.client, &self.lease.0);
        match release::give_back(client, turn, self.claim.terms.timeout(), &mut self.was_unanswered).await {
            Ok(release) => {
                self.is_done = true;
                Ok(release)
            }
            Err(error) => Err(Returned { guard: self, error }),
        }
    }

    /// How long the store may keep the lease from now on if it is not given back: an upper bound. [`remaining`](Lease::remaining) is the lower
    /// bound. If the answer to a renewal is lost, the store may have renewed the lease: then this is a full ttl, also after the lease
    /// [was lost](Lease::lost) here.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// # let domain = tenure::Domain::open("memory:").await?;
    /// let guard = domain.lock("orders/42").acquire().await?;
    /// assert!(guard.left_in_store() >= guard.remaining());
    /// if let Err(returned) = guard.release().await {
    ///     println!("held for up to {:?}: {}", returned.guard.left_in_store(), returned.error);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn left_in_store(&self) -> Duration {
        self.lease.0.lease.left_in_store()
    }

    /// Renews the lease now, by its ttl. Only needed with [`no_renewal`](crate::Lock::no_renewal), or to be sure.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) when the lease is not ours any more; [`Unavailable`](crate::ErrorKind::Unavailable) when the
    /// store did not answer: then it is still held until [`remaining`](Lease::remaining) is over.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open whether the lease was renewed. It is never shortened.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// # let domain = tenure::Domain::open("memory:").await?;
    /// let guard = domain.lock("orders/42").no_renewal().acquire().await?;
    /// guard.renew().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn renew(&self) -> Result<(), Error> {
        self.client.check_process()?;
        let ttl = self.client.table.lock().renewal_by_hand(&self.lease.0.lease);
        let Some(ttl) = ttl.filter(|_| self.is_held()) else {
            return Err(self.lease.ended().await.into());
        };
        let token = self.lease.0.lease.token.clone();
        self.ask(Op::Renew { token, ttl }, ttl).await
    }

    /// Cuts the lease loose from this process: it lives on for a full ttl (or what `max_hold` leaves of it), until somebody [adopts](Ticket::adopt) it with
    /// the ticket.
    ///
    /// # Errors
    /// The guard comes back inside the error: when the store can't be reached it is still held, and can be tried again.
    ///
    /// # Cancel safety
    /// Dropping the future gives the lease back, as dropping the guard does.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// # let domain = tenure::Domain::open("memory:").await?;
    /// let guard = domain.lock("orders/42").acquire().await?;
    /// let before = guard.fence();
    /// let ticket = guard.detach().await?.to_string();
    ///
    /// // in another process, perhaps
    /// let guard = ticket.parse::<tenure::Ticket>()?.adopt(&domain).await?;
    /// assert!(guard.fence() > before);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn detach(mut self) -> Result<Ticket, Returned> {
        if let Err(error) = self.client.check_process() {
            return Err(Returned { guard: self, error });
        }
        let lease = Arc::clone(&self.lease.0.lease);
        let ttl = self.client.table.lock().renewal_by_hand(&lease);
        let Some(ttl) = ttl.filter(|_| self.is_held()) else {
            let error = self.lease.ended().await.into();
            return Err(Returned { guard: self, error });
        };
        if let Err(error) = self.ask(Op::Detach { token: lease.token.clone(), ttl }, ttl).await {
            return Err(Returned { guard: self, error });
        }
        self.is_done = true;
        self.lease.0.end();
        self.client.change(|table, effects| table.detached(&lease, effects));
        Ok(Ticket::new(lease.name.clone(), lease.token.clone(), self.fence(), self.claim.terms.ttl))
    }

    /// Sends a kind of renewal that asks for `ttl`, and enters its answer.
    async fn ask(&self, op: Op, ttl: Duration) -> Result<(), Error> {
        let (client, lease) = (&self.client, &self.lease.0.lease);
        lease.renewal_sent();
        let Executed { reply, sent, is_degraded, .. } =
            client.execute(&lease.name, op, self.claim.terms.timeout()).await?;
        client.change(|table, effects| {
            lease.set_degraded(is_degraded, sent);
            table.renewed(lease, sent, ttl, Some(&reply), effects);
        });
        match &reply {
            Reply::NotHeld { holder } => {
                Err(lease.lose(LossKind::from_holder(holder.as_ref())).clone().into())
            }
            _ => lease.loss().map_or(Ok(()), |loss| Err(loss.clone().into())),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.is_done {
            release::give_back_later(&self.client, &self.lease.0);
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guard").field(&self.lease).finish()
    }
}

/// A guard that comes back because it could not be released or detached: try again, or drop it and let the background try.
///
/// It converts into the [`Error`] inside it, so `?` works in functions that return that. Inside a `Box<dyn Error>` the guard lives as long as
/// the error does, and a guard that was to be detached is held and renewed all the while.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure::Error> {
/// let store = tenure::testing::Store::new();
/// let client = store.client();
/// let guard = client.domain().lock("orders/42").acquire().await?;
///
/// client.cut_off();
/// let returned = guard.release().await.unwrap_err();
/// assert!(returned.error.is_transient());
///
/// client.reconnect();
/// returned.guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Returned {
    /// The guard, whose token is not forgotten.
    pub guard: Guard,
    /// Why the store could not be told.
    pub error: Error,
}

impl fmt::Display for Returned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "guard of `{}` came back: {}", self.guard.name(), self.error)
    }
}

impl std::error::Error for Returned {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<Returned> for Error {
    fn from(returned: Returned) -> Error {
        returned.error.clone()
    }
}
