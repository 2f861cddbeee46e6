//! The part of docs/protocol.md about Redis as one story, byte by byte.

use std::time::Duration;

use tenure_testkit::redis::Reply;

use super::scene::{BEATS, BROKEN, FENCE, LOCK, QUEUE, Scene, bulk, int, token};
use crate::core::record::{Op, Wait};

const HOLDER: &str = "0123456789abcdef0123456789abcdef:5e55000000000001:host:user:7:nightly:20000";
const WAITER: &str = "fedcba9876543210fedcba9876543210:5e55000000000002:host:user:8::10000";
const OTHER: &str = "00000000000000000000000000000000:5e55000000000003:host:user:9::10000";
const CHANNELS: &str = "tenure:grants:";
/// How long the last fence outlives its lease, in ms; and the same in a request.
const MEMORY: i64 = 600_000;
const MEMORY_WORD: &str = "600000";
const QUEUE_LIFE: i64 = 30_000;
const TTL: Duration = Duration::from_secs(10);

fn acquire(asker: &str, wait: Wait) -> Op {
    Op::Acquire { token: token(asker), ttl: TTL, wait, polls: false, floor: 7, not_after: u64::MAX }
}

fn acquire_words<'a>(asker: &'a str, wait: &'a str) -> [&'a str; 14] {
    let not_after = "18446744073709551615";
    [
        "4",
        LOCK,
        FENCE,
        QUEUE,
        BEATS,
        CHANNELS,
        asker,
        "10000",
        wait,
        "0",
        "7",
        not_after,
        "610000",
        MEMORY_WORD,
    ]
}

fn inspect_words() -> [&'static str; 7] {
    ["5", LOCK, FENCE, QUEUE, BEATS, BROKEN, CHANNELS]
}

// R2.8: the keys, values and messages are those of the page. R2.2: the token has an expiry, which is read. R2.9: the same for the fence.
#[test]
fn a_lease_is_taken_waited_for_renewed_handed_over_and_left() {
    let mut scene = Scene::start();
    let mut subscriber = scene.server.client().unwrap();
    subscriber.command(&["SUBSCRIBE", "tenure:grants:5e55000000000002"]).unwrap();

    let nothing = scene.run(Op::Inspect, &inspect_words());
    let no_waiters = Reply::Array(vec![]);
    assert_eq!(nothing.returned, [bulk("seen"), Reply::Nil, int(0), Reply::Int(-2), no_waiters, Reply::Nil]);
    assert!(nothing.keys.is_empty());

    let taken = scene.run(acquire(HOLDER, Wait::No), &acquire_words(HOLDER, "no"));
    let fence = taken.time;
    assert_eq!(taken.returned, [bulk("granted"), int(fence)], "the first fence is the server's time");
    assert_eq!(taken.names(), [LOCK, FENCE]);
    assert_eq!(taken.string(LOCK, 10_000), HOLDER);
    assert_eq!(taken.string(FENCE, 10_000 + MEMORY), (fence + 63).to_string(), "64 fences are reserved");

    let joined = scene.run(acquire(WAITER, Wait::Join), &acquire_words(WAITER, "join"));
    let joined_at = joined.time;
    let [word, at, ahead, holder, its_fence, left] = &joined.returned[..] else { panic!("{joined:?}") };
    assert_eq!(
        [word, at, ahead],
        [&bulk("waiting"), &int(joined_at), &int(0)],
        "it joined at the server's time"
    );
    assert_eq!([holder, its_fence], [&bulk(HOLDER), &int(fence)]);
    assert!((1..=10_000).contains(&left.int()), "{left:?}");
    assert_eq!(joined.names(), [LOCK, BEATS, FENCE, QUEUE]);
    assert_eq!(joined.members(QUEUE, "zset", QUEUE_LIFE), [WAITER, &joined_at.to_string()]);
    assert_eq!(joined.members(BEATS, "hash", QUEUE_LIFE), [WAITER, &format!("{joined_at} 10000 0")]);

    let kept = joined_at.to_string();
    let heartbeat = scene.run(acquire(WAITER, Wait::Keep { joined_at }), &acquire_words(WAITER, &kept));
    assert_eq!(heartbeat.returned[..3], [bulk("waiting"), int(joined_at), int(0)]);
    assert_eq!(heartbeat.members(QUEUE, "zset", QUEUE_LIFE), [WAITER, &kept]);
    assert_eq!(
        heartbeat.members(BEATS, "hash", QUEUE_LIFE),
        [WAITER, &format!("{} 10000 0", heartbeat.time)]
    );

    let refused = scene.run(acquire(OTHER, Wait::No), &acquire_words(OTHER, "no"));
    assert_eq!(refused.returned[..4], [bulk("busy"), int(1), bulk(HOLDER), int(fence)]);
    assert_eq!(refused.returned.len(), 5, "and the milliseconds that are left");

    let seen = scene.run(Op::Inspect, &inspect_words());
    assert_eq!(seen.returned[..3], [bulk("seen"), bulk(HOLDER), int(fence)]);
    assert_eq!(seen.returned[4..], [Reply::Array(vec![bulk(WAITER), int(joined_at)]), Reply::Nil]);

    let longer = Op::Renew { token: token(HOLDER), ttl: 2 * TTL };
    let renewed = scene.run(longer, &["1", LOCK, HOLDER, "20000"]);
    assert_eq!(renewed.returned, [bulk("done")]);
    assert_eq!(renewed.string(LOCK, 20_000), HOLDER);
    let shorter = Op::Renew { token: token(HOLDER), ttl: TTL };
    let renewed = scene.run(shorter, &["1", LOCK, HOLDER, "10000"]);
    assert!(renewed.keys[LOCK].left > 10_000, "a renewal never shortens: {renewed:?}");
    let others = Op::Renew { token: token(OTHER), ttl: TTL };
    let refused = scene.run(others, &["1", LOCK, OTHER, "10000"]);
    assert_eq!(refused.returned, [bulk("not_held"), bulk(HOLDER)]);

    // A fresh heartbeat, however slow the machine is.
    scene.run(acquire(WAITER, Wait::Keep { joined_at }), &acquire_words(WAITER, &kept));
    let used = (fence + 2).to_string();
    let release = Op::Release { token: token(HOLDER), used: fence + 2 };
    let passed = scene.run(release, &["4", LOCK, FENCE, QUEUE, BEATS, CHANNELS, HOLDER, &used, MEMORY_WORD]);
    assert_eq!(passed.returned, [bulk("done")]);
    assert_eq!(passed.names(), [LOCK, FENCE], "an empty queue leaves nothing");
    assert_eq!(passed.string(LOCK, 1_000), WAITER, "on probation");
    let next = passed.time;
    assert_eq!(passed.string(FENCE, 1_000 + MEMORY), (next + 63).to_string());
    let message = format!("{next} {next} 1000 {WAITER} tenure:orders/42");
    let channel = "tenure:grants:5e55000000000002";
    assert_eq!(*subscriber.receive().unwrap().items(), [bulk("message"), bulk(channel), bulk(&message)]);

    let leave = Op::Leave { token: token(WAITER) };
    let left = scene.run(leave, &["4", LOCK, FENCE, QUEUE, BEATS, CHANNELS, WAITER, MEMORY_WORD]);
    assert_eq!(left.returned, [bulk("done")]);
    assert_eq!(left.names(), [FENCE], "the last fence is remembered for ten minutes, and nothing else");
    left.string(FENCE, MEMORY);
}
