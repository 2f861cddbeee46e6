//! What can happen to a key.

use tenure::{ErrorKind, LossKind};

use super::{hold_tracked, told};
use crate::redis::waiting::scene::{FENCE, KEY, Scene, eventually, soon};

// R3.1, R3.2
#[tokio::test]
async fn a_key_that_is_removed_is_told() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let removals: [&[&str]; 8] = [
        &["DEL", KEY],
        &["UNLINK", KEY],
        &["GETDEL", KEY],
        &["RENAME", KEY, "elsewhere"],
        &["MOVE", KEY, "1"],
        &["PEXPIRE", KEY, "0"],
        &["FLUSHDB"],
        &["FLUSHALL"],
    ];
    for removal in removals {
        let guard = hold_tracked(&a).await;
        scene.command(removal);
        assert_eq!(told(&guard).await, LossKind::Gone, "{removal:?}");
        assert!(!guard.is_held());
    }
}

// R3.1, B6: whoever overwrites it holds the name now, if it is a string.
#[tokio::test]
async fn a_key_that_is_overwritten_is_told() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    scene.command(&["SET", "elsewhere", "somebody"]);
    let overwriting: [&[&str]; 5] = [
        &["SET", KEY, "somebody"],
        &["SET", KEY, "somebody", "PX", "60000"],
        &["GETSET", KEY, "somebody"],
        &["APPEND", KEY, "-and-more"],
        &["COPY", "elsewhere", KEY, "REPLACE"],
    ];
    for overwrite in overwriting {
        let guard = hold_tracked(&a).await;
        scene.command(overwrite);
        let kind = told(&guard).await;
        assert!(matches!(kind, LossKind::Taken { .. }), "{overwrite:?}: {kind:?}");
        assert!(!guard.is_held());
        scene.command(&["DEL", KEY]);
    }
}

// R3.1: what is told is verified by a renewal, which undoes this.
#[tokio::test]
async fn an_expiry_that_was_shortened_is_made_good() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let guard = hold_tracked(&a).await;
    for change in [&["PEXPIRE", KEY, "8000"][..], &["SET", KEY, guard.token(), "PX", "8000"]] {
        scene.command(change);
        eventually(async || scene.command(&["PTTL", KEY]).int() > 8_000).await;
        assert!(guard.is_held());
    }
}

// R3.2: the one change that Redis tells nobody of; the next renewal finds it.
#[tokio::test]
async fn a_swapped_database_is_found_by_a_renewal() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let guard = hold_tracked(&a).await;
    scene.command(&["SWAPDB", "0", "1"]);
    assert_eq!(guard.renew().await.expect_err("it is gone").kind(), ErrorKind::Lost);
    assert_eq!(*soon(guard.lost()).await.kind(), LossKind::Gone);
}

// R3.1
#[tokio::test]
async fn an_evicted_key_is_told() {
    let scene = Scene::new().await;
    for policy in ["allkeys-lru", "volatile-ttl", "volatile-lru"] {
        let a = scene.peer().await;
        let guard = hold_tracked(&a).await;
        scene.command(&["CONFIG", "SET", "maxmemory-policy", policy, "maxmemory", "1"]);
        // Evicts what it can, and is refused all the same.
        assert!(scene.server.command(&["SET", "more", "than fits"]).is_error("OOM"));
        assert_eq!(told(&guard).await, LossKind::Gone, "{policy}");
        scene.command(&["CONFIG", "SET", "maxmemory", "0"]);
    }
}

// R3.1: by its clock, the server ends the lease in time. It is the holder who has to learn that.
#[tokio::test]
async fn a_key_that_expires_because_the_clock_was_set_is_told() {
    let scene = Scene::with_clock().await;
    let a = scene.peer().await;
    let guard = hold_tracked(&a).await;
    let fence = guard.fence();
    scene.server.set_clock_offset(3_600_000_000);
    assert_eq!(told(&guard).await, LossKind::Gone);
    // And no fence is given twice when the clock goes back again.
    scene.server.set_clock_offset(0);
    assert!(a.hold("a").await.fence() > fence);
}

// R3.1: what is not the lock's key is not its business; the fence is needed when the lease ends, and then made up for.
#[tokio::test]
async fn the_loss_of_the_fence_alone_is_no_loss() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let guard = hold_tracked(&a).await;
    let before = a.domain.metrics().renewals;
    let fence = guard.fence();
    assert_eq!(scene.command(&["DEL", FENCE]).int(), 1);
    // Harmless, and told: so everything that came before it would have been told as well.
    scene.command(&["PEXPIRE", KEY, "60000"]);
    a.renews(before).await;
    assert!(guard.is_held());
    guard.release().await.expect("to release");
    assert!(a.hold("a").await.fence() > fence);
}

// B1, I3: one that has seen no fence before gets a higher one all the same.
#[tokio::test]
async fn fences_do_not_go_back_with_a_flush() {
    let scene = Scene::new().await;
    let (a, b) = (scene.peer().await, scene.peer().await);
    let guard = hold_tracked(&a).await;
    scene.command(&["FLUSHALL"]);
    assert_eq!(told(&guard).await, LossKind::Gone);
    assert!(b.hold("b").await.fence() > guard.fence());
}
