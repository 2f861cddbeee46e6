//! Rules 6 and 7: requests that arrive when nobody waits for their answer any more.
//!
//! The first request is held up on its way. Its client takes the connection for dead, finds that the next ones fare no better, and gives
//! up; it says so on a connection that works. Then the first one arrives.

use std::time::{Duration, Instant};

use tenure_testkit::redis::{Fault, Step};

use super::scene::{KEY, LONG, Peer, QUEUE, Scene, eventually, is_acquire, is_renewal, soon};

/// A client that gives up after 200 ms.
const HASTY: &str = "?timeout=200ms";
/// So late its request arrives.
const LATE: Duration = Duration::from_millis(1200);

fn is_take_over(words: &[Vec<u8>]) -> bool {
    words.len() == 14 && words[2] == b"5"
}

fn is_leave(words: &[Vec<u8>]) -> bool {
    words.len() == 10 && words[2] == b"4"
}

/// The first such command is late, and no other arrives.
fn haunt(peer: &Peer, pred: fn(&[Vec<u8>]) -> bool) {
    peer.proxy.inject(Fault::DelayCommand(LATE), 1, pred);
    peer.proxy.inject(Fault::ResetBefore, u64::MAX, pred);
    peer.proxy.forget();
}

/// What the client said after it on the same connection is lost, or a leave that came right behind it would undo what it did.
fn is_alone(peer: &Peer) {
    let began = Instant::now();
    let is_behind = move |words: &[Vec<u8>]| is_leave(words) && began.elapsed() > LATE * 3 / 4;
    peer.proxy.inject(Fault::Drop, u64::MAX, is_behind);
}

/// Until the late command was executed, or refused. Nobody is there to whom the answer could be delivered; but a server reads what has
/// arrived before it reads from a connection that it has yet to accept.
async fn has_come(scene: &Scene, peer: &Peer, pred: fn(&[Vec<u8>]) -> bool) {
    peer.proxy.seen_async(Step::Forwarded, pred).await;
    scene.command(&["PING"]);
}

// R1.4: the very first request of a client, on a free name. It would hold it for a minute.
#[tokio::test]
async fn an_acquire_that_comes_after_its_client_gave_up_takes_nothing() {
    let scene = Scene::new().await;
    let a = scene.peer_as("", HASTY).await;
    haunt(&a, is_acquire);
    is_alone(&a);
    let error = a.lock("a").acquire().await.expect_err("nothing arrives");
    assert!(error.is_transient(), "{error}");
    has_come(&scene, &a, is_acquire).await;
    assert!(scene.holder().await.is_none(), "a ghost holds it");
    assert!(scene.command(&["GET", KEY]).is_nil());
}

// R1.4: on a name that is held, it would wait, and be granted the name when nobody is there.
#[tokio::test]
async fn an_acquire_that_comes_too_late_does_not_join_the_queue() {
    let scene = Scene::new().await;
    let (a, b) = (scene.peer().await, scene.peer_as("", HASTY).await);
    let guard = a.hold("a").await;
    haunt(&b, is_acquire);
    is_alone(&b);
    b.lock("b").acquire().await.expect_err("nothing arrives");
    has_come(&scene, &b, is_acquire).await;
    assert_eq!(scene.command(&["ZCARD", QUEUE]).int(), 0, "a ghost waits");
    assert!(guard.is_held());
}

// R1.4
#[tokio::test]
async fn a_beat_that_comes_after_its_waiter_left_does_not_bring_it_back() {
    let scene = Scene::new().await;
    let (a, b) = (scene.peer().await, scene.peer_as("", HASTY).await);
    let guard = a.hold("a").await;
    let waiter = scene.enqueue(&b, "b").await;
    haunt(&b, is_acquire);
    b.proxy.seen_async(Step::Received, is_acquire).await;
    // It leaves by another connection, or the leave would come behind the beat and undo it.
    let before = b.proxy.accepted();
    eventually(async || b.proxy.accepted() > before + 1).await;
    waiter.abort();
    eventually(async || scene.command(&["ZCARD", QUEUE]).int() == 0).await;
    has_come(&scene, &b, is_acquire).await;
    assert_eq!(scene.command(&["ZCARD", QUEUE]).int(), 0, "a ghost waits");
    guard.release().await.expect("to release");
    assert!(scene.holder().await.is_none(), "handed over to a ghost");
}

// R3.3: it would end the lease of whoever holds the name by then.
#[tokio::test]
async fn a_take_over_that_comes_too_late_takes_nothing_from_anybody() {
    let scene = Scene::new().await;
    let (a, b) = (scene.peer().await, scene.peer_as("", HASTY).await);
    haunt(&b, is_take_over);
    is_alone(&b);
    b.lock("b").take_over().await.expect_err("nothing arrives");
    let guard = a.hold("a").await;
    has_come(&scene, &b, is_take_over).await;
    assert_eq!(scene.held_by().await, "a");
    guard.renew().await.expect("still ours, says the store");
}

// Rule 7. The longer renewal that overtook it is made by hand.
#[tokio::test]
async fn a_renewal_that_comes_late_does_not_shorten_what_a_longer_one_has_made() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let guard = a.hold("a").await;
    a.is_told().await;
    a.proxy.inject(Fault::DelayCommand(Duration::from_millis(200)), 1, is_renewal);
    let renewal = guard.renew();
    let longer = async {
        a.proxy.seen_async(Step::Received, is_renewal).await;
        scene.command(&["PEXPIRE", KEY, "600000"]);
    };
    let (renewed, ()) = soon(async { tokio::join!(renewal, longer) }).await;
    renewed.expect("to renew");
    assert!(scene.command(&["PTTL", KEY]).int() > 500_000, "shortened");
    assert!(guard.remaining() <= LONG);
}

// Rule 7, R1.6: so does an acquire that is sent again because its answer was lost.
#[tokio::test]
async fn an_acquire_by_the_holder_does_not_shorten_its_lease() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    a.proxy.inject(Fault::SwallowThenReset, 1, is_acquire);
    a.proxy.inject(Fault::DelayCommand(Duration::from_millis(200)), 1, is_acquire);
    let acquire = a.lock("a");
    let longer = async {
        a.proxy.seen_async(Step::Answered, is_acquire).await;
        scene.command(&["PEXPIRE", KEY, "600000"]);
    };
    let (guard, ()) = soon(async { tokio::join!(acquire.acquire(), longer) }).await;
    let guard = guard.expect("to acquire");
    assert_eq!(a.proxy.faults(), 2, "asked twice");
    assert!(scene.command(&["PTTL", KEY]).int() > 500_000, "shortened");
    assert_eq!(scene.holder().await.expect("a holder").fence, guard.fence());
}
