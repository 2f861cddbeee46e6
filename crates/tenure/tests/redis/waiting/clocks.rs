//! Rules 4, 5 and 6 when the server's clock is set while somebody waits: nobody is stranded, nobody believes too long.

use std::time::{Duration, Instant};

use tenure::{Attempt, Guard};
use tenure_testkit::redis::Step;

use super::scene::{KEY, NAME, Peer, Scene, granted, is_acquire};

const HOUR: i64 = 3_600_000_000;
/// A lease that outlasts what the clock is set forward by.
const DAY: Duration = Duration::from_secs(24 * 3600);

async fn hold_for_a_day(peer: &Peer) -> Guard {
    peer.domain.lock(NAME).ttl(DAY).label("a").acquire().await.expect("to acquire")
}

/// Hands the name over right after the clock was set by so much: the waiter believes no longer than the server does (I2).
async fn hand_over_after(step: i64) {
    let scene = Scene::with_clock().await;
    let (a, b) = (scene.peer().await, scene.peer().await);
    let guard = hold_for_a_day(&a).await;
    let waiter = scene.enqueue(&b, "b").await;
    let fence = guard.fence();
    scene.server.set_clock_offset(step);
    guard.release().await.expect("to release");
    let guard = granted(waiter).await;
    let (looked, believed) = (Instant::now(), guard.remaining());
    let left = u64::try_from(scene.command(&["PTTL", KEY]).int()).expect("a lease");
    let left = Duration::from_millis(left) + looked.elapsed();
    assert!(believed <= left, "believed for {believed:?}, lasts for {left:?}");
    assert!(guard.fence() > fence);
    guard.renew().await.expect("ours, says the store");
}

// Rule 4: the grant seems to have been made after it was heard. Believed as it is, it would be believed for too long.
#[tokio::test]
async fn a_grant_by_a_clock_that_was_set_forward_is_not_believed_for_longer() {
    // Not so much that the waiter seems to have been silent for too long.
    hand_over_after(900_000).await;
}

// Rule 5: it seems to have been silent for an hour, and is granted the name when it beats.
#[tokio::test]
async fn a_waiter_is_served_though_the_clock_was_set_forward_by_an_hour() {
    hand_over_after(HOUR).await;
}

// Rule 4: the grant seems to be older than the waiter's last beat. That tells nothing, and a beat confirms it.
#[tokio::test]
async fn a_waiter_is_served_though_the_clock_was_set_back_by_an_hour() {
    hand_over_after(-HOUR).await;
}

// Rule 6: every request seems to come too late, until the answers show the new time.
#[tokio::test]
async fn waiters_outlast_a_clock_that_is_set_forward() {
    let scene = Scene::with_clock().await;
    let (a, b, c) = (scene.peer().await, scene.peer().await, scene.peer().await);
    let guard = hold_for_a_day(&a).await;
    let first = scene.enqueue(&b, "b").await;
    let second = scene.enqueue(&c, "c").await;
    scene.server.set_clock_offset(HOUR);
    // By the new clock nobody has beaten for an hour, and the queue has expired.
    scene.is_queued(&["b", "c"]).await;
    guard.release().await.expect("to release");
    let guard = granted(first).await;
    assert!(!second.is_finished());
    guard.release().await.expect("to release");
    drop(granted(second).await);
}

// Rule 5, I3: by the clock, the last grant is in the future, and nobody has beaten since.
#[tokio::test]
async fn waiters_are_alive_to_a_clock_that_was_set_back() {
    let scene = Scene::with_clock().await;
    let (a, b, c, d) = (scene.peer().await, scene.peer().await, scene.peer().await, scene.peer().await);
    let guard = hold_for_a_day(&a).await;
    let first = scene.enqueue(&b, "b").await;
    let second = scene.enqueue(&c, "c").await;
    let fence = guard.fence();
    scene.server.set_clock_offset(-HOUR);
    for peer in [&b, &c] {
        peer.proxy.forget();
        peer.proxy.seen_async(Step::Answered, is_acquire).await;
    }
    scene.command(&["DEL", KEY]);
    // Who comes last asks first, and settles the name: it goes to the first of the queue.
    match d.lock("d").try_acquire().await.expect("an answer") {
        Attempt::Busy(busy) => assert_eq!(busy.holder.expect("to be known").owner.label(), "b"),
        Attempt::Acquired(_) => panic!("past the queue"),
    }
    let guard = granted(first).await;
    assert!(guard.fence() > fence, "fences went back with the clock");
    let fence = guard.fence();
    guard.release().await.expect("to release");
    assert!(granted(second).await.fence() > fence, "fences went back with the clock");
}
