//! Which node to believe: two real nodes that have all slots and do not know of each other, like the two sides of a network partition.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tenure_testkit::patience::until;
use tenure_testkit::redis::RedisServer;

use super::super::super::client::SessionContext;
use super::super::super::keys::Keys;
use super::Router;
use crate::backend::Sink;
use crate::backend::self_test::TestListener;
use crate::time::clock::Clock;
use crate::types::owner::Session;
use crate::url::{DomainUrl, Target};

/// Twice the time that a stopped node has: it resumes within that.
const TIMEOUT: Duration = Duration::from_secs(40);

/// A node that has all slots, in the configuration of this epoch.
async fn node(epoch: u64) -> RedisServer {
    let node = RedisServer::builder().cluster_node().start();
    for words in [&["ADDSLOTSRANGE", "0", "16383"][..], &["SET-CONFIG-EPOCH", &epoch.to_string()]] {
        assert_eq!(node.command(&[&["CLUSTER"], words].concat()).text(), "OK");
    }
    until("it is up", || node.command(&["CLUSTER", "INFO"]).text().contains("cluster_state:ok")).await;
    node
}

fn router(nodes: [&RedisServer; 2]) -> Arc<Router> {
    let [one, other] = nodes.map(RedisServer::port);
    let url = format!("redis+cluster://127.0.0.1:{one},127.0.0.1:{other}");
    let url = DomainUrl::parse(&url).expect("a valid URL");
    let Target::Redis(url) = url.target() else { panic!("it names a cluster") };
    let sink: Weak<dyn Sink> = Weak::<TestListener>::new();
    let context =
        SessionContext::new(Session::random(), Keys::sharded(url.prefix()), Clock::System, sink, false);
    Router::new(url, Some(TIMEOUT), context).expect("a valid URL")
}

/// How often the node was asked for the slots.
fn times_asked(node: &RedisServer) -> String {
    let stats = node.question(&["INFO", "commandstats"]).text();
    let line = stats.lines().find(|line| line.starts_with("cmdstat_cluster|slots:"));
    line.and_then(|line| line.split(',').next()).unwrap_or_default().to_owned()
}

// B1: a former master that does not know of its successor answers first; the node with the newer map is silent for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_map_counts_only_if_no_node_has_a_newer_one() {
    let (old, new) = (node(3).await, node(4).await);
    let router = router([&old, &new]);
    new.stop();
    let asked = times_asked(&old);
    let asking = tokio::spawn({
        let router = Arc::clone(&router);
        async move { router.ask_all(4).await }
    });
    until("it was asked", || times_asked(&old) != asked).await;
    new.cont();
    let map = asking.await.expect("no panic").expect("an answer");
    assert_eq!((map.epoch, map.ranges[0].master.port), (4, new.port()));

    // R0.5: a new cluster counts from the start, and no node has a newer map.
    new.kill();
    let map = router.ask_all(4).await.expect("an answer");
    assert_eq!((map.epoch, map.ranges[0].master.port), (3, old.port()));
}
