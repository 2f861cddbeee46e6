//! A master that is found through three Sentinels, with two replicas.
//!
//! The cases that run at the same time share one set of servers, under prefixes of their own: it takes seconds to start. What a failover
//! does is not shown here, so these Sentinels are patient.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tenure::{Domain, Ticket};
use tenure_testkit::conformance;
use tenure_testkit::conformance::{Ability, Doing, Fixture};
use tenure_testkit::redis::Trio;
use tokio::runtime::{Builder, Runtime};

use crate::{Shared, doomed, without_a_line};

struct ThroughSentinel {
    trio: Arc<Trio>,
    prefix: u64,
    replicas: &'static str,
}

impl ThroughSentinel {
    fn new() -> Self {
        static SHARED: Mutex<Weak<Trio>> = Mutex::new(Weak::new());
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut shared = SHARED.lock().expect("no panic");
        let trio = shared.upgrade().unwrap_or_else(|| Arc::new(Trio::start()));
        *shared = Arc::downgrade(&trio);
        ThroughSentinel { trio, prefix: NEXT.fetch_add(1, Ordering::Relaxed), replicas: "" }
    }

    /// Both replicas must know of every grant.
    fn replicated() -> Self {
        ThroughSentinel { replicas: "&replicas=all", ..ThroughSentinel::new() }
    }

    fn url(&self) -> String {
        format!("{}?prefix=case-{}:{}", self.trio.url(), self.prefix, self.replicas)
    }
}

impl Fixture for ThroughSentinel {
    type Client = Shared;

    fn runtime(&self) -> Runtime {
        Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
    }

    async fn client(&self) -> Shared {
        Shared(Domain::open(&self.url()).await.expect("a master"))
    }

    async fn let_pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    async fn die(&self, doing: Doing, name: &str, ttl: Duration) -> Option<Ticket> {
        doomed::kill(&self.url(), doing, name, ttl)
    }

    fn lacks(&self) -> &'static [(Ability, &'static str)] {
        &[
            (Ability::CutOff, "sentinel names the server itself, and no proxy in front of it"),
            (Ability::LoseReplies, "sentinel names the server itself, and no proxy in front of it"),
        ]
    }
}

without_a_line!(sentinel, ThroughSentinel::new(), nor []);
without_a_line!(sentinel_replicas, ThroughSentinel::replicated(), nor []);
