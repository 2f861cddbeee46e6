//! Requests that Redis executes after they were gone on without.

use std::time::Duration;

use tenure::{Degrade, Domain, Release};
use tenure_testkit::patience::until;
use tenure_testkit::redis::{Fault, Step, named};

use crate::layered::scene::{LONG, NAME, Scene};

const KEY: &str = "tenure:orders/42";
/// Longer than Redis may be silent here, shorter than an acquire is good for.
const LATE: Duration = Duration::from_millis(1_300);

// R0.2: it was granted without Redis. That Redis has it later, under a fence of its own, does not make it whole.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_redis_grants_too_late_stays_degraded() {
    let scene = Scene::new();
    let peer = scene.peer(Degrade::Allow, LONG).await;
    // From now on the server knows the script.
    peer.acquire().await.release().await.expect("to release");
    peer.proxy.inject(Fault::DelayCommand(LATE), 1, named("EVALSHA"));
    let guard = peer.acquire().await;
    assert!(guard.is_degraded(), "Redis was silent for too long");
    let exists = || scene.server.command(&["EXISTS", KEY]).int() == 1;
    until("the ghost has it", exists).await;
    for _ in 0..3 {
        guard.renew().await.expect("to renew");
        assert!(guard.is_degraded());
    }
    assert_eq!(guard.release().await.expect("to release"), Release::Released);
    until("it is given back in Redis too", || !exists()).await;
}

// R0.2, I5: it was given back before the ghost came.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ghost_that_comes_after_the_release_is_laid() {
    let scene = Scene::new();
    let peer = scene.peer(Degrade::Allow, LONG).await;
    let elsewhere = Domain::open(scene.server.url()).await.expect("to open");
    // From now on the server knows the script.
    peer.acquire().await.release().await.expect("to release");
    peer.proxy.inject(Fault::DelayCommand(LATE), 1, named("EVALSHA"));
    let guard = peer.acquire().await;
    assert!(guard.is_degraded());
    drop(guard);
    peer.proxy.forget();
    peer.proxy.seen_async(Step::Forwarded, named("EVALSHA")).await;
    // Long before it would have expired.
    drop(elsewhere.lock(NAME).acquire().await.expect("it is free"));
}

// R0.2, I5: Redis did not hear of the release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_could_not_be_given_back_is_given_back_when_redis_is_there() {
    let scene = Scene::new();
    let peer = scene.peer(Degrade::Allow, LONG).await;
    for drops in [false, true] {
        let guard = peer.acquire_both(0).await;
        peer.proxy.cut();
        match drops {
            true => drop(guard),
            false => assert_eq!(guard.release().await.expect("to release"), Release::Released),
        }
        assert_eq!(scene.server.command(&["EXISTS", KEY]).int(), 1);
        peer.proxy.heal();
        until("it is given back", || scene.server.command(&["EXISTS", KEY]).int() == 0).await;
    }
}

// R0.2: a renewal by hand says what it found, also where nobody renews in the background.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_by_hand_says_that_it_is_degraded() {
    let scene = Scene::new();
    let peer = scene.peer(Degrade::Allow, LONG).await;
    let guard = peer.domain.lock(NAME).no_renewal().acquire().await.expect("to acquire");
    guard.renew().await.expect("to renew");
    assert!(!guard.is_degraded());
    peer.proxy.cut();
    guard.renew().await.expect("in the directory");
    assert!(guard.is_degraded() && guard.is_held());
    peer.proxy.heal();
    while guard.is_degraded() {
        guard.renew().await.expect("to renew");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(guard.release().await.expect("to release"), Release::Released);
}
