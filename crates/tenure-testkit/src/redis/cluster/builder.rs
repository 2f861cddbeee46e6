//! What a cluster is to be like, and how it comes about.

use super::super::authority::Authority;
use super::super::builder::Builder;
use super::super::server::RedisServer;
use super::{Cluster, ask, id};
use std::time::Duration;

const MASTERS: usize = 3;
const SLOTS: usize = 16_384;

/// What the nodes are to be like.
#[derive(Debug, Clone)]
pub struct ClusterBuilder {
    node_timeout: Duration,
    node: Builder,
    has_tls: bool,
}

impl Default for ClusterBuilder {
    fn default() -> Self {
        let node = RedisServer::builder()
            .cluster_node()
            // Shorter than anybody wants, so that they find each other soon.
            .config("cluster-node-timeout", "1000")
            .config("cluster-replica-validity-factor", "0")
            .config("cluster-allow-replica-migration", "no")
            .config("repl-ping-replica-period", "1");
        ClusterBuilder { node_timeout: Duration::from_secs(1), node, has_tls: false }
    }
}

impl ClusterBuilder {
    /// So long a master may be silent before it is replaced.
    #[must_use]
    pub fn node_timeout(mut self, silence: Duration) -> Self {
        self.node_timeout = silence;
        self
    }

    /// The nodes want a password.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.node = self.node.password(password);
        self
    }

    /// The nodes speak TLS with everyone, with certificates of one authority.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.node = self.node.config("tls-cluster", "yes");
        self.has_tls = true;
        self
    }

    /// The wall clock of each can be moved.
    #[must_use]
    pub fn clock(mut self) -> Self {
        self.node = self.node.clock();
        self
    }

    /// Starts them, and returns when they know of each other.
    ///
    /// # Panics
    /// When there is no redis-server, or they do not find each other.
    #[must_use]
    pub fn start(self) -> Cluster {
        let authority = Authority::new(self.has_tls);
        let node = authority.certify(self.node);
        let nodes = (0..2 * MASTERS).map(|_| node.clone().start()).collect();
        let cluster = Cluster { nodes, authority };
        cluster.come_together();
        let timeout = self.node_timeout.as_millis().to_string();
        for node in &cluster.nodes {
            node.command(&["CONFIG", "SET", "cluster-node-timeout", &timeout]);
        }
        cluster
    }
}

impl Cluster {
    fn come_together(&self) {
        let (masters, replicas) = self.nodes.split_at(MASTERS);
        for (number, master) in masters.iter().enumerate() {
            let (first, last) = (SLOTS * number / MASTERS, SLOTS * (number + 1) / MASTERS - 1);
            master.command(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
            // Otherwise they would first have to agree on who is the oldest.
            master.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
        }
        for node in &self.nodes[1..] {
            let (port, bus) = (self.port(&self.nodes[0]).to_string(), self.nodes[0].bus_port().to_string());
            node.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
        let says = |node: &RedisServer, what: &str| {
            ask(node, &["CLUSTER", "INFO"]).is_some_and(|info| info.text().contains(what))
        };
        let known = format!("cluster_known_nodes:{}", self.nodes.len());
        self.wait_until("nodes that know each other", || self.nodes.iter().all(|node| says(node, &known)));
        for (master, replica) in masters.iter().zip(replicas) {
            let master = id(master);
            self.wait_until("replica", || {
                ask(replica, &["CLUSTER", "REPLICATE", &master]).is_some_and(|answer| !answer.is_error(""))
            });
        }
        let is_complete = |node: &RedisServer| {
            let ranges = ask(node, &["CLUSTER", "SLOTS"]);
            says(node, "cluster_state:ok")
                && ranges.is_some_and(|ranges| {
                    let ranges = ranges.items();
                    ranges.len() == MASTERS && ranges.iter().all(|range| range.items().len() == 4)
                })
        };
        let is_synced = |node: &RedisServer| {
            let role = ask(node, &["ROLE"]);
            role.is_some_and(|role| match role.items() {
                [role, _, replicas] if role.text() == "master" => replicas.items().len() == 1,
                [_, _, _, state, ..] => state.text() == "connected",
                _ => false,
            })
        };
        self.wait_until("complete cluster", || {
            self.nodes.iter().all(|node| is_complete(node) && is_synced(node))
        });
    }
}
