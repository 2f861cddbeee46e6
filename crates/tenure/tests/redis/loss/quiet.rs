//! What is not told: pushes that would wake everyone for everything that happens to a name.
//!
//! That nothing comes can't be waited for. So something harmless is done to the key afterwards, which is told: pushes come in order, and
//! there must be one renewal for it, and none before.

use tenure::Guard;
use tenure_testkit::redis::Step;

use super::hold_tracked;
use crate::redis::waiting::scene::{KEY, Peer, Scene, eventually, granted, is_acquire, is_renewal};

/// Touches the key; the holder has renewed as often as said until then, and once for that.
async fn has_renewed_only(scene: &Scene, peer: &Peer, guard: &Guard, renewals: u64) {
    assert_eq!(peer.domain.metrics().renewals, renewals, "renewed for nothing");
    scene.command(&["PEXPIRE", KEY, "60000"]);
    peer.renews(renewals).await;
    assert_eq!(peer.domain.metrics().renewals, renewals + 1, "renewed for nothing");
    assert!(guard.is_held());
}

fn renewals_sent(peer: &Peer) -> bool {
    peer.proxy.has_seen(Step::Received, is_renewal)
}

// R3.1, rule 2: the queue of a name is not tracked, by the holder or by anyone who waits.
#[tokio::test]
async fn waiters_that_come_beat_and_go_wake_nobody() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let guard = hold_tracked(&a).await;
    let before = a.domain.metrics().renewals;
    let mut waiters = Vec::new();
    for number in 0..5 {
        let peer = scene.peer().await;
        let task = scene.enqueue(&peer, &number.to_string()).await;
        waiters.push((peer, task));
    }
    assert_eq!(scene.count("stats", "tracking_total_keys"), 1, "more is tracked than what is held");
    // Everyone has beaten once more.
    for (peer, _) in &waiters {
        peer.proxy.forget();
        peer.proxy.seen_async(Step::Answered, is_acquire).await;
        assert!(!renewals_sent(peer), "a waiter renews");
    }
    let (_, first) = waiters.remove(0);
    first.abort();
    scene.is_queued(&["1", "2", "3", "4"]).await;
    has_renewed_only(&scene, &a, &guard, before).await;
    for (_, task) in waiters {
        task.abort();
    }
}

// R3.1: a holder's own changes are not told to it, or each renewal would be followed by the next.
#[tokio::test]
async fn renewals_of_its_own_are_not_told() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let guard = hold_tracked(&a).await;
    let before = a.domain.metrics().renewals;
    for _ in 0..5 {
        guard.renew().await.expect("to renew");
    }
    has_renewed_only(&scene, &a, &guard, before + 5).await;
    assert_eq!(scene.count("stats", "tracking_total_keys"), 1);
}

// R3.1: a release leaves nothing tracked, and is told to nobody.
#[tokio::test]
async fn what_was_released_is_not_tracked_any_longer() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    for _ in 0..3 {
        hold_tracked(&a).await.release().await.expect("to release");
        assert_eq!(scene.count("stats", "tracking_total_keys"), 0);
    }
    let before = a.domain.metrics().renewals;
    scene.command(&["SET", KEY, "somebody"]);
    scene.command(&["DEL", KEY]);
    let guard = hold_tracked(&a).await;
    has_renewed_only(&scene, &a, &guard, before + 1).await;
    assert_eq!(a.domain.metrics().lost, 0);
}

// R3.1: who handed the name over does not hear what becomes of it.
#[tokio::test]
async fn the_one_before_is_not_told_of_the_next() {
    let scene = Scene::new().await;
    let (a, b) = (scene.peer().await, scene.peer().await);
    let guard = hold_tracked(&a).await;
    let waiter = scene.enqueue(&b, "b").await;
    guard.release().await.expect("to release");
    let next = granted(waiter).await;
    b.is_told().await;
    let renewals = a.domain.metrics().renewals;
    next.renew().await.expect("to renew");
    let before = b.domain.metrics().renewals;
    has_renewed_only(&scene, &b, &next, before).await;
    assert_eq!(a.domain.metrics().renewals, renewals);
}

// B2: a lease that lasts for less than 10 ms costs two commands, and nothing is tracked for it.
#[tokio::test]
async fn a_short_lease_costs_nothing() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    a.hold("a").await.release().await.expect("to release");
    let mut cheapest = u64::MAX;
    // A busy machine makes some of them long.
    eventually(async || {
        let before = a.proxy.commands();
        a.hold("a").await.release().await.expect("to release");
        cheapest = cheapest.min(a.proxy.commands() - before);
        cheapest <= 2
    })
    .await;
    assert_eq!(cheapest, 2);
}
