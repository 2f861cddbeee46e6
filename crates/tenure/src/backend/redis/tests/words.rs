//! Operations that end the lease of another client, and refusals: their words and answers, as in docs/protocol.md.

use std::time::Duration;

use tenure_testkit::redis::Reply;

use super::scene::{BEATS, BROKEN, FENCE, LOCK, QUEUE, Scene, bulk, int, token, words_of};
use crate::backend::redis::keys::Keys;
use crate::backend::redis::script::Call;
use crate::core::record::{MOST_AHEAD, Op, Wait};
use crate::types::name::Name;

const OLD: &str = "0123456789abcdef0123456789abcdef:5e55000000000001:host:user:7:";
const NEW: &str = "fedcba9876543210fedcba9876543210:5e55000000000002:host:user:8:";
const TTL: Duration = Duration::from_millis(10_000);
/// A time that no clock shows, in µs: the year 2100.
const FAR: u64 = 4_102_444_800_000_000;

fn acquire(asker: &str, not_after: u64) -> Op {
    Op::Acquire { token: token(asker), ttl: TTL, wait: Wait::No, polls: false, floor: 0, not_after }
}

/// The words of a script without force.
fn words<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [&["4", LOCK, FENCE, QUEUE, BEATS, "tenure:grants:"], arguments, &["600000"]].concat()
}

/// The words of a script with force.
fn words_of_force<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [&words_of_a_look(), arguments, &["600000"]].concat()
}

fn words_of_a_look() -> Vec<&'static str> {
    vec!["5", LOCK, FENCE, QUEUE, BEATS, BROKEN, "tenure:grants:"]
}

/// The life of a range of fences that starts in the future, in ms: its lease, until the clock is there, and ten minutes.
fn life(start: u64, time: u64) -> i64 {
    let ahead = start / 1_000 - time / 1_000;
    i64::try_from(10_000 + ahead + 600_000).unwrap()
}

// R2.8
#[test]
fn a_lease_is_taken_over_adopted_and_broken() {
    let mut scene = Scene::start();
    let far = FAR.to_string();
    let first = scene.run(acquire(OLD, FAR), &words(&[OLD, "10000", "no", "0", "0", &far, "610000"])).time;

    // A fence that is ahead of the clock, by an hour.
    let ahead = first + 3_600_000_000;
    let floor = ahead - 1;
    let take_over = Op::TakeOver { token: token(NEW), ttl: TTL, floor, not_after: FAR };
    let taken = scene.run(take_over, &words_of_force(&[NEW, "10000", &floor.to_string(), &far]));
    assert_eq!(taken.returned, [bulk("granted"), int(ahead)], "above the floor");
    assert_eq!(taken.string(LOCK, 10_000), NEW);
    assert_eq!(taken.string(BROKEN, 60_000), first.to_string(), "whose lease was ended by force");

    let adopt = Op::Adopt { from: token(NEW), token: token(OLD), ttl: TTL, floor: 0, not_after: FAR };
    let adopted = scene.run(adopt, &words(&[NEW, OLD, "10000", "0", &far]));
    assert_eq!(adopted.returned, [bulk("granted"), int(ahead + 64)], "above the range of the other");
    assert_eq!(adopted.string(LOCK, 10_000), OLD);
    assert_eq!(adopted.keys[BROKEN].value, [first.to_string()], "to adopt is no force");
    let adopt = Op::Adopt { from: token(NEW), token: token(NEW), ttl: TTL, floor: 0, not_after: FAR };
    let refused = scene.run(adopt, &words(&[NEW, NEW, "10000", "0", &far]));
    assert_eq!(refused.returned, [bulk("not_held"), bulk(OLD)]);

    let fence = (ahead + 63).to_string();
    let other =
        scene.run(Op::Break { token: token(OLD), fence: ahead + 63 }, &words_of_force(&[OLD, &fence]));
    assert_eq!(other.keys[BROKEN].value, [first.to_string()]);
    assert_eq!(other.returned, [bulk("not_held"), bulk(OLD)], "the lease that was inspected is another");
    let fence = (ahead + 64).to_string();
    let broken =
        scene.run(Op::Break { token: token(OLD), fence: ahead + 64 }, &words_of_force(&[OLD, &fence]));
    assert_eq!(broken.returned, [bulk("done")]);
    assert_eq!(broken.names(), [BROKEN, FENCE]);
    assert_eq!(broken.string(BROKEN, 60_000), fence);
    assert_eq!(
        broken.string(FENCE, life(ahead + 64, adopted.time)),
        (ahead + 127).to_string(),
        "all of its range stays reserved"
    );

    let seen = scene.run(Op::Inspect, &words_of_a_look());
    assert_eq!(seen.returned[4..], [Reply::Array(vec![]), int(ahead + 64)]);

    let gone = scene.run(Op::Release { token: token(OLD), used: 0 }, &words(&[OLD, "0"]));
    assert_eq!(gone.returned, [bulk("not_held"), Reply::Nil]);
}

// R0.2: the holder takes over the fence that another store gave for the same lease; no other client can, and never downwards.
#[test]
fn a_range_is_raised() {
    let mut scene = Scene::start();
    let (far, fence) = (FAR.to_string(), FAR.to_string());
    scene.run(acquire(OLD, FAR), &words(&[OLD, "10000", "no", "0", "0", &far, "610000"]));
    let raise = |who, fence| Op::Raise { token: token(who), fence };
    let raised = scene.run(raise(OLD, FAR), &words(&[OLD, &fence]));
    assert_eq!(raised.returned, [bulk("granted"), int(FAR)]);
    assert_eq!(raised.string(FENCE, life(FAR, raised.time)), (FAR + 63).to_string());
    let lower = scene.run(raise(OLD, 7), &words(&[OLD, "7"]));
    assert_eq!(lower.returned, [bulk("granted"), int(FAR)]);
    let other = scene.run(raise(NEW, FAR + 100), &words(&[NEW, &(FAR + 100).to_string()]));
    assert_eq!(other.returned, [bulk("not_held"), bulk(OLD)]);
    assert_eq!(other.string(FENCE, life(FAR, raised.time)), (FAR + 63).to_string());
}

// I3, R2.8: no command that keeps the last fence shortens its life, which may be longer because the fence is ahead of the clock.
#[test]
fn keeping_a_fence_never_shortens_its_life() {
    let scene = Scene::start();
    let (keys, name) = (Keys::new("tenure:"), Name::new("orders/42").unwrap());
    let call = Call::new(&keys, &name, Op::Renew { token: token(OLD), ttl: TTL });
    for keep in [
        call.keep_fence(true),
        call.keep_fence(false),
        call.keep_fence_by_a_write(true),
        call.keep_fence_by_a_write(false),
    ] {
        let keep = words_of(&keep);
        for (before, after) in [("1000", 610_000), ("900000", 900_000)] {
            scene.server.command(&["SET", FENCE, "7", "PX", before]);
            assert!(!scene.server.command(&keep).is_error(""), "{keep:?}");
            let left = scene.server.command(&["PTTL", FENCE]).int();
            assert!(
                (after - 60_000..=after).contains(&left),
                "{left} ms of {after} after {before}: {keep:?}"
            );
        }
        scene.server.command(&["DEL", FENCE]);
        assert_eq!(scene.server.command(&keep).int(), 0, "a fence that is gone is not made anew");
    }
}

// R2.8: the server refuses a late request, and changes nothing.
#[test]
fn a_late_request_is_refused() {
    let mut scene = Scene::start();
    let late = [
        (acquire(OLD, 1), words(&[OLD, "10000", "no", "0", "0", "1", "610000"])),
        (
            Op::TakeOver { token: token(OLD), ttl: TTL, floor: 0, not_after: 1 },
            words_of_force(&[OLD, "10000", "0", "1"]),
        ),
        (
            Op::Adopt { from: token(NEW), token: token(OLD), ttl: TTL, floor: 0, not_after: 1 },
            words(&[NEW, OLD, "10000", "0", "1"]),
        ),
    ];
    for (op, words) in late {
        let after = scene.run(op, &words);
        assert_eq!(after.returned, [bulk("late")]);
        assert!(after.keys.is_empty());
    }
}

// R2.8: the server refuses a floor that no clock explains, and changes nothing; it continues from one that is less far ahead.
#[test]
fn a_floor_that_is_too_far_ahead_is_refused() {
    let mut scene = Scene::start();
    let (far, floor) = (FAR.to_string(), FAR - 1);
    let seen = floor.to_string();
    let ahead = [
        (
            Op::Acquire { token: token(OLD), ttl: TTL, wait: Wait::No, polls: false, floor, not_after: FAR },
            words(&[OLD, "10000", "no", "0", &seen, &far, "610000"]),
        ),
        (
            Op::Acquire {
                token: token(OLD),
                ttl: TTL,
                wait: Wait::Join,
                polls: false,
                floor,
                not_after: FAR,
            },
            words(&[OLD, "10000", "join", "0", &seen, &far, "610000"]),
        ),
        (
            Op::TakeOver { token: token(OLD), ttl: TTL, floor, not_after: FAR },
            words_of_force(&[OLD, "10000", &seen, &far]),
        ),
        (
            Op::Adopt { from: token(NEW), token: token(OLD), ttl: TTL, floor, not_after: FAR },
            words(&[NEW, OLD, "10000", &seen, &far]),
        ),
    ];
    for (op, words) in ahead {
        let after = scene.run(op, &words);
        assert_eq!(after.returned, [bulk("ahead"), int(floor - after.time)]);
        assert!(after.keys.is_empty());
    }
    let floor = scene.run(Op::Inspect, &words_of_a_look()).time + MOST_AHEAD;
    let acquire =
        Op::Acquire { token: token(OLD), ttl: TTL, wait: Wait::No, polls: false, floor, not_after: FAR };
    let granted = scene.run(acquire, &words(&[OLD, "10000", "no", "0", &floor.to_string(), &far, "610000"]));
    assert_eq!(granted.returned, [bulk("granted"), int(floor + 1)]);
}

// R2.8, B6: a lock of another library excludes ours, and is shown with its token and perhaps without expiry.
#[test]
fn a_foreign_lock_is_a_holder() {
    let mut scene = Scene::start();
    let taken = scene.server.command(&["SET", LOCK, "foreign", "NX"]);
    assert_eq!(taken.text(), "OK");
    let far = FAR.to_string();
    let busy = scene.run(acquire(OLD, FAR), &words(&[OLD, "10000", "no", "0", "0", &far, "610000"]));
    assert_eq!(busy.returned, [bulk("busy"), int(0), bulk("foreign"), int(0), Reply::Int(-1)]);
    assert_eq!(scene.server.command(&["DEL", LOCK]).int(), 1);
    scene.run(acquire(OLD, FAR), &words(&[OLD, "10000", "no", "0", "0", &far, "610000"]));
    assert!(
        scene.server.command(&["SET", LOCK, "foreign", "NX", "PX", "5000"]).is_nil(),
        "and ours excludes it"
    );
}

// R2.8: which scripts work when the server is out of memory, and which write nothing.
#[test]
fn the_first_line_names_the_flags() {
    let (keys, name) = (Keys::new("tenure:"), Name::new("orders/42").unwrap());
    let (token, ttl) = (token(OLD), TTL);
    let scripts = [
        (acquire(OLD, FAR), "#!lua\n"),
        (Op::Adopt { from: token.clone(), token: token.clone(), ttl, floor: 0, not_after: FAR }, "#!lua\n"),
        (Op::TakeOver { token: token.clone(), ttl, floor: 0, not_after: FAR }, "#!lua\n"),
        (Op::Renew { token: token.clone(), ttl }, "#!lua flags=allow-oom\n"),
        (Op::Release { token: token.clone(), used: 0 }, "#!lua flags=allow-oom\n"),
        (Op::Leave { token: token.clone() }, "#!lua flags=allow-oom\n"),
        (Op::Raise { token: token.clone(), fence: 0 }, "#!lua flags=allow-oom\n"),
        (Op::Break { token, fence: 0 }, "#!lua flags=allow-oom\n"),
        (Op::Inspect, "#!lua flags=no-writes\n"),
    ];
    for (op, first_line) in scripts {
        let call = Call::new(&keys, &name, op);
        let [flagged, plain] = [true, false].map(|has_flags| words_of(&call.whole(has_flags))[1].clone());
        assert_eq!(flagged, [first_line.as_bytes(), &plain].concat(), "{first_line}");
    }
}
