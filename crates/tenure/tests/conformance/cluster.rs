//! A cluster of three masters with a replica each.
//!
//! The cases that run at the same time share one cluster, under prefixes of their own: it takes seconds to start. The prefixes also spread
//! the cases, and the names of each, over all slots. What a failover does is not shown here, so these nodes are patient.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tenure::{Domain, Ticket};
use tenure_testkit::conformance;
use tenure_testkit::conformance::{Ability, Doing, Fixture};
use tenure_testkit::redis::Cluster;
use tokio::runtime::{Builder, Runtime};

use crate::{Shared, doomed, without_a_line};

struct OnCluster {
    cluster: Arc<Cluster>,
    prefix: u64,
}

impl OnCluster {
    fn new() -> Self {
        static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut shared = SHARED.lock().expect("no panic");
        let cluster = shared
            .upgrade()
            .unwrap_or_else(|| Arc::new(Cluster::builder().node_timeout(Duration::from_secs(60)).start()));
        *shared = Arc::downgrade(&cluster);
        OnCluster { cluster, prefix: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    fn url(&self) -> String {
        format!("{}?prefix=case-{}:", self.cluster.url(), self.prefix)
    }
}

impl Fixture for OnCluster {
    type Client = Shared;

    fn runtime(&self) -> Runtime {
        Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
    }

    async fn client(&self) -> Shared {
        Shared(Domain::open(&self.url()).await.expect("a cluster"))
    }

    async fn let_pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    async fn die(&self, doing: Doing, name: &str, ttl: Duration) -> Option<Ticket> {
        doomed::kill(&self.url(), doing, name, ttl)
    }

    fn lacks(&self) -> &'static [(Ability, &'static str)] {
        &[
            (Ability::CutOff, "nodes name each other, and no proxy in front of them"),
            (Ability::LoseReplies, "nodes name each other, and no proxy in front of them"),
        ]
    }
}

// R3.8
without_a_line!(cluster, OnCluster::new(), nor []);
