//! The scoped form: acquire, work, release, whatever happens.

use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use crate::api::guard::Guard;
use crate::api::lease::Lease;
use crate::api::lock::{Attempt, Lock};
use crate::engine::client::Client;
use crate::types::error::Error;
use crate::types::fence::Fence;
use crate::types::release::Release;

/// What [`Lock::run`] did: the value of the work, and the report on it.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure::Error> {
/// let domain = tenure::Domain::open("memory:").await?;
/// let ran = domain.lock("orders/42").run(async |_| 6 * 7).await?;
/// assert_eq!(ran.value, 42);
/// println!("waited {:?}, held {:?}", ran.report.waited, ran.report.held);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "the work's own result is in `.value`"]
#[non_exhaustive]
pub struct Ran<T> {
    /// What the work returned.
    pub value: T,
    /// When, and for how long.
    pub report: Report,
}

/// When a piece of work started, how long it waited, how long it held the name.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report {
    /// From the call to the start of the work.
    pub waited: Duration,
    /// When the work started, on the wall clock.
    pub started: SystemTime,
    /// From the start of the work to its end.
    pub held: Duration,
    /// The fence that it ran with.
    pub fence: Fence,
    /// What became of the lease. An error when the store could not be told: the background goes on trying.
    pub release: Result<Release, Error>,
}

impl Lock {
    /// Waits for the name, runs the work, gives the name back. The recommended form.
    ///
    /// On loss the work is dropped at its next await, before the lease ends in the store (unless it is ended there by force). Panics and
    /// cancellation give the name back as well. Use [`tenure.fence()`](Lease::fence) in the work's writes.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) when the lease was lost before the work was done, be it that the work was stopped, or that it went on
    /// without an await until it was done; else as [`acquire`](Self::acquire). [`Forked`](crate::ErrorKind::Forked) in the child, if the work forks:
    /// the child's copy of the work stops at its next await, and is leaked. What the work
    /// itself returns, an error too, is the value. A release that fails is in the report and loses no value.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work first, and then releases the name in the background, as dropping a guard does. If the program ends before
    /// that is done, the name stays held until its ttl is over: after a `select!` that drops a `run`, await
    /// [`Domain::close`](crate::Domain::close) before `main` returns.
    ///
    /// # In generic code
    /// A spawned `run` needs work whose future is `Send`. For a closure that is known by its type that is seen by itself; for a parameter write
    /// `F: FnOnce(Lease) -> Fut, Fut: Future + Send` and `.run(async move |lease| work(lease).await)`.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// # async fn save(fence: tenure::Fence) -> std::io::Result<()> { Ok(()) }
    /// let domain = tenure::Domain::open("memory:").await?;
    /// let saved = domain.lock("orders/42").run(async |lease| save(lease.fence()).await).await?;
    /// saved.value.expect("the work's own result");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<T>(&self, work: impl AsyncFnOnce(Lease) -> T) -> Result<Ran<T>, Error> {
        let _counted = Counted::new(&self.client);
        let asked = self.client.clock.now();
        let guard = self.acquire().await?;
        self.run_with(guard, asked, work).await
    }

    /// As [`run`](Self::run), if the name is free and nobody waits for it.
    ///
    /// # Errors
    /// As [`run`](Self::run). That someone else holds the name is no error.
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// # let domain = tenure::Domain::open("memory:").await?;
    /// use tenure::Attempt;
    ///
    /// match domain.lock("nightly").try_run(async |_| "done").await? {
    ///     Attempt::Acquired(ran) => assert_eq!(ran.value, "done"),
    ///     Attempt::Busy(busy) => println!("someone else is at it: {busy}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_run<T>(&self, work: impl AsyncFnOnce(Lease) -> T) -> Result<Attempt<Ran<T>>, Error> {
        self.try_run_for(Duration::ZERO, work).await
    }

    /// As [`run`](Self::run), but waits no longer than `limit`; zero means not to wait at all.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if the store can't be reached when the time is up; else as [`run`](Self::run). If the name
    /// is still held when the time is up, that is not an error.
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// # use std::time::Duration;
    /// # let domain = tenure::Domain::open("memory:").await?;
    /// let ran = domain.lock("nightly").try_run_for(Duration::from_secs(5), async |_| 7).await?;
    /// assert_eq!(ran.ok().map(|ran| ran.value), Some(7));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_run_for<T>(
        &self,
        limit: Duration,
        work: impl AsyncFnOnce(Lease) -> T,
    ) -> Result<Attempt<Ran<T>>, Error> {
        let _counted = Counted::new(&self.client);
        let asked = self.client.clock.now();
        match self.try_acquire_for(limit).await? {
            Attempt::Acquired(guard) => self.run_with(guard, asked, work).await.map(Attempt::Acquired),
            Attempt::Busy(busy) => Ok(Attempt::Busy(busy)),
        }
    }

    async fn run_with<T>(
        &self,
        guard: Guard,
        asked: crate::time::clock::Moment,
        work: impl AsyncFnOnce(Lease) -> T,
    ) -> Result<Ran<T>, Error> {
        let clock = &self.client.clock;
        let (started, since) = (clock.now(), clock.wall());
        let turn = &guard.lease().0;
        // Work that forks must not go on in the child as well, which does not hold the lock.
        let finished = turn.at_home(async {
            let mut work = pin!(work(guard.lease().clone()));
            let mut lost = pin!(turn.watch());
            // The loss is looked at first: work that is lost must not take another step.
            std::future::poll_fn(|cx| match lost.as_mut().poll(cx) {
                Poll::Ready(loss) => Poll::Ready(Err(loss)),
                Poll::Pending => work.as_mut().poll(cx).map(Ok),
            })
            .await
        });
        let finished = finished.await.flatten();
        // Work that never waited was not stopped by a loss: it must not pass for done under the lock.
        let finished = match guard.lease().loss() {
            Some(loss) => Err(loss),
            None => finished,
        };
        let held = clock.now().since(started);
        let fence = guard.fence();
        let release = guard.release().await.map_err(Error::from);
        let report = Report { waited: started.since(asked), started: since, held, fence, release };
        Ok(Ran { value: finished?, report })
    }
}

/// A call of `run`, counted so that [`close`](crate::Domain::close) can wait for its end.
struct Counted<'a>(&'a Client);

impl<'a> Counted<'a> {
    fn new(client: &'a Client) -> Self {
        client.tasks.run_begins();
        Counted(client)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        // Work that forks ends in the child as well, where a thread of the parent may hold the lock of the notification for ever.
        if self.0.is_here() {
            self.0.tasks.run_ended();
        }
    }
}
