//! Acquiring while Redis is away, and when it is back.

use std::time::Duration;

use tenure::{Attempt, Degrade, Domain, ErrorKind, Release};
use tenure_testkit::redis::{Fault, named};

use crate::layered::scene::{LONG, NAME, Scene};

// R0.2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_grow_from_both_stores_to_one_and_back() {
    let scene = Scene::new();
    let peer = scene.peer(Degrade::Allow, LONG).await;
    let mut last = 0;
    for _ in 0..3 {
        let guard = peer.acquire_both(last).await;
        last = guard.fence().get();
        guard.release().await.expect("to release");
        peer.proxy.cut();
        for _ in 0..3 {
            let guard = peer.acquire().await;
            assert!(guard.is_degraded() && guard.is_held());
            assert!(guard.fence().get() > last, "{} after {last}", guard.fence());
            last = guard.fence().get();
            guard.release().await.expect("to release");
        }
        peer.proxy.heal();
    }
}

// R0.2: a server whose clock is far ahead gives fences that the directory would not reach by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_of_a_server_that_is_ahead_are_carried_over() {
    let server = tenure_testkit::redis::RedisServer::builder().clock().start();
    server.set_clock_offset(3_600_000_000);
    let scene = Scene { server, ..Scene::new() };
    let (first, second) = (scene.peer(Degrade::Allow, LONG).await, scene.peer(Degrade::Allow, LONG).await);
    let guard = first.acquire().await;
    let last = guard.fence().get();
    guard.release().await.expect("to release");
    second.proxy.cut();
    let guard = second.acquire().await;
    assert!(guard.is_degraded());
    assert!(
        guard.fence().get() > last,
        "another process, which never saw it: {} after {last}",
        guard.fence()
    );
}

// R0.2: one that has lost everything, and whose clock is far behind, gives fences above those that the machine has seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_grow_when_redis_is_back_empty_and_behind() {
    let server = tenure_testkit::redis::RedisServer::builder().clock().start();
    let scene = Scene { server, ..Scene::new() };
    let (first, second) = (scene.peer(Degrade::Allow, LONG).await, scene.peer(Degrade::Never, LONG).await);
    let mut last = 0;
    for behind in [0, 3_600_000_000, 7_200_000_000] {
        scene.server.kill();
        let alone = first.acquire().await;
        assert!(alone.is_degraded() && alone.fence().get() > last, "{} after {last}", alone.fence());
        last = alone.fence().get();
        alone.release().await.expect("to release");
        scene.server.set_clock_offset(-behind);
        scene.server.restart();
        let guard = first.acquire_both(last).await;
        last = guard.fence().get();
        guard.release().await.expect("to release");
        // One that has seen none of these.
        while second.domain.health().await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let guard = second.acquire().await;
        assert!(guard.fence().get() > last, "{} after {last}", guard.fence());
        last = guard.fence().get();
        guard.release().await.expect("to release");
    }
}

// R0.2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_cut_off_and_one_that_is_not_exclude_each_other() {
    let scene = Scene::new();
    let (cut, connected) = (scene.peer(Degrade::Allow, LONG).await, scene.peer(Degrade::Never, LONG).await);
    cut.proxy.cut();
    let guard = cut.acquire().await;
    assert!(guard.is_degraded());
    let Attempt::Busy(busy) = connected.domain.lock(NAME).try_acquire().await.expect("an answer") else {
        panic!("two holders on one machine");
    };
    assert!(busy.holder.is_some_and(|holder| holder.fence == guard.fence()));
    let waiting = tokio::spawn({
        let lock = connected.domain.lock(NAME);
        async move { lock.acquire().await }
    });
    let fence = guard.fence();
    guard.release().await.expect("to release");
    let next = waiting.await.expect("no panic").expect("its turn");
    assert!(!next.is_degraded() && next.fence() > fence);

    let waiting = tokio::spawn({
        let lock = cut.domain.lock(NAME);
        async move { lock.acquire().await }
    });
    let fence = next.fence();
    next.release().await.expect("to release");
    let last = waiting.await.expect("no panic").expect("its turn");
    assert!(last.is_degraded() && last.fence() > fence);
}

// R0.2, R0.5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_leave_to_degrade_nobody_enters() {
    let scene = Scene::new();
    let (peer, other) = (scene.peer(Degrade::Never, LONG).await, scene.peer(Degrade::Never, LONG).await);
    peer.proxy.cut();
    for _ in 0..3 {
        let error = peer.domain.lock(NAME).acquire().await.expect_err("Redis is away");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let guard = other.acquire().await;
        guard.release().await.expect("the directory was left alone");
    }
    scene.server.stop();
    let error = other.domain.lock(NAME).acquire().await.expect_err("Redis is silent");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    scene.server.cont();
    peer.proxy.heal();
    while peer.domain.lock(NAME).try_acquire().await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

// R0.2: a silent server is gone on without, also before that is known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_server_is_gone_on_without() {
    for ttl in [LONG, Duration::from_secs(1)] {
        let scene = Scene::new();
        let peer = scene.peer(Degrade::Allow, ttl).await;
        let both = peer.acquire().await;
        scene.server.stop();
        // Its answer may take a quarter of the ttl, and Redis gets a part of that.
        both.release().await.expect("to release");
        let alone = peer.acquire().await;
        assert!(alone.is_degraded());
        let fence = alone.fence().get();
        alone.release().await.expect("to release");
        scene.server.cont();
        drop(peer.acquire_both(fence).await);
    }
}

// R0.2: whoever waits in Redis, and holds the directory, has it alone when Redis goes away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_goes_on_without_the_server() {
    let scene = Scene::new();
    let peer = scene.peer(Degrade::Allow, LONG).await;
    let elsewhere = Domain::open(scene.server.url()).await.expect("to open");
    let theirs = elsewhere.lock(NAME).ttl(LONG).acquire().await.expect("a free name");
    let waiting = tokio::spawn({
        let lock = peer.domain.lock(NAME);
        async move { lock.acquire().await }
    });
    while elsewhere.inspect(NAME).await.expect("to look").waiters.is_empty() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    peer.proxy.cut();
    let guard = waiting.await.expect("no panic").expect("the directory");
    assert!(guard.is_degraded() && guard.is_held());
    assert!(theirs.is_held(), "other machines are not excluded: that is what degraded says");
}

// R0.2: one reply that is lost is no outage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply_does_not_degrade() {
    let scene = Scene::new();
    let peer = scene.peer(Degrade::Allow, LONG).await;
    for fault in [Fault::SwallowThenReset, Fault::ResetBefore, Fault::ResetAfter] {
        peer.proxy.inject(fault, 1, named("EVALSHA"));
        let guard = peer.acquire().await;
        assert!(!guard.is_degraded(), "{fault:?}");
        peer.proxy.inject(fault, 1, named("EVALSHA"));
        assert_eq!(guard.release().await.expect("to release"), Release::Released, "{fault:?}");
    }
}
