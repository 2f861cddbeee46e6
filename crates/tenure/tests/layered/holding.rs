//! Redis goes away, and comes back, in the middle of a hold.

use std::time::{Duration, Instant};

use tenure::{Degrade, LossKind, Release};
use tenure_testkit::patience::until;

use crate::layered::scene::{NAME, Scene};

const TTL: Duration = Duration::from_secs(2);

// R0.2, R1.5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_leave_to_degrade_it_is_lost_by_the_deadline() {
    let scene = Scene::new();
    let peer = scene.peer(Degrade::Never, TTL).await;
    let guard = peer.acquire().await;
    let since = Instant::now();
    peer.proxy.cut();
    let loss = guard.lost().await;
    assert_eq!(*loss.kind(), LossKind::Unreachable);
    assert!(!guard.is_held() && !guard.is_degraded());
    assert!(since.elapsed() < TTL + Duration::from_secs(10));
}

// R0.2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_leave_it_is_held_on_degraded() {
    let scene = Scene::new();
    let (peer, other) = (scene.peer(Degrade::Allow, TTL).await, scene.peer(Degrade::Allow, TTL).await);
    let guard = peer.acquire().await;
    assert!(!guard.is_degraded());
    scene.server.kill();
    until("it is degraded", || guard.is_degraded()).await;
    // Longer than any lease that was granted before.
    let over = Instant::now() + TTL * 2;
    while Instant::now() < over {
        assert!(guard.is_held());
        let attempt = other.domain.lock(NAME).try_acquire().await.expect("an answer");
        assert!(attempt.ok().is_none(), "two holders on one machine");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    scene.server.restart();
    while other.domain.health().await.is_ok_and(|health| !health.warnings.is_empty()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(TTL).await;
    assert!(guard.is_held() && guard.is_degraded(), "it ended in Redis, and stays degraded");
    let fence = guard.fence().get();
    assert_eq!(guard.release().await.expect("to release"), Release::Released);
    drop(other.acquire_both(fence).await);
}

// R0.2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_short_outage_it_is_whole_again() {
    let ttl = Duration::from_secs(6);
    let scene = Scene::new();
    let peer = scene.peer(Degrade::Allow, ttl).await;
    let guard = peer.acquire().await;
    peer.proxy.cut();
    until("it is degraded", || guard.is_degraded()).await;
    peer.proxy.heal();
    until("it is whole again", || !guard.is_degraded()).await;
    assert!(guard.is_held());
    assert_eq!(guard.release().await.expect("to release"), Release::Released);
    assert_eq!(scene.server.command(&["EXISTS", "tenure:orders/42"]).int(), 0);
}

// R1.5: what Redis says is gone is gone, whether it may be away or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_deleted_in_redis_is_lost() {
    let scene = Scene::new();
    for degrade in [Degrade::Never, Degrade::Allow] {
        let peer = scene.peer(degrade, Duration::from_secs(30)).await;
        let guard = peer.acquire().await;
        guard.renew().await.expect("it is tracked");
        assert_eq!(scene.server.command(&["DEL", "tenure:orders/42"]).int(), 1);
        guard.lost().await;
        // While its way to Redis is there.
        assert_eq!(guard.release().await.expect("an answer"), Release::Gone);
    }
}
