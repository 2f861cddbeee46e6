//! Rules 2, 4 and 8: a grant is told by a push; and what if the push is lost, is not allowed, or is read too late.

use std::time::Duration;

use tenure::Release;
use tenure_testkit::redis::{Fault, Step, named};

use super::process::Process;
use super::scene::{KEY, Scene, eventually, granted, is_acquire, soon};

// R3.6: the message is on its way when both connections of the waiter break.
#[tokio::test]
async fn a_grant_whose_message_was_lost_is_found_by_a_beat() {
    let scene = Scene::new().await;
    let (a, b) = (scene.peer().await, scene.peer().await);
    let guard = a.hold("a").await;
    let waiter = scene.enqueue(&b, "b").await;
    b.proxy.black_hole();
    guard.release().await.expect("to release");
    assert_eq!(scene.held_by().await, "b", "the server takes it for alive");
    b.proxy.cut();
    b.proxy.heal();
    assert!(granted(waiter).await.is_held());
}

// R3.6: the server knows that nobody hears the message, and the waiter does not know yet that it is deaf.
#[tokio::test]
async fn a_waiter_whose_subscription_broke_at_the_hand_over_is_served() {
    let scene = Scene::new().await;
    let (a, b) = (scene.peer().await, scene.peer().await);
    let guard = a.hold("a").await;
    let waiter = scene.enqueue(&b, "b").await;
    assert_eq!(scene.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).int(), 1);
    guard.release().await.expect("to release");
    assert!(granted(waiter).await.is_held());
}

// R3.4: and hears again afterwards, on a new subscription.
#[tokio::test]
async fn a_subscription_that_broke_is_made_again_and_the_place_is_kept() {
    let scene = Scene::new().await;
    let (a, b, c) = (scene.peer().await, scene.peer().await, scene.peer().await);
    let guard = a.hold("a").await;
    let first = scene.enqueue(&b, "b").await;
    let second = scene.enqueue(&c, "c").await;
    let before = b.proxy.accepted();
    assert_eq!(scene.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).int(), 2);
    eventually(async || b.proxy.accepted() > before).await;
    eventually(async || scene.command(&["PUBSUB", "CHANNELS"]).items().len() == 2).await;
    scene.is_queued(&["b", "c"]).await;
    scene.all_hear().await;
    guard.release().await.expect("to release");
    assert_eq!(scene.held_by().await, "b");
    drop(granted(first).await);
    drop(granted(second).await);
}

// Rule 2: an ACL may deny PUBLISH after the key was set. The grant stands, and the release is no error.
#[tokio::test]
async fn one_that_may_not_publish_can_release_and_the_next_is_served() {
    let scene = Scene::new().await;
    let (a, b) = (scene.peer_as(scene.user_without(&["resetchannels"]), "").await, scene.peer().await);
    let guard = a.hold("a").await;
    let waiter = scene.enqueue(&b, "b").await;
    assert!(a.domain.health().await.expect("to be healthy").warnings.is_empty());
    assert_eq!(guard.release().await.expect("to release"), Release::Released);
    assert_eq!(scene.held_by().await, "b");
    assert!(granted(waiter).await.is_held());
    let warnings = a.domain.health().await.expect("to be healthy").warnings;
    assert!(warnings.iter().any(|warning| warning.contains("allow PUBLISH")), "{warnings:?}");
}

// Rule 8, R2.3: who may not subscribe polls, is not taken for dead, and says so.
#[tokio::test]
async fn one_that_may_not_subscribe_polls() {
    let scene = Scene::new().await;
    let (a, b) = (scene.peer().await, scene.peer_as(scene.user_without(&["-subscribe"]), "").await);
    let guard = a.hold("a").await;
    let waiter = b.acquiring("b");
    scene.is_queued(&["b"]).await;
    b.proxy.seen_async(Step::Answered, named("SUBSCRIBE")).await;
    guard.release().await.expect("to release");
    assert_eq!(scene.held_by().await, "b", "nobody heard the message, and it is alive");
    let guard = granted(waiter).await;
    assert_eq!(scene.holder().await.expect("a holder").fence, guard.fence());
    let warnings = b.domain.health().await.expect("to be healthy").warnings;
    assert!(warnings.iter().any(|warning| warning.contains("they poll")), "{warnings:?}");
}

// Rule 8: one that has only begun to wait is not heard by anybody yet, and yet not dead.
#[tokio::test]
async fn a_waiter_is_served_before_its_subscription_stands() {
    let scene = Scene::new().await;
    let (a, b) = (scene.peer().await, scene.peer().await);
    b.proxy.inject(Fault::DelayCommand(Duration::from_secs(60)), 1, named("SUBSCRIBE"));
    let guard = a.hold("a").await;
    let waiter = b.acquiring("b");
    scene.is_queued(&["b"]).await;
    guard.release().await.expect("to release");
    assert_eq!(scene.held_by().await, "b", "nobody heard the message, and it is alive");
    assert!(granted(waiter).await.is_held());
    assert!(!b.proxy.has_seen(Step::Forwarded, named("SUBSCRIBE")));
}

// Rule 8: subscribed, it stops asking again and again. The confirmation comes late, when it has polled for a while.
#[tokio::test]
async fn a_waiter_beats_as_soon_as_its_subscription_stands_and_polls_no_more() {
    let scene = Scene::new().await;
    let (a, b) = (scene.peer().await, scene.peer().await);
    b.proxy.inject(Fault::DelayReply(Duration::from_millis(300)), 1, named("SUBSCRIBE"));
    let guard = a.hold("a").await;
    let waiter = b.acquiring("b");
    scene.is_queued(&["b"]).await;
    scene.all_hear().await;
    assert!(b.proxy.has_seen(Step::Delivered, named("SUBSCRIBE")), "it said so too early");
    guard.release().await.expect("to release");
    let guard = granted(waiter).await;
    assert_eq!(scene.holder().await.expect("a holder").fence, guard.fence());
}

// Rule 4, R2.1: the process is stopped with the grant in its socket, for longer than the probation. It must not run on it.
#[tokio::test]
async fn a_grant_that_was_read_too_late_is_not_run_on() {
    let scene = Scene::new().await;
    let (a, c) = (scene.peer().await, scene.peer().await);
    let guard = a.hold("a").await;
    let mut stopped = Process::acquiring(&scene.server.url(), "stopped");
    scene.is_queued(&["stopped"]).await;
    scene.all_hear().await;
    let waiter = scene.enqueue(&c, "c").await;
    stopped.stop();
    guard.release().await.expect("to release");
    assert_eq!(scene.held_by().await, "stopped", "the server takes it for alive");
    let guard = granted(waiter).await;
    stopped.cont();
    // It has read its grant when it is back in the queue.
    scene.is_queued(&["stopped"]).await;
    assert!(!stopped.has_run() && guard.is_held(), "two run");
    let fence = guard.fence();
    guard.release().await.expect("to release");
    assert!(soon(stopped.fence()).await > fence.get(), "it ran on the grant that had ended");
}

// Rule 4: after a reconnect there is nothing that the grant's time could be compared with: a beat confirms it, and it runs.
#[tokio::test]
async fn a_grant_that_comes_after_a_reconnect_is_confirmed() {
    let scene = Scene::new().await;
    let (a, b) = (scene.peer().await, scene.peer().await);
    let guard = a.hold("a").await;
    let waiter = scene.enqueue(&b, "b").await;
    // The first beat on the new connection is on its way for a while: until then, there is only the pair of the old one.
    b.proxy.inject(Fault::DelayCommand(Duration::from_millis(700)), 1, is_acquire);
    b.proxy.forget();
    assert!(scene.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).int() >= 1);
    b.proxy.seen_async(Step::Received, is_acquire).await;
    guard.release().await.expect("to release");
    let guard = granted(waiter).await;
    assert!(b.proxy.has_seen(Step::Answered, is_acquire), "it ran unconfirmed");
    assert_eq!(scene.command(&["GET", KEY]).text(), guard.token());
}
