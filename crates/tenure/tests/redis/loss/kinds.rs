//! Why a lease ended, and who ended it: the holder is told both.

use std::time::Duration;

use tenure::{LossKind, Release};
use tenure_testkit::redis::Proxy;

use super::{hold_tracked, told};
use crate::redis::waiting::scene::{KEY, NAME, Scene, eventually, granted, soon};

const SHORT: Duration = Duration::from_millis(600);

fn taker(kind: &LossKind) -> String {
    match kind {
        LossKind::Taken { by } => format!("{} {}", by.label(), by.pid().unwrap_or_default()),
        kind => panic!("{kind:?}"),
    }
}

// R3.2
#[tokio::test]
async fn expired() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let lock = a.domain.lock(NAME).ttl(SHORT).no_renewal();
    let guard = lock.acquire().await.expect("to acquire");
    assert_eq!(*soon(guard.lost()).await.kind(), LossKind::Expired);
    let guard = a.domain.lock(NAME).ttl(SHORT).max_hold(SHORT / 2);
    let guard = soon(guard.acquire()).await.expect("to acquire");
    assert_eq!(*soon(guard.lost()).await.kind(), LossKind::Expired);
}

// R3.2, R3.3: by another client
#[tokio::test]
async fn taken_by_another() {
    let scene = Scene::new().await;
    let (a, b) = (scene.peer().await, scene.peer().await);
    let guard = hold_tracked(&a).await;
    let other = b.lock("operator").take_over().await.expect("to take over");
    let kind = told(&guard).await;
    assert_eq!(taker(&kind), format!("operator {}", std::process::id()));
    assert!(other.is_held() && other.fence() > guard.fence());
    let shown = soon(guard.lost()).await.to_string();
    assert!(shown.contains(NAME) && shown.contains("operator"), "{shown}");
    match guard.release().await.expect("an answer") {
        Release::Taken { by } => assert_eq!(by.label(), "operator"),
        release => panic!("{release:?}"),
    }
    assert!(other.is_held());
}

// R3.2, R3.3: the server tells everyone of a change but the client that made it.
#[tokio::test]
async fn taken_by_the_same_client() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let guard = hold_tracked(&a).await;
    let other = a.lock("operator").take_over().await.expect("to take over");
    assert_eq!(taker(&told(&guard).await), format!("operator {}", std::process::id()));
    assert!(other.is_held() && other.fence() > guard.fence());
    drop(guard);
    other.renew().await.expect("still ours, says the store");
}

// R3.2, B6: by a lock of another library, whose token is no owner of ours.
#[tokio::test]
async fn taken_by_a_stranger() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let guard = hold_tracked(&a).await;
    scene.command(&["SET", KEY, "a-token-of-somebody", "PX", "60000"]);
    match told(&guard).await {
        LossKind::Taken { by } => assert!(by.is_foreign(), "{by}"),
        kind => panic!("{kind:?}"),
    }
    drop(guard);
    assert_eq!(scene.command(&["GET", KEY]).text(), "a-token-of-somebody");
}

// R3.2: broken by another client, and by the same, which the server does not tell.
#[tokio::test]
async fn gone() {
    let scene = Scene::new().await;
    let (a, b) = (scene.peer().await, scene.peer().await);
    for breaker in [&b, &a] {
        let guard = hold_tracked(&a).await;
        let holder = scene.holder().await.expect("a holder");
        let release = breaker.domain.break_lock(NAME, &holder).await.expect("an answer");
        assert_eq!(release, Release::Released);
        assert_eq!(told(&guard).await, LossKind::Gone);
    }
}

// R3.2: broken while somebody waits, it is the waiter's: the holder is told who.
#[tokio::test]
async fn broken_and_handed_over() {
    let scene = Scene::new().await;
    let (a, b, c) = (scene.peer().await, scene.peer().await, scene.peer().await);
    for breaker in [&c, &a] {
        let guard = hold_tracked(&a).await;
        let waiter = scene.enqueue(&b, "b").await;
        let holder = scene.holder().await.expect("a holder");
        breaker.domain.break_lock(NAME, &holder).await.expect("an answer");
        let next = granted(waiter).await;
        assert_eq!(taker(&told(&guard).await), format!("b {}", std::process::id()));
        next.release().await.expect("to release");
    }
}

// R3.2: told before the server can give it to another, whether the network says that it is broken or nothing at all.
#[tokio::test]
async fn unreachable() {
    let scene = Scene::new().await;
    for fail in [Proxy::cut, Proxy::black_hole] {
        let (a, b) = (scene.peer().await, scene.peer().await);
        let lock = a.domain.lock(NAME).ttl(SHORT);
        let guard = soon(lock.acquire()).await.expect("to acquire");
        let waiter = scene.enqueue(&b, "b").await;
        fail(&a.proxy);
        let next = granted(waiter).await;
        assert!(!guard.is_held(), "two believe that they hold it");
        assert_eq!(*soon(guard.lost()).await.kind(), LossKind::Unreachable);
        next.release().await.expect("to release");
    }
}

// R3.7
#[tokio::test]
async fn closed() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let guard = hold_tracked(&a).await;
    soon(a.domain.close()).await;
    assert_eq!(*soon(guard.lost()).await.kind(), LossKind::Closed);
    assert!(!guard.is_held());
    // It may still be at work, until it says that it is not.
    assert_eq!(scene.held_by().await, "a");
    drop(guard);
    eventually(async || scene.holder().await.is_none()).await;
}
