//! `?replicas=`: what is held is known to the replicas, or it is not held.

use std::time::{Duration, Instant};

use tenure::{Domain, ErrorKind, Guard};
use tenure_testkit::patience::{PATIENCE, until};
use tenure_testkit::redis::{RedisServer, Trio};

use crate::redis::hygiene::traces::{until_clean, until_renewed};

const TTL: Duration = Duration::from_secs(2);

async fn open(trio: &Trio, replicas: &str) -> Domain {
    let url = format!("{}?ttl=2s&timeout=1s&replicas={replicas}", trio.url());
    Domain::open(url).await.expect("a master")
}

fn replicas(trio: &Trio) -> Vec<&RedisServer> {
    let master = trio.master().port();
    trio.servers().iter().filter(|server| server.port() != master).collect()
}

fn assert_known(trio: &Trio, guard: &Guard) {
    for replica in replicas(trio) {
        assert_eq!(replica.command(&["GET", "tenure:orders/42"]).text(), guard.token());
    }
}

// B1: also for one that was handed over, which its releaser wrote.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_holds_is_known_to_all_replicas() {
    let trio = Trio::start();
    let (one, other) = (open(&trio, "all").await, open(&trio, "all").await);
    let mut held = one.lock("orders/42").acquire().await.expect("two replicas");
    for domain in [&other, &one].into_iter().cycle().take(20) {
        assert_known(&trio, &held);
        let waiting = domain.clone();
        let next = tokio::spawn(async move { waiting.lock("orders/42").acquire().await });
        while domain.inspect("orders/42").await.expect("a master").waiters.is_empty() {
            tokio::task::yield_now().await;
        }
        held.release().await.expect("a master");
        held = next.await.expect("no panic").expect("two replicas");
    }
    assert_known(&trio, &held);
}

// R0.5: a replica that is away is an error with a reason, and nothing is left of what was not acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_too_few_acknowledge_is_not_held() {
    let trio = Trio::start();
    let (all, one) = (open(&trio, "all").await, open(&trio, "1").await);
    let away = replicas(&trio)[0];
    away.stop();
    let lasting = all.lock("orders/42").ttl(Duration::from_secs(600));
    let error = lasting.acquire().await.expect_err("one is away");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().starts_with("1 of 2 replicas acknowledged"), "{error}");
    until_clean(trio.master()).await;
    let _ = one.lock("orders/42").run(async |_| ()).await.expect("one is there");
    away.cont();
    let begin = Instant::now();
    while let Err(error) = all.lock("orders/42").run(async |_| ()).await {
        assert!(error.is_transient() && begin.elapsed() < PATIENCE, "{error}");
    }
    let three = open(&trio, "3").await;
    let error = three.lock("orders/42").acquire().await.expect_err("there are two");
    assert!(error.to_string().starts_with("2 of 3 replicas acknowledged"), "{error}");
}

// R0.5: a renewal that too few acknowledge is unknown until the deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_ends_without_its_replicas() {
    let trio = Trio::start();
    let domain = open(&trio, "all").await;
    let held = domain.lock("orders/42").acquire().await.expect("two replicas");
    until_renewed(&held).await;
    let away = replicas(&trio)[0];
    away.stop();
    until("half of it is gone", || held.remaining() < TTL / 2).await;
    assert!(held.is_held(), "nothing is lost yet");
    away.cont();
    until_renewed(&held).await;
    away.stop();
    let begin = Instant::now();
    held.lost().await;
    assert!(!held.is_held() && begin.elapsed() < TTL + PATIENCE);
    away.cont();
}

// R4.4: a server that is away may be promoted when it is back, before it has caught up. So all are needed, until an operator has the
// Sentinels forget it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_are_those_that_are_away_too_until_they_are_forgotten() {
    let trio = Trio::start();
    let domain = open(&trio, "all").await;
    let _ = domain.lock("orders/42").run(async |_| ()).await.expect("two replicas");
    let old = trio.master();
    assert_eq!(trio.sentinels()[1].command(&["SENTINEL", "FAILOVER", trio.service()]).text(), "OK");
    trio.wait_for_another_than(old.port());
    // A Sentinel that is reset in the middle of its failover goes back to the old master.
    trio.make_follow(old);
    trio.wait_until_complete();
    old.kill();
    let begin = Instant::now();
    let refused = async |domain: &Domain| {
        let short = loop {
            assert!(begin.elapsed() < PATIENCE, "neither an acquisition nor too few replicas");
            let error = domain.lock("orders/42").acquire().await.expect_err("one is away");
            if let Some(short) = error.too_few_replicas() {
                break *short;
            }
        };
        assert_eq!((short.acknowledged(), short.needed()), (1, 2));
    };
    refused(&domain).await;
    let newcomer = open(&trio, "all").await;
    refused(&newcomer).await;
    for sentinel in trio.sentinels() {
        assert_eq!(sentinel.command(&["SENTINEL", "RESET", trio.service()]).int(), 1);
    }
    for domain in [&domain, &newcomer] {
        while let Err(error) = domain.lock("orders/42").run(async |_| ()).await {
            assert!(error.is_transient() && begin.elapsed() < 3 * PATIENCE, "{error}");
        }
    }
}

// Fault 10 with all replicas: nobody holds a name while another does, through a master that is paused, replaced and resumed (S1, S2).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_hold_through_a_failover() {
    let trio = Trio::builder().down_after(Duration::from_secs(1)).start();
    let (one, other) = (open(&trio, "all").await, open(&trio, "all").await);
    let held = one.lock("orders/42").acquire().await.expect("two replicas");
    let (before, old) = (held.fence(), trio.master());
    old.stop();
    trio.wait_for_another_than(old.port());
    // Only now: the new master has one replica, and the old one comes back as a master that nobody follows.
    old.cont();
    let begin = Instant::now();
    let mut refusals = 0;
    let next = loop {
        match other.lock("orders/42").acquire().await {
            Ok(guard) => break guard,
            Err(error) => {
                assert!(error.is_transient() && begin.elapsed() < 3 * PATIENCE, "{error}");
                refusals += 1;
            }
        }
    };
    assert!(!held.is_held(), "one of them, after {refusals} refusals");
    assert!(next.fence() > before, "{:?} after {before:?}", next.fence());
    assert_known(&trio, &next);
    println!("granted by the new master after {:?}, and {refusals} refusals", begin.elapsed());
}
