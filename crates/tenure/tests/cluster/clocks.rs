//! Nodes whose clocks differ: what one of them said of the time is not taken for the time of another.

use std::time::Duration;

use tenure::Domain;
use tenure_testkit::patience::{PATIENCE, until};
use tenure_testkit::redis::{Cluster, RedisServer};

use crate::cluster::scene::{NAME, key, master, open, slot, turns, until_waiting};

const AHEAD: i64 = 3_600_000_000;

// B1, rules 4 and 6 of waiting: an hour forth, and an hour back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_to_another_time() {
    let cluster = Cluster::builder().node_timeout(Duration::from_secs(60)).clock().start();
    let slot = slot(&cluster, NAME);
    let (home, away) = (cluster.master_of(slot), cluster.another_than(slot));
    away.set_clock_offset(AHEAD);
    let (one, other) = (open(&cluster).await, open(&cluster).await);
    let mut last = turns([&one, &other], NAME, 4).await;
    for to in [away, home, away] {
        let held = one.lock(NAME).acquire().await.expect("a cluster");
        let waits = tokio::spawn({
            let other = other.clone();
            async move { other.lock(NAME).acquire().await.expect("a cluster") }
        });
        until_waiting(&one, NAME, 1).await;
        cluster.move_slot(slot, to);
        // The first request is sent on, and is not taken for one that comes an hour late.
        let attempt = one.lock(NAME).try_acquire().await.expect("a cluster");
        assert!(!attempt.is_acquired());
        until("the waiter listens there", || {
            !to.command(&["PUBSUB", "SHARDCHANNELS", "*"]).items().is_empty()
        })
        .await;
        assert!(held.is_held() && held.fence() > last);
        last = held.fence();
        held.release().await.expect("a cluster");
        let next = tokio::time::timeout(PATIENCE, waits).await.expect("its turn").expect("no panic");
        assert!(next.is_held() && next.fence() > last, "fences go on, whatever the clock says");
        assert!(next.remaining() <= Duration::from_secs(2));
        last = next.fence();
        next.release().await.expect("a cluster");
        last = last.max(turns([&one, &other], NAME, 4).await);
    }
}

// Rule 6 of waiting: a request that is sent on carries the moment after which it is refused, by the clock of whoever gets it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_sent_on_is_not_late() {
    let cluster = Cluster::builder().node_timeout(Duration::from_secs(60)).clock().start();
    let slot = slot(&cluster, NAME);
    let away = cluster.another_than(slot);
    away.set_clock_offset(AHEAD);
    let calls = || {
        let stats = away.question(&["INFO", "commandstats"]).text();
        let calls = |verb: &str| {
            let start = format!("cmdstat_{verb}:calls=");
            let line = stats.lines().find_map(|line| line.strip_prefix(&start).map(str::to_owned));
            line.and_then(|line| line.split(',').next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        // By its hash, and whole where it is not known.
        (calls("evalsha"), calls("eval"))
    };
    // With time enough for a busy machine, and far less than the clocks differ by.
    let domain = Domain::open(format!("{}?ttl=60s&timeout=20s", cluster.url())).await.expect("a cluster");
    let _ = domain.lock(NAME).run(async |_| ()).await.expect("a cluster");
    // Another library holds the name. If this client got it, its first renewal would be counted too.
    let set = cluster.master_of(slot).command(&["SET", &key(NAME), "theirs", "NX", "PX", "60000"]);
    assert_eq!(set.text(), "OK");
    cluster.move_slot(slot, away);
    assert_eq!(calls(), (0, 0));
    let attempt = domain.lock(NAME).try_acquire().await.expect("a cluster");
    assert!(!attempt.is_acquired());
    assert_eq!(calls(), (1, 1), "once, and not once more because it came late");
}

// R0.2: what a client has seen at a node whose clock is ahead does not raise the fences of names on other nodes. If it did, they would go
// back when such a node loses its data: its other clients have seen nothing that could prevent that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_ahead_raises_no_fences_elsewhere() {
    let cluster = Cluster::builder().node_timeout(Duration::from_secs(60)).clock().start();
    let healthy = master(&cluster, NAME);
    let is_elsewhere = |name: &String| !std::ptr::eq(master(&cluster, name), healthy);
    let elsewhere = (0..).map(|number| format!("elsewhere/{number}")).find(is_elsewhere).expect("a name");
    master(&cluster, &elsewhere).set_clock_offset(AHEAD);
    let (one, other) = (open(&cluster).await, open(&cluster).await);
    for _ in 0..3 {
        let _ = one.lock(&*elsewhere).run(async |_| ()).await.expect("a cluster");
        let last = turns([&one, &other], NAME, 4).await;
        let now = time(healthy);
        assert!(last.get() < now + 60_000_000, "{last} is not of the clock that showed {now}");
        assert_eq!(healthy.command(&["FLUSHALL"]).text(), "OK");
        // It has seen none of them.
        let fresh = open(&cluster).await;
        let guard = fresh.lock(NAME).acquire().await.expect("a cluster");
        assert!(guard.fence() > last, "{} after {last}", guard.fence());
        guard.release().await.expect("a cluster");
    }
}

/// The node's clock, in µs.
fn time(node: &RedisServer) -> u64 {
    let time = node.command(&["TIME"]);
    let number = |index: usize| time.items()[index].text().parse::<u64>().expect("a number");
    number(0) * 1_000_000 + number(1)
}
