//! What somebody else on the same server can do on purpose: forged messages, and keys with contents that no client of ours writes.

use tenure::ErrorKind;
use tenure_testkit::redis::{Fault, Step};

use crate::redis::waiting::scene::{
    BEATS, FENCE, KEY, LONG, NAME, Peer, QUEUE, Scene, eventually, granted, is_acquire,
};

/// From 2^53 on scripts can't count: no fence of ours is there.
const MOST_FENCE: u64 = 1 << 53;
/// The highest number that fits into a message.
const MOST: u64 = u64::MAX;

/// Publishes on the channel of the session that the token belongs to.
fn forge(scene: &Scene, token: &str, message: &str) {
    let channel = format!("tenure:grants:{}", &token[33..49]);
    assert_eq!(scene.command(&["PUBLISH", &channel, message]).int(), 1, "one listens to {channel}");
}

fn waiting_token(scene: &Scene) -> String {
    scene.command(&["ZRANGE", QUEUE, "0", "0"]).items()[0].text()
}

/// The server's clock, in µs.
fn time(scene: &Scene) -> u64 {
    let time = scene.command(&["TIME"]);
    let number = |index: usize| time.items()[index].text().parse::<u64>().expect("a number");
    number(0) * 1_000_000 + number(1)
}

/// Until it has beaten twice: what was published before that has had its effect.
async fn beats_twice(peer: &Peer) {
    for _ in 0..2 {
        peer.proxy.forget();
        peer.proxy.seen_async(Step::Delivered, is_acquire).await;
    }
}

// Whoever hears of a grant that it does not know gives it back, but not another's lease.
#[tokio::test]
async fn a_message_ends_no_lease_of_another_session() {
    let scene = Scene::new().await;
    let (a, b) = (scene.peer().await, scene.peer().await);
    let guard = a.hold("a").await;
    let waiter = scene.enqueue(&b, "b").await;
    let (held, at) = (scene.command(&["GET", KEY]).text(), time(&scene));
    forge(&scene, &waiting_token(&scene), &format!("{at} {at} 1000 {held} {KEY}"));
    beats_twice(&b).await;
    assert_eq!(scene.held_by().await, "a");
    assert!(guard.is_held());
    guard.release().await.expect("to release");
    drop(granted(waiter).await);
}

// Whoever knows the token can have a lease believed for a moment, but not spoil the client for other names.
#[tokio::test]
async fn a_message_does_not_raise_fences_beyond_what_can_be_counted() {
    let scene = Scene::new().await;
    let (a, b) = (scene.peer().await, scene.peer().await);
    let guard = a.hold("a").await;
    let waiter = scene.enqueue(&b, "b").await;
    let (token, at) = (waiting_token(&scene), time(&scene));
    for fence in [MOST_FENCE, MOST] {
        forge(&scene, &token, &format!("{fence} {at} {MOST} {token} {KEY}"));
    }
    beats_twice(&b).await;
    assert!(!waiter.is_finished() && guard.is_held());
    guard.release().await.expect("to release");
    assert!(granted(waiter).await.fence().get() < MOST_FENCE);
    let other = b.domain.lock("another").acquire().await.expect("a free name");
    assert!(other.fence().get() < MOST_FENCE);
}

#[tokio::test]
async fn messages_that_are_no_grants_change_nothing() {
    let scene = Scene::new().await;
    let (a, b) = (scene.peer().await, scene.peer().await);
    let guard = a.hold("a").await;
    let waiter = scene.enqueue(&b, "b").await;
    let token = waiting_token(&scene);
    for message in [
        "",
        " ",
        "1 2 3",
        "x y z token key",
        "-1 2 3 token key",
        &format!("99999999999999999999 1 1 {token} {KEY}"),
        &format!("{MOST} {MOST} {MOST} token {KEY}"),
        &format!("1 1 1 {token} tenure:"),
        &format!("1 1 1 {token} another"),
        &format!("1 1 1 {token} {KEY}"),
        &format!("{MOST} {MOST} {MOST} {token} {KEY}"),
    ] {
        forge(&scene, &token, message);
    }
    beats_twice(&b).await;
    assert_eq!(scene.held_by().await, "a");
    assert!(!waiter.is_finished());
    guard.release().await.expect("to release");
    assert!(granted(waiter).await.is_held());
}

// Whatever a script finds, it leaves as it was when it can't go on.
#[tokio::test]
async fn a_fence_that_is_no_number_is_refused_and_nothing_is_taken() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    scene.command(&["SET", FENCE, "abc"]);
    let error = a.lock("a").try_acquire().await.expect_err("no fence");
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    assert!(error.to_string().contains("something else than a lock"), "{error}");
    assert_eq!(scene.command(&["EXISTS", KEY]).int(), 0, "nothing is taken");
    assert_eq!(scene.command(&["GET", FENCE]).text(), "abc");
    scene.command(&["DEL", FENCE]);
    assert!(a.lock("a").try_acquire().await.expect("to answer").ok().is_some(), "it is a lock again");
}

// A fence beyond all counting is refused, too, and does not go round by the client's memory.
#[tokio::test]
async fn a_fence_that_is_too_high_spoils_no_other_name() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    scene.command(&["SET", FENCE, &(MOST_FENCE * 2).to_string()]);
    let error = a.lock("a").try_acquire().await.expect_err("no fence");
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    let other = a.domain.lock("another").acquire().await.expect("a free name");
    assert!(other.fence().get() < MOST_FENCE);
}

// A beat in a form that none of us writes is that of a dead waiter, which the living ones are not stopped by.
#[tokio::test]
async fn beats_that_are_none_stop_nobody() {
    let scene = Scene::new().await;
    let (a, b) = (scene.peer().await, scene.peer().await);
    let guard = a.hold("a").await;
    for (place, beat) in ["", "x", "1", "1 2", "-1 -1 -1"].into_iter().enumerate() {
        let foreign = format!("foreign{place}");
        scene.command(&["ZADD", QUEUE, &place.to_string(), &foreign]);
        scene.command(&["HSET", BEATS, &foreign, beat]);
    }
    let waiter = b.acquiring("b");
    eventually(async || scene.command(&["ZCARD", QUEUE]).int() == 6).await;
    let status = a.domain.inspect(NAME).await.expect("to look");
    assert_eq!(status.waiters.len(), 1, "{status:?}");
    guard.release().await.expect("to release");
    assert!(granted(waiter).await.is_held());
}

// R3.6: a name may have any character, and its grant is heard: here nothing else could serve the waiter.
#[tokio::test]
async fn a_grant_of_a_name_with_a_zero_byte_is_heard() {
    let scene = Scene::new().await;
    let (a, b) = (scene.peer().await, scene.peer().await);
    let name = "a\0b\nc";
    for hands_over_the_long_way in [false, true] {
        let guard = a.domain.lock(name).ttl(LONG).acquire().await.expect("a free name");
        let lock = b.domain.lock(name).ttl(LONG);
        let waiter = tokio::spawn(async move { lock.acquire().await.expect("to be granted in the end") });
        let beats = format!("{{tenure:{name}}}:beats");
        eventually(async || {
            let beats = scene.command(&["HVALS", &beats]);
            beats.items().iter().any(|beat| beat.text().ends_with(" 0"))
        })
        .await;
        if hands_over_the_long_way {
            // A dead one is first.
            scene.command(&["ZADD", &format!("{{tenure:{name}}}:queue"), "1", "dead"]);
        }
        b.proxy.inject(Fault::DelayCommand(LONG), u64::MAX, is_acquire);
        guard.release().await.expect("to release");
        assert!(granted(waiter).await.is_held());
        b.proxy.clear();
        b.proxy.cut();
        b.proxy.heal();
    }
}
