//! Another server becomes the master, in each of the ways in which that happens. Locks may be lost with the old one: replication is
//! asynchronous. Fences never go back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure::{Domain, Fence, Guard};
use tenure_testkit::redis::Trio;

const TTL: Duration = Duration::from_secs(2);
/// 3 s for the failover, and the ttl; the rest is for a machine that is busy with other tests. There, Sentinels whose votes are split vote again
/// only after two failover timeouts, 6 s; and one that gets no time to run for 2 s trusts nothing that it sees for 30 s (TILT), two of
/// which are no majority.
const BACK_AFTER: Duration = Duration::from_secs(60);

async fn open(trio: &Trio) -> Domain {
    Domain::open(format!("{}?ttl=2s&timeout=500ms", trio.url())).await.expect("a master")
}

/// The first grant after now. Whatever comes before is an outage and says so.
async fn next_grant(trio: &Trio, domain: &Domain) -> Guard {
    let begin = Instant::now();
    loop {
        match domain.lock("orders/42").acquire().await {
            Ok(guard) => {
                assert!(begin.elapsed() < BACK_AFTER, "back after {:?}", begin.elapsed());
                return guard;
            }
            Err(error) => {
                assert!(error.is_transient(), "{error}");
                assert!(
                    begin.elapsed() < BACK_AFTER,
                    "not back after {:?}: {error}; a sentinel says:\n{}",
                    begin.elapsed(),
                    trio.sentinels()[0].log()
                );
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

/// Takes the name by turns.
async fn turns(domains: [&Domain; 2]) -> Fence {
    let mut last = None;
    for domain in domains.into_iter().cycle().take(20) {
        let guard = domain.lock("orders/42").acquire().await.expect("a master");
        assert!(last < Some(guard.fence()), "{last:?} then {:?}", guard.fence());
        last = Some(guard.fence());
        guard.release().await.expect("a master");
    }
    last.expect("some turns")
}

// B1, R0.5: fault 10, the master is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_master_is_followed_by_another() {
    let trio = Arc::new(Trio::builder().down_after(Duration::from_secs(1)).start());
    let (one, other) = (open(&trio).await, open(&trio).await);
    turns([&one, &other]).await;
    let held = one.lock("orders/42").acquire().await.expect("a master");
    let (before, port) = (held.fence(), trio.master().port());
    let waits = {
        let (trio, other) = (Arc::clone(&trio), other.clone());
        tokio::spawn(async move { next_grant(&trio, &other).await })
    };
    trio.master().kill();
    let lost = tokio::time::timeout(BACK_AFTER, held.lost()).await;
    assert!(lost.is_ok() || held.is_held(), "it is held or it is lost");
    drop(held);
    let next = waits.await.expect("no panic");
    assert!(next.fence() > before, "{:?} after {before:?}", next.fence());
    next.release().await.expect("the new master");
    trio.wait_for_another_than(port);
    // The one that only held need not have looked for the new master yet.
    drop(next_grant(&trio, &one).await);
    assert!(turns([&one, &other]).await > before);
}

// B1: fault 10, the master is paused, replaced, and goes on as if it were one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_master_that_resumes_is_not_believed() {
    let trio = Trio::builder().down_after(Duration::from_secs(1)).start();
    let (one, other) = (open(&trio).await, open(&trio).await);
    // A failover may be over before the lease is, which would then go on at the new master.
    let held = one.lock("orders/42").no_renewal().acquire().await.expect("a master");
    let (before, old) = (held.fence(), trio.master());
    old.stop();
    let next = next_grant(&trio, &other).await;
    assert!(!held.is_held(), "the next one has the name");
    let lost = tokio::time::timeout(TTL, held.lost()).await;
    assert!(lost.is_ok(), "and this one is told");
    assert!(next.fence() > before, "{:?} after {before:?}", next.fence());
    // One Sentinel knows of a failover before the others do. What holds until they agree is shown in `disagreement.rs`.
    trio.wait_for_another_than(old.port());
    old.cont();
    let newcomer = open(&trio).await;
    for domain in [&one, &newcomer] {
        let begin = Instant::now();
        let attempt = loop {
            match domain.lock("orders/42").try_acquire().await {
                Ok(attempt) => break attempt,
                Err(error) => assert!(error.is_transient() && begin.elapsed() < BACK_AFTER, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        assert!(!attempt.is_acquired(), "the old master does not give away what the new one has");
    }
    assert!(next.is_held());
    next.release().await.expect("the new master");
    turns([&one, &newcomer]).await;
}

// R0.5: a server that is demoted without a word says READONLY, and its successor is asked at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demoted_master_is_left_for_its_successor() {
    let trio = Trio::start();
    let domain = open(&trio).await;
    let before = turns([&domain, &domain]).await;
    let old = trio.master();
    let new = trio.servers().iter().find(|server| server.port() != old.port()).expect("a replica");
    let port = new.port().to_string();
    new.command(&["REPLICAOF", "NO", "ONE"]);
    for sentinel in trio.sentinels() {
        sentinel.command(&["SENTINEL", "REMOVE", trio.service()]);
        let set = sentinel.command(&["SENTINEL", "MONITOR", trio.service(), "127.0.0.1", &port, "2"]);
        assert_eq!(set.text(), "OK");
    }
    old.command(&["REPLICAOF", "127.0.0.1", &port]);
    let guard = domain.lock("orders/42").acquire().await.expect("the successor, without an error");
    assert!(guard.fence() > before);
    assert_eq!(new.command(&["EXISTS", "tenure:orders/42"]).int(), 1);
    guard.release().await.expect("the successor");
}

// R0.5: a failover that is ordered leaves the old master as it is for seconds. Nothing but Sentinel tells that it is not the one any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordered_failover_is_heard_of() {
    let trio = Trio::start();
    let (one, other) = (open(&trio).await, open(&trio).await);
    let (mut last, old) = (turns([&one, &other]).await, trio.master());
    let ordered = trio.sentinels()[2].command(&["SENTINEL", "FAILOVER", trio.service()]);
    assert_eq!(ordered.text(), "OK");
    trio.wait_for_another_than(old.port());
    let begin = Instant::now();
    for domain in [&one, &other] {
        let mut is_followed = false;
        while !is_followed {
            let guard = next_grant(&trio, domain).await;
            assert!(guard.fence() > last, "{:?} after {last:?}", guard.fence());
            last = guard.fence();
            is_followed = trio.master().command(&["EXISTS", "tenure:orders/42"]).int() == 1;
            let role = old.question(&["ROLE"]).items()[0].text();
            assert_eq!(
                role,
                "master",
                "followed before it was demoted, {:?} after the failover",
                begin.elapsed()
            );
            drop(guard.release().await);
        }
    }
}

// R0.5: the Sentinel that was listened to dies, and another tells of the failover.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_sentinel_is_listened_to() {
    let trio = Trio::start();
    let [first, second, third] = trio.sentinels().each_ref().map(tenure_testkit::redis::RedisServer::port);
    let hosts = [third, second, first].map(|port| format!("127.0.0.1:{port}")).join(",");
    let url = format!("redis+sentinel://{hosts}/{}?ttl=2s&timeout=500ms", trio.service());
    let domain = Domain::open(url).await.expect("a master");
    let (before, old) = (turns([&domain, &domain]).await, trio.master());
    trio.sentinels()[2].kill();
    assert_eq!(trio.sentinels()[1].command(&["SENTINEL", "FAILOVER", trio.service()]).text(), "OK");
    trio.wait_for_successor(old.port());
    let begin = Instant::now();
    while trio.master().command(&["EXISTS", "tenure:orders/42"]).int() == 0 {
        assert!(begin.elapsed() < BACK_AFTER, "nobody told of the failover");
        let guard = next_grant(&trio, &domain).await;
        assert!(guard.fence() > before);
        if trio.master().command(&["EXISTS", "tenure:orders/42"]).int() == 1 {
            break;
        }
        drop(guard.release().await);
    }
}
