//! What somebody else on the same server can do on purpose: forged messages, and keys with contents that no client of ours writes.

use tenure::{ErrorKind, Ticket};
use tenure_testkit::redis::{Fault, Step};

use crate::redis::waiting::scene::{
    BEATS, FENCE, KEY, LONG, NAME, Peer, QUEUE, Scene, eventually, granted, is_acquire, soon,
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

// A client believes a message only if its fence is about the time of its grant: what it believes is the floor of its later fences.
#[tokio::test]
async fn a_message_with_a_fence_far_ahead_is_not_believed() {
    let scene = Scene::new().await;
    let (a, b) = (scene.peer().await, scene.peer().await);
    let guard = a.hold("a").await;
    let waiter = scene.enqueue(&b, "b").await;
    let token = waiting_token(&scene);
    for ahead in [1_000_001, 60_000_000, 86_400_000_000] {
        let at = time(&scene);
        forge(&scene, &token, &format!("{} {at} 1000 {token} {KEY}", at + ahead));
    }
    for fence in [MOST_FENCE - 200, MOST_FENCE - 1, MOST_FENCE, MOST] {
        let at = time(&scene);
        forge(&scene, &token, &format!("{fence} {at} 1000 {token} {KEY}"));
        forge(&scene, &token, &format!("{fence} {fence} 1000 {token} {KEY}"));
    }
    beats_twice(&b).await;
    assert!(!waiter.is_finished() && guard.is_held());
    guard.release().await.expect("to release");
    granted(waiter).await.release().await.expect("to release");
    are_usable(&scene, &[&a, &b]).await;
}

// Somebody who may publish, and knows a waiting token, can have a lease believed until its first renewal. Other names don't notice.
#[tokio::test]
async fn a_message_that_is_believed_spoils_no_name() {
    let scene = Scene::new().await;
    let (a, b) = (scene.peer().await, scene.peer().await);
    let guard = a.hold("a").await;
    let waiter = scene.enqueue(&b, "b").await;
    let token = waiting_token(&scene);
    // Not believed where a beat is answered between the two.
    eventually(async || {
        let at = time(&scene);
        forge(&scene, &token, &format!("{} {at} {MOST} {token} {KEY}", at + 999_000));
        waiter.is_finished()
    })
    .await;
    let forged = granted(waiter).await;
    soon(forged.lost()).await;
    assert!(guard.is_held());
    assert_eq!(scene.held_by().await, "a");
    guard.release().await.expect("to release");
    are_usable(&scene, &[&a, &b]).await;
}

// Whoever has a ticket can write any fence into it: it is not what later fences are counted from.
#[tokio::test]
async fn a_ticket_with_a_forged_fence_spoils_no_name() {
    let scene = Scene::new().await;
    let (a, b) = (scene.peer().await, scene.peer().await);
    let ticket = a.hold("a").await.detach().await.expect("to detach");
    // A ticket of the form without a checksum: NAME/FENCE/TTL/TOKEN.
    let forged = |fence: u64| {
        let text = ticket.to_string().replace(&ticket.fence().to_string(), &fence.to_string());
        let (_, rest) = text.split_once("/+").and_then(|(_, rest)| rest.split_once('/')).expect("a checksum");
        format!("tenure1/{rest}")
    };
    for fence in [MOST_FENCE, MOST] {
        let error = forged(fence).parse::<Ticket>().expect_err("no fence of ours");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    let forged: Ticket = forged(MOST_FENCE - 1).parse().expect("a ticket");
    let guard = forged.adopt(&b.domain).await.expect("its token holds the name");
    assert!(guard.fence() > ticket.fence());
    guard.release().await.expect("to release");
    are_usable(&scene, &[&a, &b]).await;
}

/// Every client can take the name that was attacked, and others, under fences that follow the server's clock.
async fn are_usable(scene: &Scene, peers: &[&Peer]) {
    for name in [NAME, "new/1", "new/2"] {
        for peer in peers.iter().chain(peers) {
            let guard = soon(peer.domain.lock(name).ttl(LONG).acquire()).await.expect("a free name");
            let (fence, now) = (guard.fence().get(), time(scene));
            assert!(fence < now + 2_000_000, "{name}: {fence} is far above {now}");
            guard.release().await.expect("to release");
        }
    }
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

// A fence beyond all counting is refused, too, before anything is taken, and does not go round by the client's memory.
#[tokio::test]
async fn a_fence_that_is_too_high_spoils_no_other_name() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    for fence in [MOST_FENCE - 100, MOST_FENCE - 1, MOST_FENCE, MOST_FENCE * 2] {
        for is_waited_for in [false, true] {
            let fence = fence.to_string();
            scene.command(&["SET", FENCE, &fence]);
            if is_waited_for {
                scene.command(&["ZADD", QUEUE, "1", "dead"]);
            }
            let error = a.lock("a").try_acquire().await.expect_err("no fence");
            assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
            let error = a.lock("a").take_over().await.expect_err("no fence");
            assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
            assert_eq!(scene.command(&["EXISTS", KEY]).int(), 0, "nothing is taken");
            assert_eq!(scene.command(&["GET", FENCE]).text(), fence);
            scene.command(&["DEL", FENCE, QUEUE]);
        }
    }
    are_usable(&scene, &[&a]).await;
}

// A server whose clock was lost is no place to go on counting from: nothing is taken there until the clock is set right.
#[tokio::test]
async fn a_floor_that_is_more_than_a_year_ahead_is_refused() {
    const DAY: i64 = 86_400_000_000;
    let scene = Scene::with_clock().await;
    let (a, b) = (scene.peer().await, scene.peer().await);
    let seen = a.hold("a").await.fence();
    scene.server.set_clock_offset(-367 * DAY);
    let lock = a.domain.lock("new").ttl(LONG);
    for error in [lock.try_acquire().await.map(|_| ()), lock.take_over().await.map(|_| ())] {
        let error = error.expect_err("a floor that is too far ahead");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("clock is 366 days behind"), "{error}");
    }
    assert_eq!(scene.command(&["EXISTS", "tenure:new", "{tenure:new}:fence"]).int(), 0, "nothing is written");
    let other = b.domain.lock("new").ttl(LONG).acquire().await.expect("a client that has seen nothing");
    assert!(other.fence() < seen);
    other.release().await.expect("to release");
    scene.server.set_clock_offset(-364 * DAY);
    let next = lock.acquire().await.expect("a clock that is wrong, but not lost");
    assert!(next.fence() > seen);
    next.release().await.expect("to release");
    scene.server.set_clock_offset(0);
    are_usable(&scene, &[&a, &b]).await;
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
