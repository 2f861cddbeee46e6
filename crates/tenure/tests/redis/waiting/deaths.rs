//! Rules 2, 3 and 5: waiters that die, in sight of the server or out of it, and waiters that are only silent.

use std::time::Duration;

use tokio::task::JoinHandle;

use super::process::Process;
use super::scene::{KEY, Scene, eventually, granted};

/// What a lease that was handed over lasts at first, in ms.
const PROBATION: i64 = 1_000;

// R1.3
#[tokio::test]
async fn a_waiter_that_was_killed_is_skipped_at_once() {
    let scene = Scene::new().await;
    let (a, c) = (scene.peer().await, scene.peer().await);
    let guard = a.hold("a").await;
    let mut killed = Process::acquiring(&scene.server.url(), "killed");
    scene.is_queued(&["killed"]).await;
    scene.all_hear().await;
    let next = scene.enqueue(&c, "c").await;
    assert_eq!(scene.command(&["PUBSUB", "CHANNELS"]).items().len(), 2);
    killed.kill();
    eventually(async || scene.command(&["PUBSUB", "CHANNELS"]).items().len() == 1).await;
    assert_eq!(scene.queue().await, ["killed", "c"], "it has not lapsed yet");
    guard.release().await.expect("to release");
    assert_eq!(scene.held_by().await, "c", "by the same release");
    assert!(granted(next).await.is_held());
    assert!(scene.queue().await.is_empty(), "the dead one leaves nothing behind");
}

// R1.3: the server believes that the message was heard. Its first term is short, and all that is lost.
#[tokio::test]
async fn a_waiter_that_died_unnoticed_costs_one_probation() {
    let scene = Scene::new().await;
    let (a, b, c) = (scene.peer().await, scene.peer().await, scene.peer().await);
    let guard = a.hold("a").await;
    let dead = scene.enqueue(&b, "b").await;
    let next = scene.enqueue(&c, "c").await;
    b.proxy.black_hole();
    guard.release().await.expect("to release");
    assert_eq!(scene.held_by().await, "b");
    let left = scene.command(&["PTTL", KEY]).int();
    assert!(left <= PROBATION, "{left} ms for one that may be dead");
    assert!(granted(next).await.is_held());
    assert!(!dead.is_finished());
    dead.abort();
}

// Rule 3: the first renewal makes it a full lease.
#[tokio::test]
async fn a_living_waiter_has_a_full_lease_soon() {
    let scene = Scene::new().await;
    let (a, b) = (scene.peer().await, scene.peer().await);
    let guard = a.hold("a").await;
    let waiter = scene.enqueue(&b, "b").await;
    guard.release().await.expect("to release");
    let guard = granted(waiter).await;
    eventually(async || scene.command(&["PTTL", KEY]).int() > PROBATION).await;
    eventually(async || guard.remaining() > Duration::from_millis(PROBATION.unsigned_abs())).await;
    assert!(guard.is_held());
}

// R1.3, R1.1: skipped when it is silent for too long, though its subscription stands; and back in its old place with the next beat.
#[tokio::test]
async fn a_waiter_that_was_silent_loses_its_turn_but_not_its_place() {
    let scene = Scene::new().await;
    let (a, b, c, d) = (scene.peer().await, scene.peer().await, scene.peer().await, scene.peer().await);
    let guard = a.hold("a").await;
    let silent = scene.enqueue(&b, "b").await;
    let second = scene.enqueue(&c, "c").await;
    let third = scene.enqueue(&d, "d").await;
    b.proxy.black_hole();
    scene.is_queued(&["c", "d"]).await;
    assert_eq!(scene.command(&["PUBSUB", "CHANNELS"]).items().len(), 3, "its subscription stands");
    guard.release().await.expect("to release");
    assert_eq!(scene.held_by().await, "c");
    let guard = granted(second).await;
    b.proxy.heal();
    scene.is_queued(&["b", "d"]).await;
    guard.release().await.expect("to release");
    assert!(granted(silent).await.is_held());
    drop(granted(third).await);
}

// Rule 5: after an expiry only who has beaten since the last grant is alive. Several that died together cost one probation.
#[tokio::test]
async fn several_that_died_unnoticed_cost_one_probation() {
    let scene = Scene::new().await;
    let (a, b, c, d) = (scene.peer().await, scene.peer().await, scene.peer().await, scene.peer().await);
    let guard = a.hold("a").await;
    let dead = [scene.enqueue(&b, "b").await, scene.enqueue(&c, "c").await];
    let next = scene.enqueue(&d, "d").await;
    b.proxy.black_hole();
    c.proxy.black_hole();
    let before = scene.count("commandstats", "cmdstat_publish");
    guard.release().await.expect("to release");
    assert!(granted(next).await.is_held());
    let told = scene.count("commandstats", "cmdstat_publish") - before;
    assert_eq!(told, 1, "granted to a second one that was dead");
    dead.iter().for_each(JoinHandle::abort);
}
