//! The async part against a store that misbehaves (I5, R1.4, R3.5, R3.6, R3.7).
//!
//! Two clients share a store in memory; all requests of the first pass [gates](crate::backend::gate). Whatever happened to it, once
//! the gates are open again and one ttl has passed, [`World::is_clean`] holds: nobody waits, nothing is held, nothing runs in the
//! background, and the name can be had by anyone. Time is the manual clock's; real time only bounds what may hang.

use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::api::domain::Domain;
use crate::api::guard::Guard;
use crate::backend::Backend;
use crate::backend::gate::{Fate, Gates, Kind, Run};
use crate::backend::memory::{Memory, MemoryStore};
use crate::core::deadlines::Terms;
use crate::core::record::{Op, Reply};
use crate::engine::client::Client;
use crate::time::clock::Clock;
use crate::time::manual_clock::ManualClock;
use crate::types::name::Name;

mod answers;
mod layered;
mod loss;
mod matrix;
mod opening;
mod pushes;
mod regressions;
mod runtimes;
mod verbs;

const MS: Duration = Duration::from_millis(1);
const TTL: Duration = Duration::from_secs(2);
/// Far more than any cell needs: what takes this long hangs.
const HANGS: Duration = Duration::from_secs(20);
const NAME: &str = "orders/42";

/// One client of the store, as if it were a process.
struct Party {
    domain: Domain,
    client: Weak<Client>,
    gates: Arc<Gates>,
}

impl Party {
    fn lock(&self) -> crate::Lock {
        self.domain.lock(NAME)
    }

    async fn holds(&self) -> Guard {
        self.lock().acquire().await.expect("the gates are open")
    }
}

struct World {
    clock: Arc<ManualClock>,
    store: Arc<MemoryStore>,
    observer: Memory,
    mine: Party,
    other: Party,
}

impl World {
    fn new() -> Self {
        World::on(Arc::new(ManualClock::new()))
    }

    fn on(clock: Arc<ManualClock>) -> Self {
        let store = Arc::new(MemoryStore::new(Clock::Manual(Arc::clone(&clock))));
        let nobody: Weak<Client> = Weak::new();
        World {
            observer: Memory::connect(Arc::clone(&store), nobody),
            mine: party(&clock, &store),
            other: party(&clock, &store),
            clock,
            store,
        }
    }

    async fn pass(&self, time: Duration) {
        self.clock.advance(time).await;
    }

    /// Lets everything run that can, without time.
    async fn settle(&self) {
        self.clock.advance(Duration::ZERO).await;
    }

    /// How many hold, and how many wait, in the store.
    fn seen(&self) -> (usize, usize) {
        let name = Name::new(NAME).expect("a valid name");
        match self.observer.execute(&name, Op::Inspect) {
            crate::backend::Pending::Now(Some(Ok(answer))) => match answer.reply {
                Reply::Seen { holding, waiters, .. } => (usize::from(holding.is_some()), waiters.len()),
                reply => unreachable!("{reply:?}"),
            },
            _ => unreachable!("the memory store answers at once"),
        }
    }

    /// Opens the gates, lets one ttl pass, and finds nothing left of whatever happened before.
    async fn is_clean(&self, cell: &str) {
        self.mine.gates.open();
        self.pass(TTL).await;
        self.is_empty(cell).await;
    }

    async fn is_empty(&self, cell: &str) {
        assert_eq!(self.seen(), (0, 0), "{cell}: holders and waiters in the store");
        assert_eq!(self.store.record_count(), 0, "{cell}: records in the store");
        for party in [&self.mine, &self.other] {
            let metrics = party.domain.metrics();
            assert_eq!((metrics.held, metrics.waiting), (0, 0), "{cell}: held and waiting here");
            let client = party.client.upgrade().expect("the domain lives");
            assert!(client.table.lock().cohorts.is_empty(), "{cell}: a cohort is left");
            let done = soon(client.tasks.all_done()).await;
            assert!(done.is_some(), "{cell}: something runs in the background");
        }
        let next = soon(self.other.lock().try_acquire()).await;
        let next = next.unwrap_or_else(|| panic!("{cell}: the next one hangs"));
        assert!(next.expect("the gates are open").is_acquired(), "{cell}: not free");
    }
}

fn party(clock: &Arc<ManualClock>, store: &Arc<MemoryStore>) -> Party {
    let clock = Clock::Manual(Arc::clone(clock));
    let gates = Gates::new(clock.clone());
    let client = crate::engine::new_client(clock, gates.connect(store));
    Party {
        client: Arc::downgrade(&client),
        domain: Domain::with(client, Terms::new(TTL, None), "gate:"),
        gates,
    }
}

/// The output of a future that needs no time, only a few turns of the executor.
async fn soon<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    for _ in 0..100 {
        let output = std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(output) = output {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}

/// Runs a test to its end; ends the process if it hangs, for nothing else can.
fn test(cell: &str, future: impl Future<Output = ()>) {
    let (ended, end) = std::sync::mpsc::channel::<()>();
    let name = cell.to_owned();
    let watchdog = std::thread::spawn(move || {
        if end.recv_timeout(HANGS) == Err(RecvTimeoutError::Timeout) {
            eprintln!("{name}: hangs");
            std::process::abort();
        }
    });
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future);
    drop(ended);
    watchdog.join().expect("it only waits");
}

/// A future that is polled by hand, as often as the test wants.
struct ByHand<T> {
    future: Pin<Box<dyn Future<Output = T>>>,
    woken: Arc<Woken>,
}

#[derive(Default)]
struct Woken(std::sync::atomic::AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

impl<T> ByHand<T> {
    fn new(future: impl Future<Output = T> + 'static) -> Self {
        ByHand { future: Box::pin(future), woken: Arc::default() }
    }

    fn poll(&mut self) -> Option<T> {
        self.woken.0.store(false, std::sync::atomic::Ordering::SeqCst);
        let waker = Waker::from(Arc::clone(&self.woken));
        match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    fn is_woken(&self) -> bool {
        self.woken.0.load(std::sync::atomic::Ordering::SeqCst)
    }
}
