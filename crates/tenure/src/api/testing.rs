//! For testing your own locking code: a store in memory whose time you move and whose clients you can cut off.
//!
//! Each [`Client`] stands for a process of its own. Time stands still until [`Store::advance`] moves it, so a test of an expiry takes no
//! time and never depends on how busy the machine is.
//!
//! # Examples
//! What does my worker do when it loses the lock?
//! ```
//! use std::time::Duration;
//! use tenure::testing::Store;
//! use tenure::LossKind;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tenure::Error> {
//! let store = Store::new();
//! let (mine, other) = (store.client(), store.client());
//!
//! let guard = mine.domain().lock("orders/42").acquire().await?;
//! store.advance(Duration::from_secs(60)).await;
//! assert!(guard.is_held(), "it was renewed all the time");
//!
//! mine.cut_off();
//! store.advance(Duration::from_secs(11)).await;
//! assert_eq!(*guard.lost().await.kind(), LossKind::Unreachable);
//!
//! let next = other.domain().lock("orders/42").acquire().await?;
//! assert!(next.fence() > guard.fence());
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::api::domain::Domain;
use crate::backend::memory::{Faults, Memory, MemoryStore};
use crate::backend::{Backend, Pending};
use crate::core::deadlines::Terms;
use crate::engine;
use crate::time::clock::Clock;
use crate::time::manual_clock::ManualClock;

/// A store in memory, with a clock that you move.
#[derive(Clone, Debug)]
pub struct Store {
    clock: Arc<ManualClock>,
    store: Arc<MemoryStore>,
}

impl Store {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        let clock = Arc::new(ManualClock::new());
        let store = Arc::new(MemoryStore::new(Clock::Manual(Arc::clone(&clock))));
        Store { clock, store }
    }

    /// A new client of the store, as if it were another process.
    #[must_use]
    pub fn client(&self) -> Client {
        let faults = Arc::<Faults>::default();
        let (store, line) = (Arc::clone(&self.store), Arc::clone(&faults));
        let connect = move |sink| {
            let connected = store.check_process().map(|()| {
                let backend = Memory::connect_by(Arc::clone(&store), sink, Arc::clone(&line));
                Arc::new(backend) as Arc<dyn Backend>
            });
            Pending::now(connected)
        };
        let client = engine::new_client(Clock::Manual(Arc::clone(&self.clock)), Box::new(connect));
        Client { domain: Domain::with(client, Terms::new(Terms::DEFAULT_TTL, None), "memory:"), faults }
    }

    /// Moves time, step by step: whatever is due on the way (a renewal, a deadline, a beat) is done when its moment comes. Between two steps
    /// the other tasks run until they wait again, or 32 times over.
    ///
    /// # Panics
    /// Outside a `current_thread` runtime: on several threads nobody knows when the others are done with a step.
    ///
    /// # Cancel safety
    /// Dropping the future stops time where it is.
    pub async fn advance(&self, by: Duration) {
        #[cfg(not(shuttle))]
        {
            use tokio::runtime::{Handle, RuntimeFlavor};
            let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
            let is_fit = matches!(flavor, Ok(RuntimeFlavor::CurrentThread));
            assert!(
                is_fit,
                "Store::advance needs a `current_thread` runtime, which #[tokio::test] makes by default"
            );
        }
        self.clock.advance(by).await;
    }

    /// Moves time at once, past everything that was due: what a process sees that was stopped, or whose machine slept.
    pub fn jump(&self, by: Duration) {
        self.clock.jump(by);
    }
}

impl Default for Store {
    fn default() -> Self {
        Store::new()
    }
}

/// One client of a [`Store`], as if it were a process.
#[derive(Debug)]
pub struct Client {
    domain: Domain,
    faults: Arc<Faults>,
}

impl Client {
    /// The domain, to be handed to the code under test.
    #[must_use]
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    /// Cuts this client off from the store: it gets [`Unavailable`](crate::ErrorKind::Unavailable) at once, hears nothing, and the store does
    /// not notice.
    pub fn cut_off(&self) {
        self.faults.is_cut.store(true, Ordering::SeqCst);
    }

    /// Lets requests of this client go unanswered, and not be executed: it waits until its time is up, and hears nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// use std::time::Duration;
    ///
    /// let store = tenure::testing::Store::new();
    /// let client = store.client();
    /// client.hang();
    /// let lock = client.domain().lock("orders/42");
    /// let acquire = tokio::spawn(async move { lock.acquire().await.map(drop) });
    ///
    /// store.advance(Duration::from_secs(3)).await;
    /// assert!(acquire.await.unwrap().unwrap_err().is_transient());
    /// # Ok(())
    /// # }
    /// ```
    pub fn hang(&self) {
        self.faults.hangs.store(true, Ordering::SeqCst);
    }

    /// Lets the next request be executed and its answer be lost: what code that repeats its requests must survive.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// use std::time::Duration;
    ///
    /// let store = tenure::testing::Store::new();
    /// let client = store.client();
    /// client.lose_next_reply();
    /// let lock = client.domain().lock("orders/42");
    /// let acquire = tokio::spawn(async move { lock.acquire().await });
    ///
    /// store.advance(Duration::from_secs(1)).await;
    /// assert!(acquire.await.unwrap()?.is_held(), "it was asked for again, with the same token");
    /// # Ok(())
    /// # }
    /// ```
    pub fn lose_next_reply(&self) {
        self.faults.lost_replies.fetch_add(1, Ordering::SeqCst);
    }

    /// Ends what [`cut_off`](Self::cut_off) and [`hang`](Self::hang) began. What hung is not answered any more.
    pub fn reconnect(&self) {
        self.faults.is_cut.store(false, Ordering::SeqCst);
        self.faults.hangs.store(false, Ordering::SeqCst);
    }
}
