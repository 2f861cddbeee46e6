//! Giving back: by release, by drop, in the worst of circumstances.

use std::pin::pin;
use std::task::{Context, Waker};

use tenure::{ErrorKind, LossKind, Release};

use super::fixture::{Client, Fixture};
use super::time::{NAME, SHORT, drive, enqueue, eventually, granted, hold, is_free, lock, look, sit};

// R2.4
pub(super) async fn a_release_says_that_it_was_done(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&a).await;
    let lease = guard.lease().clone();
    assert_eq!(guard.release().await.expect("to release"), Release::Released);
    assert!(!look(b.domain()).await.is_held(), "released, and still there");
    assert!(!lease.is_held() && lease.remaining().is_zero());
    assert_eq!(*lease.ended().await.kind(), LossKind::Released);
    let is_lost = pin!(lease.lost()).poll(&mut Context::from_waker(Waker::noop())).is_ready();
    assert!(!is_lost, "given back, and not lost");
}

// R2.5
pub(super) async fn a_release_that_did_not_reach_the_store_is_tried_again(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = lock(&a).acquire().await.expect("to acquire");
    a.cut_off().await;
    let returned = drive(f, guard.release()).await.expect_err("the store is out of reach");
    assert_eq!(returned.error.kind(), ErrorKind::Unavailable);
    assert!(!returned.guard.is_held(), "given back, as far as its holder is concerned");
    let returned = drive(f, returned.guard.release()).await.expect_err("still out of reach");
    assert!(look(b.domain()).await.is_held(), "nobody told the store");
    a.reconnect().await;
    let mut left = Some(returned.guard);
    eventually(f, async || {
        match left.take().expect("a guard").release().await {
            Ok(release) => assert_eq!(release, Release::Released),
            Err(returned) => left = Some(returned.guard),
        }
        left.is_none()
    })
    .await;
    is_free(f, b.domain()).await;
}

// R2.5: whoever does not try again leaves it to the background.
pub(super) async fn a_release_that_did_not_reach_the_store_goes_on_by_itself(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = lock(&a).acquire().await.expect("to acquire");
    a.cut_off().await;
    drop(drive(f, guard.release()).await.expect_err("the store is out of reach"));
    a.reconnect().await;
    is_free(f, b.domain()).await;
}

// R2.5
pub(super) async fn a_drop_that_did_not_reach_the_store_goes_on_by_itself(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = lock(&a).acquire().await.expect("to acquire");
    a.cut_off().await;
    drop(guard);
    f.let_pass(SHORT).await;
    assert!(look(b.domain()).await.is_held(), "nobody could tell the store");
    a.reconnect().await;
    is_free(f, b.domain()).await;
}

// R2.5, R2.7: the retry of a release is good for its own lease, and for no later one of the same process.
pub(super) async fn a_late_release_does_not_end_the_next_lease(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = a.domain().lock(NAME).ttl(SHORT).acquire().await.expect("to acquire");
    a.cut_off().await;
    let returned = drive(f, guard.release()).await.expect_err("the store is out of reach");
    is_free(f, b.domain()).await;
    a.reconnect().await;
    let next = drive(f, lock(&a).acquire()).await.expect("to acquire");
    let release = drive(f, async {
        let mut release = returned.guard.release().await;
        // Its time to answer is short, and its line may be bad.
        while let Err(returned) = release {
            release = returned.guard.release().await;
        }
        release.expect("an answer")
    });
    let release = release.await;
    assert!(matches!(release, Release::Taken { .. }), "{release:?}");
    assert!(next.is_held());
    next.renew().await.expect("still ours, says the store");
}

// R2.7: the guards of two tasks that share a lease in turn.
pub(super) async fn a_task_can_not_release_the_turn_of_another(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let first = hold(&a).await;
    let lease = first.lease().clone();
    let second = sit(f, &a, lock(&a).label("holder")).await;
    first.release().await.expect("to release");
    let second = granted(f, second).await;
    assert!(!lease.is_held(), "its turn is over");
    assert_eq!(*lease.ended().await.kind(), LossKind::Released);
    assert!(second.is_held() && second.fence() > lease.fence());
    drop(lease);
    assert!(second.is_held());
    second.renew().await.expect("still ours, says the store");
    assert!(!lock(&b).try_acquire().await.expect("no error").is_acquired());
}

// R3.5
pub(super) async fn a_drop_gives_back(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    drop(hold(&a).await);
    is_free(f, b.domain()).await;
    let guard = hold(&a).await;
    let next = enqueue(f, &b, "b").await;
    drop(guard);
    drop(granted(f, next).await);
}

// R3.5
pub(super) async fn a_drop_outside_a_runtime_gives_back(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&a).await;
    std::thread::spawn(move || drop(guard)).join().expect("a drop never panics");
    is_free(f, b.domain()).await;
}

// R3.5: a guard keeps what it needs. It is renewed, and given back, without its domain.
pub(super) async fn a_guard_outlives_its_domain(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = a.domain().lock(NAME).ttl(SHORT).acquire().await.expect("to acquire");
    drop(a);
    f.let_pass(SHORT * 5 / 2).await;
    assert!(guard.is_held(), "it was not renewed");
    guard.renew().await.expect("to renew");
    std::thread::spawn(move || drop(guard)).join().expect("a drop never panics");
    is_free(f, b.domain()).await;
}

// R1.7, R3.5
pub(super) async fn a_panic_gives_back(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let lock = lock(&a);
    let task = tokio::spawn(async move {
        let _guard = lock.acquire().await.expect("to acquire");
        panic!("on purpose");
    });
    assert!(drive(f, task).await.expect_err("it panics").is_panic());
    is_free(f, b.domain()).await;
}

// R3.5: its runtime goes down and takes the keeper along. The lease ends by itself, and its holder knows.
pub(super) async fn a_lease_does_not_outlive_its_runtime_for_long(f: &impl Fixture) {
    let other = f.client().await;
    let guard = std::thread::scope(|scope| {
        let hold_and_shut_down = || {
            let runtime = f.runtime();
            let guard = runtime.block_on(async {
                let client = f.client().await;
                let lock = client.domain().lock(NAME).ttl(SHORT);
                lock.acquire().await.expect("to acquire")
            });
            runtime.shutdown_background();
            guard
        };
        scope.spawn(hold_and_shut_down).join().expect("no panic")
    });
    let next = drive(f, lock(&other).acquire()).await.expect("to acquire");
    assert!(!guard.is_held(), "two hold it");
    drop(guard);
    assert!(next.is_held());
}

// R3.5: dropped by the runtime that goes down, in the middle of its work.
pub(super) async fn a_runtime_that_goes_down_gives_back(f: &impl Fixture) {
    let other = f.client().await;
    std::thread::scope(|scope| {
        let hold_and_shut_down = || {
            let runtime = f.runtime();
            runtime.block_on(async {
                let client = f.client().await;
                let lock = client.domain().lock(NAME).ttl(2 * SHORT);
                let (held, is_held) = tokio::sync::oneshot::channel();
                tokio::spawn(async move {
                    let _guard = lock.acquire().await.expect("to acquire");
                    held.send(()).expect("someone to wait for it");
                    std::future::pending::<()>().await;
                });
                is_held.await.expect("to be held");
            });
            drop(runtime);
        };
        scope.spawn(hold_and_shut_down).join().expect("no panic");
    });
    is_free(f, other.domain()).await;
}

// R3.5: whoever's runtime the background happened to run on, its end concerns nobody else.
pub(super) async fn the_end_of_another_runtime_costs_no_lease(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let runtime = std::thread::scope(|scope| {
        let hold_elsewhere = || {
            let runtime = f.runtime();
            drop(runtime.block_on(a.domain().lock("elsewhere").acquire()).expect("to acquire"));
            runtime
        };
        scope.spawn(hold_elsewhere).join().expect("no panic")
    });
    let guard = a.domain().lock(NAME).ttl(SHORT).acquire().await.expect("to acquire");
    runtime.shutdown_background();
    f.let_pass(SHORT * 5 / 2).await;
    assert!(guard.is_held(), "it was not renewed");
    drop(guard);
    is_free(f, b.domain()).await;
}
