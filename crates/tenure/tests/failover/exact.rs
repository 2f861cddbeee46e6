//! The one order of events in which too few acknowledgements cost exclusion, step by step.

use std::time::{Duration, Instant};

use tenure::Domain;
use tenure_testkit::redis::{RedisServer, Trio};

use crate::failover::cell::BACK_AFTER;

const TTL: Duration = Duration::from_secs(120);

/// A client that hears of no failover: the one Sentinel that it knows is silent from now on.
async fn open_deaf(trio: &Trio, replicas: &str) -> Domain {
    let deaf = &trio.sentinels()[2];
    let url = format!("redis+sentinel://127.0.0.1:{}/{}", deaf.port(), trio.service());
    let url = format!("{url}?ttl={}s&replicas={replicas}", TTL.as_secs());
    let domain = Domain::open(url).await.expect("a master");
    deaf.stop();
    domain
}

/// The replica that will be promoted does not hear of the master any more.
fn cut_off(trio: &Trio) -> &RedisServer {
    let behind = trio.preferred();
    behind.command(&["REPLICAOF", "127.0.0.1", "1"]);
    behind
}

// One replica of two acknowledges, and the other is promoted: two hold the name, and fences tell them apart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_acknowledgement_of_two_is_not_enough() {
    let trio = Trio::builder().ranked().down_after(Duration::from_secs(1)).start();
    let first = open_deaf(&trio, "1").await;
    let behind = cut_off(&trio);
    let held = first.lock("orders/42").acquire().await.expect("one replica has it");
    let old = trio.master();
    old.kill();
    trio.wait_for_successor(old.port());
    assert_eq!(trio.master().port(), behind.port());
    let url = trio.url();
    let other = Domain::open(format!("{url}?ttl=2s")).await.expect("the new master");
    let taken = other.lock("orders/42").acquire().await.expect("the new master knows of no lease");
    assert!(held.is_held() && taken.is_held(), "two believe that they hold it");
    assert!(taken.fence() > held.fence(), "a resource that checks fences takes the newer one only");
}

// The same with all of them: there is no lease that the one that is promoted does not know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_acknowledgements_are() {
    let trio = Trio::builder().ranked().down_after(Duration::from_secs(1)).start();
    let first = open_deaf(&trio, "all").await;
    let held = first.lock("orders/41").acquire().await.expect("both replicas have it");
    let behind = cut_off(&trio);
    let refused = first.lock("orders/42").try_acquire().await.expect_err("one has not");
    let shortage = refused.too_few_replicas().expect("a typed reason");
    assert_eq!((shortage.acknowledged(), shortage.needed()), (1, 2), "{refused}");
    let old = trio.master();
    old.kill();
    trio.wait_for_successor(old.port());
    assert_eq!(trio.master().port(), behind.port());
    let other = Domain::open(format!("{}?ttl=2s", trio.url())).await.expect("the new master");
    let attempt = other.lock("orders/41").try_acquire().await.expect("the new master");
    assert!(!attempt.is_acquired() && held.is_held(), "the new master knows the lease");
    let begin = Instant::now();
    let _ = other.lock("orders/42").run(async |_| ()).await.expect("nobody has it");
    assert!(begin.elapsed() < BACK_AFTER);
}
