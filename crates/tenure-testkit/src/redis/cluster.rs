//! A cluster of three masters with a replica each.
//!
//! It takes about two seconds until all of them know of each other, and as long until they have replaced a master; so a test does several
//! things with one. What happens to a cluster is done step by step by the commands that `redis-cli --cluster` sends, so that a test can stop
//! between two of them.

mod builder;
mod moving;

use super::authority::Authority;
use super::resp::Reply;
use super::server::RedisServer;
use crate::patience::block_until;
pub use builder::ClusterBuilder;
use std::path::PathBuf;
use std::time::Duration;

/// So long a node may take to answer; one that is stopped does not.
const ANSWER: Duration = Duration::from_millis(300);

/// Six nodes. They die with this value, and with this process.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<RedisServer>,
    authority: Authority,
}

impl Cluster {
    /// Without passwords and TLS; a master that is silent for a second is replaced.
    #[must_use]
    pub fn start() -> Self {
        Cluster::builder().start()
    }

    /// With settings.
    #[must_use]
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    /// As a domain is opened with, without passwords: all nodes are seeds.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of(&self.nodes.iter().collect::<Vec<_>>())
    }

    /// The same with these seeds.
    #[must_use]
    pub fn url_of(&self, seeds: &[&RedisServer]) -> String {
        let hosts = seeds.iter().map(|node| format!("127.0.0.1:{}", self.port(node)));
        format!("{}+cluster://{}", self.authority.scheme(), hosts.collect::<Vec<_>>().join(","))
    }

    /// The certificate of the authority.
    ///
    /// # Panics
    /// When it was started without [`ClusterBuilder::tls`].
    #[must_use]
    pub fn ca_path(&self) -> PathBuf {
        self.authority.ca_path()
    }

    /// All nodes, whatever their role.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The port that clients use.
    #[must_use]
    pub fn port(&self, node: &RedisServer) -> u16 {
        self.authority.port(node)
    }

    /// The slot of a key.
    ///
    /// # Panics
    /// When no node answers.
    #[must_use]
    pub fn slot(&self, key: &str) -> u16 {
        let slot = self.nodes.iter().find_map(|node| ask(node, &["CLUSTER", "KEYSLOT", key]));
        u16::try_from(slot.expect("a node that answers").int()).expect("a slot")
    }

    /// The master that has this slot, as most of the nodes that answer have it.
    ///
    /// # Panics
    /// When none of them knows.
    #[must_use]
    pub fn master_of(&self, slot: u16) -> &RedisServer {
        let named = |node| self.named_by(node, slot);
        let named: Vec<_> = self.nodes.iter().filter_map(named).collect();
        let votes = |port: u16| named.iter().filter(|named| **named == port).count();
        let port = named.iter().copied().max_by_key(|port| votes(*port)).expect("a slot that somebody has");
        self.nodes.iter().find(|node| self.port(node) == port).expect("one of the nodes")
    }

    /// A master that does not have this slot.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn another_than(&self, slot: u16) -> &RedisServer {
        let owner = self.master_of(slot).port();
        let is_other = |node: &&RedisServer| node.port() != owner && is_master(node);
        self.nodes.iter().find(is_other).expect("another master")
    }

    /// A replica of the master that has this slot.
    ///
    /// # Panics
    /// When it has none.
    #[must_use]
    pub fn replica_of(&self, slot: u16) -> &RedisServer {
        let id = id(self.master_of(slot));
        let follows = |node: &&RedisServer| {
            let shown = ask(node, &["CLUSTER", "NODES"]).map(|nodes| nodes.text()).unwrap_or_default();
            shown.lines().any(|line| line.contains("myself,slave") && line.contains(&id))
        };
        self.nodes.iter().find(follows).expect("a replica")
    }

    /// Lets the replica take over, in agreement with its master, and returns when all nodes know.
    ///
    /// # Panics
    /// When that does not happen.
    pub fn fail_over(&self, slot: u16) {
        let (old, replica) = (self.port(self.master_of(slot)), self.replica_of(slot));
        assert_eq!(replica.command(&["CLUSTER", "FAILOVER"]).text(), "OK");
        self.wait_for_another_than(slot, old);
    }

    /// Returns when all nodes that answer name another master of the slot than the one at this port.
    ///
    /// # Panics
    /// When that does not happen.
    pub fn wait_for_another_than(&self, slot: u16, port: u16) {
        self.wait_until("a failover", || {
            let mut named = self.nodes.iter().filter_map(|node| self.named_by(node, slot)).peekable();
            named.peek().is_some() && named.all(|named| named != port)
        });
    }

    /// Returns when the master of the slot has a replica that follows it.
    ///
    /// # Panics
    /// When that does not happen.
    pub fn wait_until_replicated(&self, slot: u16) {
        self.wait_until("a replica", || {
            let info = ask(self.master_of(slot), &["INFO", "replication"]).map(|info| info.text());
            info.is_some_and(|info| info.contains("state=online"))
        });
    }

    /// Returns when all nodes that answer say that the cluster is up.
    ///
    /// # Panics
    /// When that does not happen.
    pub fn wait_until_up(&self) {
        self.wait_until("a cluster that is up", || {
            let infos = self.nodes.iter().filter_map(|node| ask(node, &["CLUSTER", "INFO"]));
            let mut infos = infos.map(|info| info.text()).peekable();
            infos.peek().is_some() && infos.all(|info| info.contains("cluster_state:ok"))
        });
    }

    fn named_by(&self, node: &RedisServer, slot: u16) -> Option<u16> {
        let ranges = ask(node, &["CLUSTER", "SLOTS"])?;
        // By its local socket it names the plain ports.
        let port = ranges.items().iter().find_map(|range| {
            let range = range.items();
            let slots = range[0].int()..=range[1].int();
            slots.contains(&i64::from(slot)).then(|| range[2].items()[1].int())
        })?;
        let named = self.nodes.iter().find(|node| i64::from(node.port()) == port)?;
        Some(self.port(named))
    }

    fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        block_until(what, is_so, || self.nodes[0].log());
    }
}

/// What a node answers, if it does.
fn ask(node: &RedisServer, words: &[&str]) -> Option<Reply> {
    let mut client = node.client_that_waits(ANSWER).ok()?;
    client.command(words).ok()
}

fn is_master(node: &RedisServer) -> bool {
    ask(node, &["ROLE"]).is_some_and(|role| role.items()[0].text() == "master")
}

fn id(node: &RedisServer) -> String {
    node.command(&["CLUSTER", "MYID"]).text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_slots_and_replaces_a_master_that_is_killed() {
        let cluster = Cluster::start();
        let slot = cluster.slot("a");
        let (from, to) = (cluster.master_of(slot), cluster.another_than(slot));
        assert_eq!(from.command(&["SET", "a", "1"]).text(), "OK");
        cluster.move_slot(slot, to);
        assert_eq!(cluster.master_of(slot).port(), to.port());
        assert_eq!(to.command(&["GET", "a"]).text(), "1");
        assert!(from.command(&["GET", "a"]).is_error("MOVED"));
        to.kill();
        cluster.wait_for_another_than(slot, to.port());
        cluster.wait_until_up();
    }
}
