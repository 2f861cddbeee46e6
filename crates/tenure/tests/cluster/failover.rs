//! A replica takes the place of a master, in each of the ways in which that happens.

use std::time::{Duration, Instant};

use tenure::Domain;
use tenure_testkit::patience::{PATIENCE, until, until_async};
use tenure_testkit::redis::Cluster;

use crate::cluster::scene::{
    BACK_AFTER, NAME, key, master, next_grant, open, patient, slot, turns, until_waiting,
};

// B1, R0.5: fault 11. Whoever waits goes on waiting, and whoever holds is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_master_is_followed_by_its_replica() {
    let cluster = Cluster::start();
    let (one, other) = (open(&cluster).await, open(&cluster).await);
    turns([&one, &other], NAME, 10).await;
    let held = one.lock(NAME).acquire().await.expect("a cluster");
    let before = held.fence();
    let slot = slot(&cluster, NAME);
    let old = cluster.master_of(slot);
    let elsewhere = (0..).map(|n| format!("elsewhere/{n}"));
    let elsewhere =
        elsewhere.into_iter().find(|name| master(&cluster, name).port() != old.port()).expect("a name");
    let beside = one.lock(&elsewhere).acquire().await.expect("a cluster");
    old.kill();
    let waits = tokio::spawn({
        let other = other.clone();
        async move { next_grant(&other, NAME).await }
    });
    let lost = tokio::time::timeout(BACK_AFTER, held.lost()).await;
    assert!(lost.is_ok() || held.is_held(), "it is held or it is lost");
    drop(held);
    let next = waits.await.expect("no panic");
    assert!(next.fence() > before, "{:?} after {before:?}", next.fence());
    next.release().await.expect("the new master");
    cluster.wait_for_another_than(slot, old.port());
    assert!(beside.is_held(), "other nodes are not concerned");
    drop(next_grant(&one, NAME).await);
    assert!(turns([&one, &other], NAME, 10).await > before);
}

// B1: the master is paused, replaced, and goes on as if it were one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_master_that_resumes_is_not_believed() {
    let cluster = Cluster::start();
    let (one, other) = (open(&cluster).await, open(&cluster).await);
    // A failover may be over before the lease is, which would then go on at the new master.
    let held = one.lock(NAME).no_renewal().acquire().await.expect("a cluster");
    let before = held.fence();
    let (slot, old) = (slot(&cluster, NAME), master(&cluster, NAME));
    old.stop();
    let next = next_grant(&other, NAME).await;
    assert!(!held.is_held(), "the next one has the name");
    assert!(next.fence() > before, "{:?} after {before:?}", next.fence());
    cluster.wait_for_another_than(slot, old.port());
    old.cont();
    let newcomer = open(&cluster).await;
    for domain in [&one, &newcomer] {
        let mut is_busy = false;
        until_async("the one who holds is known", async || {
            match domain.lock(NAME).try_acquire().await {
                Ok(attempt) => is_busy = !attempt.is_acquired(),
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
            is_busy || !next.is_held()
        })
        .await;
        assert!(is_busy, "the old master does not give away what the new one has");
    }
    assert!(next.is_held());
    next.release().await.expect("the new master");
    turns([&one, &newcomer], NAME, 4).await;
}

// R0.5, R1.1: a failover in agreement loses nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordered_failover_costs_no_lease() {
    let cluster = patient();
    let (one, other): (Domain, Domain) = (open(&cluster).await, open(&cluster).await);
    let held = one.lock(NAME).acquire().await.expect("a cluster");
    let waits = tokio::spawn({
        let other = other.clone();
        async move { other.lock(NAME).acquire().await }
    });
    until_waiting(&one, NAME, 1).await;
    let slot = slot(&cluster, NAME);
    cluster.fail_over(slot);
    let new = cluster.master_of(slot);
    until("the waiter listens at the new master", || {
        let channels = new.command(&["PUBSUB", "SHARDCHANNELS", &format!("{{{}*", key(NAME))]);
        !channels.items().is_empty()
    })
    .await;
    assert!(held.is_held());
    let before = held.fence();
    held.release().await.expect("the new master");
    let next = tokio::time::timeout(PATIENCE, waits).await.expect("a turn").expect("no panic");
    assert!(next.expect("the new master").fence() > before);
    turns([&one, &other], NAME, 4).await;
}

// R0.5, R2.6: a master that is silent, and is not replaced, costs the leases on itself alone, also where all are renewed at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_master_costs_no_lease_on_another() {
    const TTL: Duration = Duration::from_secs(3);
    /// Less 1 % and 2 ms.
    const BELIEVED: Duration = Duration::from_millis(2_968);
    let cluster = patient();
    let domain = Domain::open(format!("{}?ttl=3s", cluster.url())).await.expect("a cluster");
    let silent = master(&cluster, NAME);
    let beside = cluster.another_than(slot(&cluster, NAME));
    let (mut theirs, mut others) = (Vec::new(), Vec::new());
    for n in 0..48 {
        let name = format!("{NAME}/{n}");
        let guard = domain.lock(&name).acquire().await.expect("a cluster");
        let is_theirs = master(&cluster, &name).port() == silent.port();
        if is_theirs { theirs.push(guard) } else { others.push(guard) }
    }
    assert!(theirs.len() > 4 && others.len() > 4, "names on all of them");
    // Another connection breaks: all leases are verified, and from then on renewed together.
    let before = Instant::now();
    beside.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    until_async("all are verified", async || {
        let now = Instant::now();
        let ends = theirs.iter().chain(&others).map(|guard| now + guard.remaining());
        ends.min() > Some(before + BELIEVED)
    })
    .await;
    silent.stop();
    let stopped = Instant::now();
    while stopped.elapsed() < 2 * TTL {
        assert!(others.iter().all(|guard| guard.is_held()), "lost after {:?}", stopped.elapsed());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(theirs.iter().all(|guard| !guard.is_held()), "nobody renewed these");
    silent.cont();
}
