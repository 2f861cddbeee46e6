//! Independent servers, and clients of them, each with connections of its own.

use std::time::Duration;

use tenure::Domain;
use tenure_testkit::redis::{Proxy, RedisServer};

pub(crate) const NAME: &str = "orders/42";
/// The key of that name.
pub(crate) const KEY: &str = "tenure:orders/42";
/// A ttl that does not end within a test, unless the test waits for it.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// Longer than any ttl of these tests, so that a group counts as soon as it is started.
const OLD: Duration = Duration::from_secs(600);

pub(crate) struct Scene {
    pub(crate) servers: Vec<RedisServer>,
}

pub(crate) struct Peer {
    pub(crate) domain: Domain,
    pub(crate) lines: Vec<Proxy>,
}

impl Scene {
    pub(crate) fn new(servers: usize) -> Self {
        Scene { servers: (0..servers).map(|_| RedisServer::builder().aged(OLD).start()).collect() }
    }

    pub(crate) fn url(&self, ttl: Duration) -> String {
        url(self.servers.iter().map(RedisServer::port), ttl)
    }

    pub(crate) async fn client(&self, ttl: Duration) -> Domain {
        Domain::open(self.url(ttl)).await.expect("a majority")
    }

    /// A client whose connections can be cut.
    pub(crate) async fn peer(&self, ttl: Duration) -> Peer {
        let lines: Vec<_> = self.servers.iter().map(Proxy::new).collect();
        let domain = Domain::open(url(lines.iter().map(Proxy::port), ttl)).await.expect("a majority");
        Peer { domain, lines }
    }

    /// The servers that have the lock's key.
    pub(crate) fn holders(&self) -> Vec<usize> {
        self.holders_of(&(0..self.servers.len()).collect::<Vec<_>>())
    }

    /// Those among these servers.
    pub(crate) fn holders_of(&self, servers: &[usize]) -> Vec<usize> {
        let has_it = |server: &&usize| self.servers[**server].command(&["EXISTS", KEY]).int() == 1;
        servers.iter().filter(has_it).copied().collect()
    }
}

pub(crate) fn url(ports: impl Iterator<Item = u16>, ttl: Duration) -> String {
    let hosts: Vec<_> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
    format!("redis+quorum://{}?ttl={}ms", hosts.join(","), ttl.as_millis())
}
