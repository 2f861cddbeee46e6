//! Keeper, cohort and guard under permuted schedules (I4, I5, R1.4, R3.5 to R3.7).
//!
//! Shuttle runs a scenario thousands of times on one thread, and chooses at every lock and every atomic who goes on: at random, and by
//! few but hard changes of priority (PCT). A failure prints the seed or the schedule that repeats it. `TENURE_SCHEDULES=20` runs twenty
//! times as many.
//!
//! Time stands still unless a scenario moves it: no beat, no deadline and no second look repairs a lost wake-up, so whoever is
//! forgotten is reported as a deadlock. Every scenario runs on the memory store itself, which answers inside the call, and
//! behind a [wire], where a push overtakes answers and a cancelled request is executed all the same.

mod holding;
mod turns;
mod waiting;
mod wire;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use shuttle::future::{JoinHandle, block_on, spawn, yield_now};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

use crate::api::domain::Domain;
use crate::api::guard::Guard;
use crate::api::lock::Lock;
use crate::backend::memory::{Memory, MemoryStore};
use crate::backend::{Backend, Pending};
use crate::core::deadlines::Terms;
use crate::engine::client::Client;
use crate::time::clock::Clock;
use crate::time::manual_clock::ManualClock;

const MS: Duration = Duration::from_millis(1);
const TTL: Duration = Duration::from_secs(10);
const NAME: &str = "orders/42";
/// Schedules of each kind, for each scenario on each store.
const SCHEDULES: usize = 100;
/// How often PCT changes priorities in one schedule.
const DEPTH: usize = 4;
/// Futures are big when nothing is optimized.
const STACK: usize = 256 * 1024;

/// How a client reaches the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Direct,
    Wire,
}

/// Three clients of one store, as if they were processes.
struct World {
    line: Line,
    clock: Arc<ManualClock>,
    store: Arc<MemoryStore>,
    domains: [Domain; 3],
    clients: [Weak<Client>; 3],
    /// How often they connected.
    connects: Arc<AtomicUsize>,
}

impl World {
    fn new(line: Line) -> Self {
        let clock = Arc::new(ManualClock::new());
        let store = Arc::new(MemoryStore::new(Clock::Manual(Arc::clone(&clock))));
        let connects = Arc::<AtomicUsize>::default();
        let clients = [0, 1, 2].map(|_| connect(line, &clock, &store, &connects));
        World {
            line,
            clients: clients.each_ref().map(Arc::downgrade),
            domains: clients.map(|client| Domain::with(client, Terms::new(TTL, None), "schedules:")),
            clock,
            store,
            connects,
        }
    }

    fn lock(&self, client: usize) -> Lock {
        self.domains[client].lock(NAME)
    }

    async fn holds(&self, client: usize) -> Guard {
        self.lock(client).acquire().await.expect("nobody has it")
    }

    /// A task of a client that waits for the name, has its turn, and tells its fence.
    fn waiter(&self, client: usize) -> JoinHandle<u64> {
        let lock = self.lock(client);
        spawn(async move {
            let guard = lock.acquire().await.expect("the store is there");
            guard.fence().get()
        })
    }

    /// The same where time passes: it goes on when the store did not answer in time.
    fn patient_waiter(&self, client: usize) -> JoinHandle<()> {
        let lock = self.lock(client);
        spawn(async move {
            while let Err(error) = lock.acquire().await.map(drop) {
                assert!(error.is_transient(), "{error}");
            }
        })
    }

    async fn background_ends(&self) {
        // What ends here may begin something there: a hand-over.
        for client in [&self.clients, &self.clients].into_iter().flatten() {
            client.upgrade().expect("its domain lives").tasks.all_done().await;
        }
    }

    /// Moves time until a future is ready.
    async fn while_time_passes<T>(&self, step: Duration, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(output) = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await {
                return output;
            }
            yield_now().await;
            self.clock.jump(step);
        }
    }

    /// Nothing is left, anywhere (I5, R3.5).
    async fn ends_clean(self) {
        match self.line {
            Line::Direct => self.background_ends().await,
            // A request that was cancelled on its way may be executed until its time is up; then its ghost is laid.
            Line::Wire => self.while_time_passes(100 * MS, self.background_ends()).await,
        }
        // What nobody waits for may still be on the wire.
        for _ in 0..1_000 {
            if self.store.record_count() > 0 {
                yield_now().await;
            }
        }
        assert_eq!(self.store.record_count(), 0, "records in the store: {:?}", self.store);
        for (domain, client) in self.domains.iter().zip(&self.clients) {
            let metrics = domain.metrics();
            assert_eq!((metrics.held, metrics.waiting), (0, 0), "held and waiting here");
            assert!(client.upgrade().expect("its domain lives").table.lock().cohorts.is_empty());
        }
        let World { clock, store, clients, domains, .. } = self;
        drop(domains);
        // The keepers have the clock, the drivers of the wires have the store.
        let is_alive = || clients.iter().any(|client| client.strong_count() > 0);
        for _ in 0..10_000 {
            if !is_alive() && Arc::strong_count(&store) == 1 && Arc::strong_count(&clock) == 2 {
                return;
            }
            yield_now().await;
        }
        assert!(!is_alive(), "something keeps a client alive");
        panic!("something runs in the background without a client");
    }
}

fn connect(
    line: Line,
    clock: &Arc<ManualClock>,
    store: &Arc<MemoryStore>,
    connects: &Arc<AtomicUsize>,
) -> Arc<Client> {
    let (store, connects) = (Arc::clone(store), Arc::clone(connects));
    let connect = move |sink| {
        connects.fetch_add(1, Ordering::Relaxed);
        let memory = Memory::connect(Arc::clone(&store), sink);
        match line {
            Line::Direct => Pending::now(Ok(Arc::new(memory) as Arc<dyn Backend>)),
            Line::Wire => wire::connect(memory),
        }
    };
    crate::engine::new_client(Clock::Manual(Arc::clone(clock)), Box::new(connect))
}

/// Runs a scenario under many schedules, on either line; afterwards nothing is left.
fn permute(scenario: impl AsyncFn(&World) + Copy + Send + Sync + 'static) {
    let factor = std::env::var("TENURE_SCHEDULES").ok().and_then(|factor| factor.parse().ok());
    let count = SCHEDULES * factor.unwrap_or(1);
    for line in [Line::Direct, Line::Wire] {
        println!("line: {line:?}");
        let run = move || {
            block_on(async {
                let world = World::new(line);
                scenario(&world).await;
                world.ends_clean().await;
            });
        };
        Runner::new(RandomScheduler::new(count), config()).run(run);
        Runner::new(PctScheduler::new(DEPTH, count), config()).run(run);
    }
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = STACK;
    config.silence_warnings = true;
    config
}

/// Lets the others go on, for a while of random length.
async fn some_time(at_most: usize) {
    for _ in 0..thread_rng().gen_range(0..at_most) {
        yield_now().await;
    }
}

/// Does something at a random moment.
fn sometime(at_most: usize, action: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    spawn(async move {
        some_time(at_most).await;
        action();
    })
}

/// Cancels a task at a random moment; what it came to, if it was faster.
async fn cancelled<T: 'static>(task: JoinHandle<T>) -> Option<T> {
    let abort = task.abort_handle();
    let abort = sometime(12, move || abort.abort());
    let output = task.await.ok();
    done(abort).await;
    output
}

/// Waits for a task that does not panic and is not cancelled.
async fn done<T>(task: impl Future<Output = Result<T, shuttle::future::JoinError>>) -> T {
    task.await.expect("it is not cancelled")
}
