//! The server's clock is set back under a lease: the lease seems to last for longer than it was ever asked to, and does not.

use std::time::Duration;

use tenure::Attempt;
use tenure_testkit::redis::Step;
use tokio::task::JoinHandle;

use super::process::Process;
use super::scene::{KEY, NAME, Peer, Scene, eventually, is_acquire};

const HOUR: i64 = 3_600_000_000;
const HOUR_MS: i64 = HOUR / 1_000;
const TTL: Duration = Duration::from_secs(2);
/// Long for a busy machine, and short beside an hour.
const LIMIT: Duration = Duration::from_secs(30);

/// The name is held by a process that is dead; returns its fence.
async fn dead_holder(scene: &Scene) -> u64 {
    let mut holder = Process::acquiring_for(&scene.server.url(), "dead", TTL);
    let fence = holder.fence().await;
    holder.kill();
    fence
}

async fn fence_of(waiter: JoinHandle<tenure::Guard>) -> u64 {
    let guard = tokio::time::timeout(LIMIT, waiter).await.expect("the name is free after one ttl");
    guard.expect("a task that did not panic").fence().get()
}

fn milliseconds_left(scene: &Scene) -> i64 {
    scene.command(&["PTTL", KEY]).int()
}

// R1.3, I5: the waiter is there when the clock is set.
#[tokio::test]
async fn a_waiter_gets_the_name_of_a_dead_holder() {
    let scene = Scene::with_clock().await;
    let b = scene.peer().await;
    let mut holder = Process::acquiring_for(&scene.server.url(), "dead", TTL);
    let fence = holder.fence().await;
    let waiter = scene.enqueue(&b, "b").await;
    holder.kill();
    scene.server.set_clock_offset(-HOUR);
    assert!(fence_of(waiter).await > fence, "fences went back with the clock");
}

// R1.3, I5: nobody asks for the name until long after the clock was set; then somebody waits for it.
#[tokio::test]
async fn a_waiter_that_comes_later_gets_the_name_of_a_dead_holder() {
    let scene = Scene::with_clock().await;
    let b = scene.peer().await;
    let fence = dead_holder(&scene).await;
    scene.server.set_clock_offset(-HOUR);
    assert!(milliseconds_left(&scene) > HOUR_MS / 2, "it seems to be held for an hour");
    assert!(fence_of(b.acquiring("b")).await > fence, "fences went back with the clock");
}

// The same for a client that never waits, and asks from time to time.
#[tokio::test]
async fn a_client_that_only_tries_gets_the_name_of_a_dead_holder() {
    let scene = Scene::with_clock().await;
    let b = scene.peer().await;
    let fence = dead_holder(&scene).await;
    scene.server.set_clock_offset(-HOUR);
    let lock = b.lock("b");
    let mut granted = None;
    eventually(async || match lock.try_acquire().await.expect("an answer") {
        Attempt::Acquired(guard) => granted.replace(guard).is_none(),
        Attempt::Busy(busy) => {
            let left = busy.holder.expect("to be known").remaining;
            assert!(left <= TTL, "it lasts for {left:?}");
            false
        }
    })
    .await;
    assert!(granted.expect("to be held").fence().get() > fence, "fences went back with the clock");
}

// Looking shows what is true of the lease, and changes nothing.
#[tokio::test]
async fn a_status_shows_no_more_than_the_ttl() {
    let scene = Scene::with_clock().await;
    dead_holder(&scene).await;
    scene.server.set_clock_offset(-HOUR);
    let left = scene.holder().await.expect("a holder").remaining;
    assert!(left <= TTL, "it lasts for {left:?}");
    assert!(milliseconds_left(&scene) > HOUR_MS / 2, "a look changed the lease");
}

// I1, I2: a holder that lives is not disturbed, however long others wait, and however often the clock is set back.
#[tokio::test]
async fn a_living_holder_keeps_its_lease() {
    let scene = Scene::with_clock().await;
    let (a, b) = (scene.peer().await, scene.peer().await);
    let guard = a.domain.lock(NAME).ttl(TTL).label("a").acquire().await.expect("to acquire");
    let waiter = scene.enqueue(&b, "b").await;
    for hours in 1..=3 {
        scene.server.set_clock_offset(-hours * HOUR);
        beats(&b).await;
        assert!(milliseconds_left(&scene) <= 2_000, "the beat left the surplus");
        // Three renewals are one ttl.
        let before = a.domain.metrics().renewals;
        eventually(async || a.domain.metrics().renewals >= before + 4).await;
        assert!(guard.is_held());
        assert!(!waiter.is_finished());
    }
    let fence = guard.fence().get();
    guard.release().await.expect("to release");
    assert!(fence_of(waiter).await > fence, "fences went back with the clock");
}

// B6: how long it was asked to last is not known of a lock of another library, nor of a token without a ttl.
#[tokio::test]
async fn a_lease_of_unknown_ttl_is_not_shortened() {
    let scene = Scene::with_clock().await;
    let b = scene.peer().await;
    let tokens = [
        "somebody",
        "somebody:5",
        "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        "0123456789abcdef0123456789abcdef:5e55000000000001:host:user:7:nightly",
        "0123456789abcdef0123456789abcdef:5e55000000000001:host:user:7:5",
        "0123456789abcdef0123456789abcdef:5e55000000000001:host:user:7:5:",
        "0123456789abcdef0123456789abcdef:5e55000000000001:host:user:7:a:b:5",
        "0123456789abcdef0123456789abcdef:5e5500000000001:host:user:7:a:5",
    ];
    for (step, token) in (1..).zip(tokens) {
        scene.command(&["SET", KEY, token, "PX", "60000"]);
        scene.server.set_clock_offset(-step * HOUR);
        let waiter = b.acquiring("b");
        b.proxy.forget();
        beats(&b).await;
        assert!(milliseconds_left(&scene) > HOUR_MS / 2, "{token} was shortened");
        waiter.abort();
        scene.command(&["DEL", KEY]);
    }
}

/// Until the server has executed a heartbeat of this client that was sent after this call. The first answer may belong to an earlier one.
async fn beats(peer: &Peer) {
    for _ in 0..2 {
        peer.proxy.forget();
        let is_beat = |words: &[Vec<u8>]| is_acquire(words) && words[10] != b"join";
        peer.proxy.seen_async(Step::Answered, is_beat).await;
    }
}
