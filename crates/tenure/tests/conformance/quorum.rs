//! A majority of three servers, and a proxy in front of each for every client: its lines can be cut, and replies can be lost, on all at once.
//!
//! The cases that run at the same time share the servers, under prefixes of their own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tenure::{Domain, Ticket};
use tenure_testkit::conformance;
use tenure_testkit::conformance::{Client, Doing, Fixture};
use tenure_testkit::redis::{Fault, Proxy, RedisServer, named};
use tokio::runtime::{Builder, Runtime};

use crate::{doomed, without_order};

/// Longer than any ttl of the cases, which is 24 hours, so that the group counts as soon as it is started.
const OLD: Duration = Duration::from_secs(48 * 60 * 60);

type Trio = [RedisServer; 3];
type Lines = [Proxy; 3];

struct Majority {
    servers: Arc<Trio>,
    prefix: u64,
    /// A guard or a task may outlive its client: nobody's lines end before the case.
    lines: Mutex<Vec<Arc<Lines>>>,
}

impl Majority {
    fn new() -> Self {
        static SHARED: Mutex<Weak<Trio>> = Mutex::new(Weak::new());
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut shared = SHARED.lock().expect("no panic");
        let servers = shared
            .upgrade()
            .unwrap_or_else(|| Arc::new([(); 3].map(|()| RedisServer::builder().aged(OLD).start())));
        *shared = Arc::downgrade(&servers);
        Majority { servers, prefix: NEXT.fetch_add(1, Ordering::Relaxed), lines: Mutex::default() }
    }

    fn url(&self, ports: [u16; 3]) -> String {
        let hosts = ports.map(|port| format!("127.0.0.1:{port}")).join(",");
        format!("redis+quorum://{hosts}?prefix=case-{}:", self.prefix)
    }
}

/// A client behind proxies of its own.
struct Proxied {
    domain: Domain,
    lines: Arc<Lines>,
}

impl Client for Proxied {
    fn domain(&self) -> &Domain {
        &self.domain
    }

    async fn cut_off(&self) {
        self.lines.iter().for_each(Proxy::cut);
    }

    async fn reconnect(&self) {
        self.lines.iter().for_each(Proxy::heal);
        while self.domain.health().await.map_or(true, |health| !health.warnings.is_empty()) {
            tokio::task::yield_now().await;
        }
    }

    async fn lose_next_reply(&self) {
        self.lines.iter().for_each(|line| line.inject(Fault::SwallowThenReset, 1, named("EVALSHA")));
    }
}

impl Fixture for Majority {
    type Client = Proxied;

    fn runtime(&self) -> Runtime {
        Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
    }

    async fn client(&self) -> Proxied {
        let lines = Arc::new([0, 1, 2].map(|server| Proxy::new(&self.servers[server])));
        self.lines.lock().expect("no panic").push(Arc::clone(&lines));
        let url = self.url([0, 1, 2].map(|line| lines[line].port()));
        Proxied { domain: Domain::open(&url).await.expect("three servers"), lines }
    }

    async fn let_pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    async fn die(&self, doing: Doing, name: &str, ttl: Duration) -> Option<Ticket> {
        doomed::kill(&self.url([0, 1, 2].map(|server| self.servers[server].port())), doing, name, ttl)
    }
}

// Order is not promised; a name that is handed over is nobody's until a majority was asked; and a server that was not needed for a grant may
// have granted a fence of its own, which it shows to whoever asks it alone.
without_order!(quorum, Majority::new());
