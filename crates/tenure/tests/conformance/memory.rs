//! Stores that need nothing but this process: memory in real time, on all threads, and memory with a clock that the tests own, where
//! expiries and outages are exact.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::{Domain, Ticket, testing};
use tenure_testkit::conformance;
use tenure_testkit::conformance::{Ability, Client, Doing, Fixture, die_in_process};
use tokio::runtime::{Builder, Runtime};

use crate::{Shared, without_a_line};

/// `memory:NAME`, in real time.
struct RealTime {
    url: String,
    /// A shared store lives as long as someone uses it.
    _keep: Domain,
}

impl RealTime {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let url = format!("memory:conformance-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let keep = Domain::lazy(&url).expect("a valid URL");
        let opened = keep.clone();
        let open = async move { drop(opened.health().await.expect("a store in this process")) };
        Builder::new_current_thread().build().expect("a runtime").block_on(open);
        RealTime { url, _keep: keep }
    }

    async fn open(&self) -> Domain {
        Domain::open(&self.url).await.expect("a store in this process")
    }
}

impl Fixture for RealTime {
    type Client = Shared;

    fn runtime(&self) -> Runtime {
        Builder::new_multi_thread().worker_threads(4).enable_time().build().expect("a runtime")
    }

    async fn client(&self) -> Shared {
        Shared(self.open().await)
    }

    async fn let_pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    async fn die(&self, doing: Doing, name: &str, ttl: Duration) -> Option<Ticket> {
        die_in_process(self.open(), doing, name, ttl)
    }

    fn lacks(&self) -> &'static [(Ability, &'static str)] {
        &[
            (Ability::CutOff, "there is no line to cut between a process and its own memory"),
            (
                Ability::Die(Doing::Waiting),
                "a grant wakes a waiter of the same process by a call, however dead it plays",
            ),
            (Ability::LoseReplies, "there is no reply to lose between a process and its own memory"),
        ]
    }
}

without_a_line!(
    memory,
    RealTime::new(),
    nor [
        waiting::a_dead_waiter_is_skipped,
        waiting::a_row_of_dead_waiters_is_skipped,
        waiting::a_dead_waiter_leaves_nothing_behind,
    ]
);

/// [`testing::Store`], whose time stands still until it is moved.
struct OwnTime(testing::Store);

struct OnALine(testing::Client);

impl Client for OnALine {
    fn domain(&self) -> &Domain {
        self.0.domain()
    }

    async fn cut_off(&self) {
        self.0.cut_off();
    }

    async fn reconnect(&self) {
        self.0.reconnect();
    }

    async fn lose_next_reply(&self) {
        self.0.lose_next_reply();
    }
}

impl Fixture for OwnTime {
    type Client = OnALine;

    /// One thread: the clock moves when everything on it is at rest.
    fn runtime(&self) -> Runtime {
        Builder::new_current_thread().enable_time().build().expect("a runtime")
    }

    async fn client(&self) -> OnALine {
        OnALine(self.0.client())
    }

    fn let_pass(&self, time: Duration) -> impl Future<Output = ()> + Send {
        self.0.advance(time)
    }

    async fn die(&self, doing: Doing, name: &str, ttl: Duration) -> Option<Ticket> {
        let client = self.0.client();
        let ticket = die_in_process(async { client.domain().clone() }, doing, name, ttl);
        client.cut_off();
        ticket
    }
}

conformance!(memory_with_own_time, OwnTime(testing::Store::new()), without []);
