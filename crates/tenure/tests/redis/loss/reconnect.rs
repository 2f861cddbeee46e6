//! After a reconnect, what the server knew of the connection before is gone: every lease is verified and tracked anew.

use std::time::Duration;

use tenure::{Attempt, LossKind};
use tenure_testkit::redis::{Fault, RedisServer, Step};

use super::{hold_many_tracked, hold_tracked, told};
use crate::redis::waiting::scene::{KEY, Scene, eventually, is_renewal, soon};

// R3.4: tracked again, and not only verified.
#[tokio::test]
async fn a_key_that_is_deleted_after_it_is_told() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let guard = hold_tracked(&a).await;
    for _ in 0..3 {
        let before = a.domain.metrics().renewals;
        scene.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        a.renews(before).await;
    }
    assert!(guard.is_held());
    scene.command(&["DEL", KEY]);
    assert_eq!(told(&guard).await, LossKind::Gone);
}

// R3.4: deleted while nobody could be told.
#[tokio::test]
async fn a_key_that_was_deleted_before_it_is_told() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let guard = hold_tracked(&a).await;
    a.proxy.cut();
    scene.command(&["DEL", KEY]);
    assert!(guard.is_held(), "it can't know, and its time is not over");
    a.proxy.heal();
    assert_eq!(told(&guard).await, LossKind::Gone);
}

// R3.4: the network is silent for longer than a client waits for an answer.
#[tokio::test]
async fn a_key_that_was_deleted_during_a_silence_is_told() {
    let scene = Scene::new().await;
    let a = scene.peer_as("", "?timeout=200ms").await;
    let guard = hold_tracked(&a).await;
    let before = a.proxy.accepted();
    a.proxy.black_hole();
    // The connection was given up for another.
    eventually(async || a.proxy.accepted() > before).await;
    scene.command(&["DEL", KEY]);
    a.proxy.heal();
    assert_eq!(told(&guard).await, LossKind::Gone);
}

// R3.4: the renewal that is to verify it is lost as well. It is sent again.
#[tokio::test]
async fn a_verification_that_is_lost_is_repeated() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let guard = hold_tracked(&a).await;
    a.proxy.inject(Fault::SwallowThenReset, 2, is_renewal);
    scene.command(&["DEL", KEY]);
    assert_eq!(told(&guard).await, LossKind::Gone);
    assert_eq!(a.proxy.faults(), 2);
}

// R3.4: the push comes while a renewal is under way, whose answer was made before.
#[tokio::test]
async fn a_push_during_a_renewal_is_not_taken_for_old() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let guard = hold_tracked(&a).await;
    a.proxy.inject(Fault::DelayReply(Duration::from_millis(200)), 1, is_renewal);
    a.proxy.forget();
    scene.command(&["PEXPIRE", KEY, "60000"]);
    a.proxy.seen_async(Step::Answered, is_renewal).await;
    scene.command(&["DEL", KEY]);
    assert_eq!(told(&guard).await, LossKind::Gone);
}

// R3.4: a server that comes back without its data.
#[tokio::test]
async fn a_server_that_forgot_everything_is_told() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let guard = hold_tracked(&a).await;
    scene.server.restart();
    assert_eq!(told(&guard).await, LossKind::Gone);
}

// R3.4: a server that is killed, and has written every grant to its disk before it answered. The holder is cut off until the other has
// asked: it is the server that remembers.
#[tokio::test]
async fn a_server_that_keeps_everything_forgets_no_lease() {
    let scene = Scene::with(RedisServer::builder().aof_always()).await;
    let (a, b) = (scene.peer().await, scene.peer().await);
    let guard = a.hold("a").await;
    a.proxy.cut();
    scene.server.restart();
    eventually(async || match b.lock("b").try_acquire().await {
        Ok(Attempt::Busy(_)) => true,
        Ok(Attempt::Acquired(_)) => panic!("two hold it"),
        Err(error) => {
            assert!(error.is_transient(), "{error}");
            false
        }
    })
    .await;
    let before = a.domain.metrics().renewals;
    a.proxy.heal();
    a.renews(before).await;
    assert!(guard.is_held());
}

// R3.4: all of them are verified, those that are still there are kept, and tracked.
#[tokio::test]
async fn every_lease_is_verified() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let guards = hold_many_tracked(&a).await;
    a.proxy.cut();
    for number in (0..20).step_by(2) {
        scene.command(&["DEL", &format!("tenure:many/{number}")]);
    }
    let before = a.domain.metrics().renewals;
    a.proxy.heal();
    for guard in guards.iter().step_by(2) {
        assert_eq!(*soon(guard.lost()).await.kind(), LossKind::Gone);
    }
    a.renews(before + 19).await;
    assert!(guards.iter().skip(1).step_by(2).all(|guard| guard.is_held()));
    for number in (1..20).step_by(2) {
        scene.command(&["DEL", &format!("tenure:many/{number}")]);
    }
    for guard in guards.iter().skip(1).step_by(2) {
        assert_eq!(*soon(guard.lost()).await.kind(), LossKind::Gone);
    }
}
