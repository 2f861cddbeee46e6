//! Where names live: one store, opened from a URL.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::api::lock::Lock;
use crate::backend::{Answer, Capability, open};
use crate::core::deadlines::Terms;
use crate::core::record::{Op, Reply};
use crate::engine;
use crate::engine::client::{Client, Executed};
use crate::time::clock::Clock;
use crate::types::error::{Error, ErrorKind};
use crate::types::finding::Finding;
use crate::types::metrics::Metrics;
use crate::types::name::Name;
use crate::types::process::{AtHome, Home};
use crate::types::release::Release;
use crate::types::status::{Health, Holder, Status};
use crate::url::{Degrade, DomainUrl};

/// How many names are looked at in one go, when they are listed.
const MOST_LOOKS_AT_ONCE: usize = 256;
/// An examination takes some round trips, and longer where pushes do not come.
const LONGEST_EXAMINATION: Duration = Duration::from_secs(20);

/// How long `close` waits for work under `run` to stop and give its name back. More than a release may take: one that was not answered goes on in the
/// background, and is waited for there.
const LONGEST_STOP: Duration = Duration::from_secs(3);

/// A store of names, opened from a URL. Cheap to clone; all clones share one connection and one keeper.
///
/// Guards keep what they need: a domain can be dropped while they live. When the last handle is gone, so is everything in the
/// background. Dropping a domain waits for nothing: await [`close`](Self::close) before `main` returns.
///
/// # Runtimes
/// Renewals and waiting are work in the background, on a tokio runtime that uses the domain. When that runtime shuts down, they move to
/// another one that was seen; so a domain in a `static` can be shared by tests with a runtime each. A runtime that is alive but that
/// nobody drives (a `current_thread` one outside `block_on`) stops them: leases then end by their ttl, and their holders are told.
///
/// # Forks
/// A domain belongs to the process that uses it first. In a child that is forked after that, every verb returns
/// [`Forked`](crate::ErrorKind::Forked), no copy of a guard is held, and dropping the copies does nothing. Open a domain in the child, on a runtime
/// of its own: tokio's runtimes can't be used across a fork.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure::Error> {
/// let domain = tenure::Domain::open("memory:").await?;
/// let ran = domain.lock("orders/42").run(async |lease| lease.fence()).await?;
/// println!("ran with fence {}", ran.value);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Domain {
    pub(super) client: Arc<Client>,
    pub(super) terms: Terms,
    /// What to call it in a log; without password.
    address: Arc<str>,
}

impl Domain {
    /// Opens a domain, and connects to its store.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a bad URL, and for a runtime without its drivers for time and I/O (`enable_all`);
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for a store that can't hold locks, [`Unavailable`](crate::ErrorKind::Unavailable) when it can't be reached: the call can be repeated.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// let domain = tenure::Domain::open("memory:").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn open<U>(url: U) -> Result<Self, Error>
    where
        U: TryInto<DomainUrl>,
        Error: From<U::Error>,
    {
        let domain = Domain::lazy(url)?;
        domain.client.backend().await?;
        Ok(domain)
    }

    /// Opens a domain of two stores: every holder on this machine holds `inner`, a directory, and `outer`, Redis, as well. So there are never two
    /// holders on this machine, whatever happens to Redis and whichever process can reach it. `degrade` says what is done while it is out of
    /// reach. The same as the options `inner` and `degrade` in the URL of `outer`; for [`lazy`](Self::lazy), join them with
    /// [`DomainUrl::layered`].
    ///
    /// # Errors
    /// As [`open`](Self::open). With [`Degrade::Allow`] it is no error that Redis can't be reached: it is connected to as soon as it can.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// use tenure::{Degrade, Domain};
    ///
    /// let domain = Domain::layered("redis://localhost", "file:///var/lock/app", Degrade::Allow).await?;
    /// let guard = domain.lock("orders/42").acquire().await?;
    /// if guard.is_degraded() {
    ///     eprintln!("other machines are not excluded");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn layered<O, I>(outer: O, inner: I, degrade: Degrade) -> Result<Self, Error>
    where
        O: TryInto<DomainUrl>,
        I: TryInto<DomainUrl>,
        Error: From<O::Error> + From<I::Error>,
    {
        Domain::open(DomainUrl::layered(outer, inner, degrade)?).await
    }

    /// A domain that connects when it is first used. All who use it first share one attempt to connect; a failed one is not
    /// remembered.
    ///
    /// Needs no runtime, so it can stand in a `static`.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a bad URL.
    ///
    /// # Examples
    /// ```
    /// use std::sync::LazyLock;
    /// use tenure::Domain;
    ///
    /// static LOCKS: LazyLock<Domain> = LazyLock::new(|| Domain::lazy("memory:").expect("a valid URL"));
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// let ran = LOCKS.lock("orders/42").run(async |_| 7).await?;
    /// assert_eq!(ran.value, 7);
    /// # Ok(())
    /// # }
    /// ```
    pub fn lazy<U>(url: U) -> Result<Self, Error>
    where
        U: TryInto<DomainUrl>,
        Error: From<U::Error>,
    {
        let url: DomainUrl = url.try_into()?;
        let terms = Terms::new(url.ttl().unwrap_or(Terms::DEFAULT_TTL), url.timeout());
        let terms = Terms { margin: url.margin(), ..terms };
        terms.check()?;
        let address = url.to_string();
        let clock = open::clock(&url);
        let connected = clock.clone();
        let connect = move |sink| open::open(&url, &connected, sink);
        Ok(Domain::with(engine::new_client(clock, Box::new(connect)), terms, &address))
    }

    pub(crate) fn with(client: Arc<Client>, terms: Terms, address: &str) -> Self {
        Domain { client, terms, address: address.into() }
    }

    /// A claim on a name: up to 1,000 bytes of any characters. No I/O; see [`Lock`] for what to do with it.
    pub fn lock(&self, name: impl AsRef<str>) -> Lock {
        Lock::new(Arc::clone(&self.client), name.as_ref(), self.terms)
    }

    /// Who holds a name, and who waits for it. Changes nothing.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) when the store can't be reached.
    ///
    /// # Cancel safety
    /// It only looks.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// # let domain = tenure::Domain::open("memory:").await?;
    /// assert!(!domain.inspect("orders/42").await?.is_held());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Status, Error> {
        let name = Name::new(name.as_ref())?;
        let Executed { reply, server, .. } = self.execute(&name, Op::Inspect).await?;
        self.status(&name, reply, server)
    }

    fn status(&self, name: &Name, reply: Reply, server: Option<u64>) -> Result<Status, Error> {
        match reply {
            Reply::Seen { holding, waiters, broken } => {
                let (now, session) = (server.unwrap_or_default(), self.client.session().id());
                Ok(Status::new(name, holding.map(Into::into), &waiters, broken, now, session))
            }
            reply => Err(crate::engine::asking::unexpected(&reply)),
        }
    }

    /// The names that are held or waited for and start with `prefix`, in order. One whose record can't be read, because something else has its keys, is
    /// left out; [`inspect`](Self::inspect) says so.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) when the store can't be reached; [`Unsupported`](crate::ErrorKind::Unsupported)
    /// where it can't be listed.
    ///
    /// # Cancel safety
    /// It only looks.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// # let domain = tenure::Domain::open("memory:").await?;
    /// let guard = domain.lock("orders/42").acquire().await?;
    /// let statuses = domain.list("orders/").await?;
    /// assert_eq!(statuses[0].name, "orders/42");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn list(&self, prefix: impl AsRef<str>) -> Result<Vec<Status>, Error> {
        self.client.check()?;
        let backend = self.client.backend().await?;
        let mut names = self.client.ask_again(self.terms.timeout(), || backend.list(prefix.as_ref())).await?;
        names.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        let (mut statuses, mut unreadable) = (Vec::with_capacity(names.len()), None);
        for names in names.chunks(backend.most_at_once().clamp(1, MOST_LOOKS_AT_ONCE)) {
            let looks: Vec<_> = names.iter().map(|name| (name.clone(), Op::Inspect)).collect();
            let answers = self.client.ask_again(self.terms.timeout(), || backend.execute_all(&looks)).await?;
            for (name, answer) in names.iter().zip(answers) {
                let status = match answer {
                    Some(Ok(Answer { reply, server, .. })) => self.status(name, reply, server)?,
                    None => self.inspect(name.as_str()).await?,
                    Some(Err(error)) if error.is_worth_asking_again() => self.inspect(name.as_str()).await?,
                    // Something else has the keys of this name. The others can be shown all the same.
                    Some(Err(error)) if error.kind() == ErrorKind::Protocol => {
                        unreadable = Some(error);
                        continue;
                    }
                    Some(Err(error)) => return Err(error),
                };
                if status.is_held() || !status.waiters.is_empty() {
                    statuses.push(status);
                }
            }
        }
        unreadable.filter(|_| statuses.is_empty()).map_or(Ok(statuses), Err)
    }

    /// Ends the lease that was [inspected](Self::inspect), whichever task of its process has its turn on it, and no other lease that came
    /// after it. Its holder is told if it lives, and may be at work until then; the name goes to the next at once.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) when the store can't be reached.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open whether the lease was ended.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// # let domain = tenure::Domain::open("memory:").await?;
    /// use tenure::Release;
    ///
    /// let guard = domain.lock("orders/42").acquire().await?;
    /// let holder = domain.inspect("orders/42").await?.holder.unwrap();
    /// assert_eq!(domain.break_lock("orders/42", &holder).await?, Release::Released);
    /// guard.lost().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn break_lock(&self, name: impl AsRef<str>, holder: &Holder) -> Result<Release, Error> {
        let name = Name::new(name.as_ref())?;
        let op = Op::Break { token: holder.token.clone(), fence: holder.fence.get() };
        Ok(Release::from_reply(&self.execute(&name, op).await?.reply))
    }

    /// A descriptor that keeps the leases of this domain from ending with this process: while any process has it open, the store does not
    /// take this one for dead. Give it to a child that must not outlive the lock. It does not renew: a lease still ends with its ttl.
    ///
    /// `None` where the store does not see deaths, and leases end by their ttl alone.
    ///
    /// # Errors
    /// As [`open`](Self::open), when it was not opened before.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// # let domain = tenure::Domain::open("memory:").await?;
    /// assert!(domain.lifeline().await?.is_none(), "memory ends with its process");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lifeline(&self) -> Result<Option<OwnedFd>, Error> {
        self.client.check()?;
        self.client.backend().await?.lifeline()
    }

    /// Asks the store for its health. No lock is taken.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) when the store can't be reached.
    ///
    /// # Cancel safety
    /// It only looks.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// # let domain = tenure::Domain::open("memory:").await?;
    /// println!("an answer takes {:?}", domain.health().await?.round_trip);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn health(&self) -> Result<Health, Error> {
        let backend = self.client.backend().await?;
        let sent = self.client.clock.now();
        let probe = Name::new("tenure/health").expect("a valid name");
        self.execute(&probe, Op::Inspect).await?;
        Ok(Health { round_trip: self.client.clock.now().since(sent), warnings: backend.warnings() })
    }

    /// What the store has to warn of: the same as in [`Health`], without asking a server anything.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) when the store can't be opened.
    ///
    /// # Cancel safety
    /// It only looks.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// # let domain = tenure::Domain::open("memory:").await?;
    /// for warning in domain.warnings().await? {
    ///     eprintln!("{warning}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn warnings(&self) -> Result<Vec<String>, Error> {
        Ok(self.client.backend().await?.warnings())
    }

    /// Looks at everything that makes the store fit to hold locks, and says of each thing whether it is. Takes, hands over and breaks a lock on a name
    /// of its own, for which it opens two more clients, and leaves nothing behind.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`Unavailable`](crate::ErrorKind::Unavailable) when the store goes away meanwhile. That it can be used in part is
    /// no error, but a finding.
    ///
    /// # Cancel safety
    /// What was not removed yet expires: the lock after some seconds, the last fence of its name, on Redis, after `fence_memory`.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// # let domain = tenure::Domain::open("memory:").await?;
    /// use tenure::Verdict;
    ///
    /// let worst = domain.examine().await?.into_iter().map(|finding| finding.verdict).max();
    /// assert_ne!(worst, Some(Verdict::Unfit));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn examine(&self) -> Result<Vec<Finding>, Error> {
        self.client.check()?;
        let backend = self.client.backend().await?;
        let give_up = self.client.clock.now() + LONGEST_EXAMINATION;
        self.client.in_time(give_up, backend.examine()).await
    }

    /// Removes what the store remembers of a name that is never used again: for names that were made up for a measurement.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) when the store can't be reached.
    #[doc(hidden)]
    pub async fn forget(&self, name: impl AsRef<str>) -> Result<(), Error> {
        let name = Name::new(name.as_ref())?;
        let backend = self.client.backend().await?;
        self.client.ask_again(self.terms.timeout(), || backend.forget(&name)).await
    }

    /// What this kind of store can do.
    ///
    /// # Errors
    /// As [`open`](Self::open), when it was not opened before.
    pub async fn capabilities(&self) -> Result<Vec<Capability>, Error> {
        self.client.check()?;
        Ok(self.client.backend().await?.capabilities().to_vec())
    }

    /// Whether the time in which the machine sleeps (suspend) counts: a lease that ends meanwhile is over when the machine wakes up. True wherever
    /// others may be awake. In a `file:` domain all who could take the name sleep as well, and a lease stands still with them.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// assert!(tenure::Domain::open("memory:").await?.counts_sleep());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn counts_sleep(&self) -> bool {
        !matches!(self.client.clock, Clock::Awake)
    }

    /// What happened in this domain, in this process, since it was opened. In a forked child: nothing.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        if !self.client.is_here() {
            return Metrics::default();
        }
        let table = self.client.table.lock();
        let mut metrics = table.metrics;
        for cohort in table.cohorts.values() {
            metrics.held += cohort.leases.len() as u64;
            metrics.waiting += cohort.waiting.len() as u64;
        }
        metrics
    }

    /// How long the store may keep what this domain dropped and could not give back yet: the leases of dropped guards, and what an acquire got whose
    /// answer was lost. An upper bound; zero when nothing is left.
    ///
    /// The background tries to give it back as long as the program runs. Ask this when you do not wait for [`close`](Self::close) any longer.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// # use std::time::Duration;
    /// # let domain = tenure::Domain::open("memory:").await?;
    /// drop(domain.lock("orders/42").acquire().await?);
    /// if tokio::time::timeout(Duration::from_secs(10), domain.close()).await.is_err() {
    ///     eprintln!("names may stay held for up to {:?}", domain.left_in_store());
    /// }
    /// # assert!(domain.left_in_store().is_zero());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn left_in_store(&self) -> Duration {
        if !self.client.is_here() {
            return Duration::ZERO;
        }
        let now = self.client.clock.now();
        self.client.leftovers.until().map_or(Duration::ZERO, |until| until.since(now))
    }

    /// Closes the domain, for all its clones. **Await this before `main` returns**, so that your names are free at once and not after a ttl.
    ///
    /// | | when `close` returns |
    /// |---|---|
    /// | a guard that was dropped, also by a dropped `run` | its name is released |
    /// | a [`run`](Lock::run) in another task | its work is stopped with [`Closed`](crate::LossKind::Closed), and its name is released |
    /// | a task that waits for a name | it has the error [`Closed`](crate::ErrorKind::Closed), and has left the queue |
    /// | a guard that you still have | it is lost, with [`Closed`](crate::LossKind::Closed). **Its name is not released**, because you may still be at work: release or drop the guard before you close |
    ///
    /// Work under `run` gets 3 s to reach its next await and to release its name. If an acquire was dropped before its answer came, `close` waits
    /// until the store can't execute it any more: up to the `timeout` of the URL. If the store does not answer, `close` tries until the leases have
    /// expired there: up to one ttl. To end sooner, put a `tokio::time::timeout` around it; then [`left_in_store`](Self::left_in_store) says for how
    /// long names may stay held.
    ///
    /// In a forked child this does nothing: the domain is its parent's.
    ///
    /// # Shutdown
    /// A dropped guard is released in the background, by a task on the runtime. When `main` returns, the runtime is dropped with this task in it, and
    /// the name stays held until its ttl is over. `close` waits for the task:
    /// ```no_run
    /// use tokio::signal::unix::{SignalKind, signal};
    ///
    /// # async fn work(fence: tenure::Fence) {}
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let mut sigterm = signal(SignalKind::terminate())?;
    ///     let domain = tenure::Domain::open("redis://localhost").await?;
    ///     let lock = domain.lock("orders/42");
    ///     let ended = tokio::select! {
    ///         ran = lock.run(async |lease| work(lease.fence()).await) => ran.map(drop),
    ///         _ = sigterm.recv() => Ok(()), // `run` is dropped: its work stops, and the release begins
    ///     };
    ///     domain.close().await; // the release has ended
    ///     Ok(ended?)
    /// }
    /// ```
    ///
    /// # Cancel safety
    /// The domain is closed by the first poll. Dropping the future only stops the wait for what is under way.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// # let domain = tenure::Domain::open("memory:").await?;
    /// use tenure::{ErrorKind, LossKind};
    ///
    /// let guard = domain.lock("orders/42").acquire().await?;
    /// domain.close().await;
    /// assert_eq!(*guard.lost().await.kind(), LossKind::Closed);
    /// let error = domain.lock("orders/42").acquire().await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Closed);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn close(&self) {
        if !self.client.is_here() {
            return;
        }
        self.client.close();
        let (tasks, clock) = (&self.client.tasks, &self.client.clock);
        // First the work that is stopped, because what it leaves behind may have to be done in the background. A `run` that nobody polls
        // never ends.
        let waiting = async {
            clock.until(clock.now() + LONGEST_STOP, tasks.runs_ended()).await;
            tasks.all_done().await;
        };
        // A forked child does not wait for its parent's work.
        let _ = AtHome::new(Home::here(), waiting).await;
    }

    pub(super) async fn execute(&self, name: &Name, op: Op) -> Result<Executed, Error> {
        self.begin().await?;
        self.client.backend().await?;
        self.client.execute(name, op, self.terms.timeout()).await
    }

    /// Before each request: a loop of requests that fail at once must not starve the other tasks of its thread, one of which connects again.
    pub(super) async fn begin(&self) -> Result<(), Error> {
        tokio::task::coop::consume_budget().await;
        self.client.check()
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Domain").field(&self.address).finish()
    }
}
