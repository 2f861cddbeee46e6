//! One server and one machine: a directory, and clients that each have a way of their own to the server.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tenure::{Degrade, Domain, DomainUrl, Guard};
use tenure_testkit::patience::PATIENCE;
use tenure_testkit::redis::{Proxy, RedisServer};

pub(crate) const NAME: &str = "orders/42";
/// A ttl that does not end within a test, unless it is waited for.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A directory that is removed at the end.
pub(crate) struct Machine(PathBuf);

impl Machine {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Machine(std::env::temp_dir().join(format!("tenure-layered-{}-{number}", std::process::id())))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn url(&self) -> String {
        format!("file://{}/locks", self.0.display())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

pub(crate) struct Scene {
    pub(crate) server: RedisServer,
    pub(crate) machine: Machine,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let machine = Machine::new();
        std::fs::create_dir_all(machine.path()).expect("a directory");
        Scene { server: RedisServer::start(), machine }
    }

    /// A client of its own, as another process would be.
    pub(crate) async fn peer(&self, degrade: Degrade, ttl: Duration) -> Peer {
        let proxy = Proxy::new(&self.server);
        let domain = Domain::open(self.url(&proxy, degrade, ttl)).await.expect("to open");
        Peer { domain, proxy }
    }

    pub(crate) fn url(&self, proxy: &Proxy, degrade: Degrade, ttl: Duration) -> DomainUrl {
        let outer = format!("{}?ttl={}ms", proxy.url(), ttl.as_millis());
        DomainUrl::layered(outer, self.machine.url(), degrade).expect("a valid URL")
    }
}

pub(crate) struct Peer {
    pub(crate) domain: Domain,
    pub(crate) proxy: Proxy,
}

impl Peer {
    pub(crate) async fn acquire(&self) -> Guard {
        self.domain.lock(NAME).acquire().await.expect("to acquire")
    }

    /// Takes the name, perhaps several times, until that is done in both stores; every fence is above the one before.
    pub(crate) async fn acquire_both(&self, mut above: u64) -> Guard {
        let give_up = Instant::now() + PATIENCE;
        loop {
            let guard = self.acquire().await;
            assert!(guard.fence().get() > above, "{} after {above}", guard.fence());
            if !guard.is_degraded() {
                return guard;
            }
            above = guard.fence().get();
            guard.release().await.expect("to release");
            assert!(Instant::now() < give_up, "the outer store is not used again");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
