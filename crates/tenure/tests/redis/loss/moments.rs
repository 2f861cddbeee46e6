//! When it happens: at whatever moment of a lease the key is deleted, it is told.

use tenure::{Guard, LossKind};

use super::{hold_many_tracked, hold_tracked, told};
use crate::redis::waiting::scene::{KEY, LONG, NAME, Scene, granted, soon};

async fn is_told_of_deletion(scene: &Scene, guard: &Guard) {
    assert!(guard.is_held());
    assert_eq!(scene.command(&["DEL", KEY]).int(), 1);
    assert_eq!(told(guard).await, LossKind::Gone);
}

// R3.1: before it is tracked. Whether it is still there is the first thing that is asked.
#[tokio::test]
async fn as_soon_as_it_is_granted() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let guard = a.hold("a").await;
    is_told_of_deletion(&scene, &guard).await;
}

// R3.1
#[tokio::test]
async fn when_it_is_some_milliseconds_old() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let guard = hold_tracked(&a).await;
    is_told_of_deletion(&scene, &guard).await;
}

// R3.1: with NOLOOP, what a connection changes itself is not tracked any longer, unless it is read again.
#[tokio::test]
async fn after_renewals() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let guard = hold_tracked(&a).await;
    for _ in 0..3 {
        guard.renew().await.expect("to renew");
    }
    is_told_of_deletion(&scene, &guard).await;
}

// R3.1: also one that changes nothing, because more is left than it asks for.
#[tokio::test]
async fn after_a_renewal_that_need_not_extend() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let guard = hold_tracked(&a).await;
    let before = a.domain.metrics().renewals;
    scene.command(&["PEXPIRE", KEY, "600000"]);
    a.renews(before).await;
    guard.renew().await.expect("to renew");
    is_told_of_deletion(&scene, &guard).await;
}

// R3.1: a push is sent once. What it made the holder verify is tracked again.
#[tokio::test]
async fn after_changes_that_did_no_harm() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let guard = hold_tracked(&a).await;
    for _ in 0..3 {
        let before = a.domain.metrics().renewals;
        scene.command(&["PEXPIRE", KEY, "60000"]);
        a.renews(before).await;
    }
    is_told_of_deletion(&scene, &guard).await;
}

// R3.1: who was handed the name has never asked for its key.
#[tokio::test]
async fn after_a_hand_over() {
    let scene = Scene::new().await;
    let (a, b) = (scene.peer().await, scene.peer().await);
    let before = a.hold("a").await;
    let waiter = scene.enqueue(&b, "b").await;
    before.release().await.expect("to release");
    let guard = granted(waiter).await;
    b.is_told().await;
    is_told_of_deletion(&scene, &guard).await;
}

// R3.1: others wait, and come and go.
#[tokio::test]
async fn while_others_wait() {
    let scene = Scene::new().await;
    let (a, b, c) = (scene.peer().await, scene.peer().await, scene.peer().await);
    let guard = hold_tracked(&a).await;
    let first = scene.enqueue(&b, "b").await;
    let second = scene.enqueue(&c, "c").await;
    first.abort();
    scene.is_queued(&["c"]).await;
    scene.command(&["DEL", KEY]);
    let kind = told(&guard).await;
    assert!(matches!(&kind, LossKind::Gone | LossKind::Taken { .. }), "{kind:?}");
    assert!(granted(second).await.is_held());
}

// R3.1: the script is not known any more, is sent whole, and its key is tracked all the same.
#[tokio::test]
async fn after_the_scripts_were_flushed() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let guard = hold_tracked(&a).await;
    scene.command(&["SCRIPT", "FLUSH"]);
    guard.renew().await.expect("to renew");
    is_told_of_deletion(&scene, &guard).await;
}

// R3.1, R3.3: a lease that was taken by force, and one that was adopted.
#[tokio::test]
async fn when_it_was_taken_or_adopted() {
    let scene = Scene::new().await;
    let (a, b) = (scene.peer().await, scene.peer().await);
    let guard = a.lock("a").take_over().await.expect("to take it");
    a.is_told().await;
    is_told_of_deletion(&scene, &guard).await;

    let ticket = a.hold("a").await.detach().await.expect("to detach");
    let guard = ticket.adopt(&b.domain).await.expect("to adopt");
    b.is_told().await;
    is_told_of_deletion(&scene, &guard).await;
}

// R3.1: the same client has it again, and the guard from before does not mix up the two.
#[tokio::test]
async fn when_it_was_lost_before() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let lost = hold_tracked(&a).await;
    is_told_of_deletion(&scene, &lost).await;
    let guard = hold_tracked(&a).await;
    drop(lost);
    is_told_of_deletion(&scene, &guard).await;
    assert!(scene.holder().await.is_none());
}

// R3.1: nobody renews it, and yet it is tracked.
#[tokio::test]
async fn when_it_is_not_renewed() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let lock = a.domain.lock(NAME).ttl(LONG).no_renewal();
    let guard = lock.acquire().await.expect("to acquire");
    a.is_told().await;
    is_told_of_deletion(&scene, &guard).await;
}

// R3.1: each of many leases of one client.
#[tokio::test]
async fn each_of_many() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let guards = hold_many_tracked(&a).await;
    for number in (0..20).step_by(2) {
        scene.command(&["DEL", &format!("tenure:many/{number}")]);
    }
    for guard in guards.iter().step_by(2) {
        assert_eq!(*soon(guard.lost()).await.kind(), LossKind::Gone);
    }
    assert!(guards.iter().skip(1).step_by(2).all(|guard| guard.is_held()));
    assert_eq!(a.domain.metrics().lost, 10);
}
