//! The queue: order, hand-over, silence, ghosts, leaving and death.

use super::*;

// R1.1
#[test]
fn waiters_are_served_in_the_order_in_which_they_came() {
    let mut store = Store::new();
    fence(store.join("a"));
    for (ahead_of_it, who) in ["c", "b", "d"].into_iter().enumerate() {
        let Reply::Waiting { ahead, holding, .. } = store.join(who) else { panic!("{who} has to wait") };
        assert_eq!(ahead, ahead_of_it);
        assert_eq!(holding.token, token("a"));
    }
    assert_eq!(store.queue(), "cbd", "three in the same µs keep their order");
    for (holder, next) in [("a", "c"), ("c", "b"), ("b", "d")] {
        assert_eq!(store.release(holder, 0), Reply::Done);
        assert_eq!(store.granted_by_push(), Some(next));
    }
}

// B2
#[test]
fn a_hand_over_is_on_probation_and_wakes_only_the_next() {
    let mut store = Store::new();
    let first = fence(store.join("a"));
    store.join("b");
    store.join("c");
    store.pass(5).release("a", first);
    let told = Notice::Granted {
        token: token("b"),
        fence: WALL + 5 * MS,
        at: START + 5 * MS,
        term: PROBATION,
        polls: false,
    };
    assert_eq!(store.notices, [told]);
    assert_eq!(store.left(), PROBATION);
    store.pass(300).renew("b", TTL);
    assert_eq!(store.left(), TTL, "the first renewal makes it a full lease");
}

#[test]
fn probation_is_not_longer_than_the_lease_that_was_asked_for() {
    let mut store = Store::new();
    fence(store.join("a"));
    let ttl = Duration::from_millis(250);
    let not_after = store.now.lease;
    store.apply(Op::Acquire { token: token("b"), ttl, wait: Wait::Join, polls: true, floor: 0, not_after });
    store.release("a", 0);
    let [Notice::Granted { term, polls: true, .. }] = store.notices[..] else {
        panic!("{:?}", store.notices)
    };
    assert_eq!((term, store.left()), (ttl, ttl));
    assert_eq!(store.holder().as_deref(), Some("b"));
}

// R1.2: an expired lease is noticed by whatever touches the name, and goes to the first waiter.
#[test]
fn every_touch_settles() {
    type Touch = fn(&mut Store);
    let touches: [(&str, Touch); 8] = [
        ("join", |store| drop(store.join("x"))),
        ("try", |store| drop(store.try_now("x"))),
        ("release", |store| drop(store.release("x", 0))),
        ("leave", |store| drop(store.leave("x"))),
        ("death", |store| drop(store.death("x"))),
        ("adopt", |store| drop(store.adopt("y", "x"))),
        ("break", |store| drop(store.break_lease("x", 0))),
        ("late release of its holder", |store| {
            assert_eq!(store.release("a", 0), not_held("b"));
        }),
    ];
    for (name, touch) in touches {
        let mut store = Store::new();
        fence(store.join("a"));
        store.pass(9_700).join("b");
        store.pass(301);
        touch(&mut store);
        assert_eq!(store.granted_by_push(), Some("b"), "{name}");
        assert_eq!(store.holder().as_deref(), Some("b"), "{name}");
    }
}

#[test]
fn the_first_waiter_itself_is_answered_not_woken() {
    let mut store = Store::new();
    fence(store.join("a"));
    let b = joined_at(store.pass(9_700).join("b"));
    fence(store.pass(301).beat("b", b));
    assert_eq!(store.notices, []);
    assert_eq!(store.left(), TTL, "it is known to live: no probation");
}

// R1.6
#[test]
fn a_second_join_is_a_beat() {
    let mut store = Store::new();
    fence(store.join("a"));
    let b = joined_at(store.join("b"));
    store.join("c");
    assert_eq!(joined_at(store.pass(400).join("b")), b);
    assert_eq!(store.queue(), "bc");
}

// R1.3
#[test]
fn a_silent_waiter_is_skipped_and_comes_back_at_its_old_place() {
    let mut store = Store::new();
    fence(store.join("a"));
    let b = joined_at(store.join("b"));
    let c = joined_at(store.pass(1).join("c"));
    let d = joined_at(store.pass(1).join("d"));
    store.pass(1_400).beat("c", c);
    store.beat("d", d);
    assert_eq!(store.pass(98).queue(), "bcd", "silent for 1.5 s is not too long");
    store.pass(1);
    assert_eq!(store.queue(), "cd", "longer is");
    store.release("a", 0);
    assert_eq!(store.granted_by_push(), Some("c"));
    assert_eq!(store.record.queue.len(), 1, "it leaves nothing behind");
    assert_eq!(joined_at(store.beat("b", b)), b);
    assert_eq!(store.queue(), "bd");
}

/// A name that one holds and so many others wait for, each with its place.
fn crowd(size: usize) -> (Store, Vec<(String, u64)>) {
    let mut store = Store::new();
    fence(store.join("holder"));
    let name = |number: usize| format!("w{number:04}");
    let places = (0..size).map(|number| (name(number), joined_at(store.join(&name(number))))).collect();
    (store, places)
}

// R1.3, rule 5: the last of many pauses for longer. It moves up at once, and is served within its pause, and not after it.
#[test]
fn a_waiter_from_far_back_may_be_silent_for_its_pause() {
    let pause = pause_behind(99);
    assert_eq!(pause, Duration::from_millis(5_000));
    for (silence, is_served) in [(6_100, true), (6_101, false)] {
        let (mut store, waiters) = crowd(100);
        for (who, _) in &waiters[..99] {
            store.leave(who);
        }
        let (last, its_place) = &waiters[99];
        store.pass(silence);
        assert_eq!(store.queue() == *last, is_served, "after {silence} ms");
        store.release("holder", 0);
        assert_eq!(store.granted_by_push() == Some(last), is_served, "after {silence} ms");
        // Now that it is first, its next pause is short, and if it was dropped, it comes back.
        let reply = store.beat(last, *its_place);
        assert!(matches!(reply, Reply::Granted { .. }), "{reply:?}");
    }
}

// Rule 5: the first ones beat as often as if they were alone, and are missed as soon.
#[test]
fn the_first_of_many_are_missed_as_soon_as_before() {
    let (mut store, waiters) = crowd(100);
    store.pass(1_501);
    let Reply::Seen { waiters: living, .. } = store.apply(Op::Inspect) else { panic!("nothing seen") };
    assert_eq!(living[0].0.as_str(), waiters[8].0, "the 9th pauses for 50 ms more");
    assert_eq!(living.len(), 92);
    assert_eq!((pause_behind(0), pause_behind(7)), (HEARTBEAT, HEARTBEAT));
    assert_eq!(pause_behind(10_000), LONGEST_HEARTBEAT);
    assert_eq!(pause_behind(usize::MAX), LONGEST_HEARTBEAT);
}

// Rule 8: a waiter that polls finds its grant by asking, within a probation.
#[test]
fn a_waiter_that_polls_does_not_pause_for_longer() {
    let (mut store, _) = crowd(100);
    let not_after = store.now.lease;
    let wait = Wait::Join;
    store.apply(Op::Acquire { token: token("p"), ttl: TTL, wait, polls: true, floor: 0, not_after });
    assert_eq!(store.record.queue[100].beat, store.now.lease);
}

// R1.3: a mass of waiters whose processes died unnoticed costs a probation each for as long as their pauses allow, and no longer.
#[test]
fn many_that_died_far_back_are_passed_over_once_their_pauses_are_over() {
    let (mut store, waiters) = crowd(200);
    let survivor = waiters[199].clone();
    store.pass(1).release("holder", 0);
    let mut waited = 0;
    while store.holder().as_deref() != Some(&*survivor.0) {
        let reply = store.pass(100).beat(&survivor.0, survivor.1);
        waited += 100;
        assert!(waited < 13_000, "{reply:?} after {waited} ms");
    }
}

// R1.1: the queue of a store that was flushed is rebuilt by the beats.
#[test]
fn order_survives_the_loss_of_the_queue() {
    let mut store = Store::new();
    fence(store.join("a"));
    let places = ["b", "c", "d"].map(|who| (who, joined_at(store.join(who))));
    store.record = Record::new(store.record.last_fence());
    fence(store.try_now("e"));
    let f = joined_at(store.pass(1).join("f"));
    for (who, old) in places.into_iter().rev() {
        assert_eq!(joined_at(store.beat(who, old)), old);
    }
    assert_eq!(store.queue(), "bcdf", "who came after the loss is behind those who come back");
    assert!(f > places[2].1);
}

// R1.3: rule 5. The lease of a holder that died expires: who has not beaten since that grant is not worth a probation.
#[test]
fn after_an_expiry_only_who_has_beaten_since_the_grant_is_served() {
    let mut store = Store::new();
    fence(store.join("a"));
    store.join("b");
    let c = joined_at(store.join("c"));
    store.pass(200).release("a", 0);
    assert_eq!(store.granted_by_push(), Some("b"));
    let d = joined_at(store.join("d"));
    // 1.001 s later b's probation is over. c was silent for 1.2 s: not lapsed, but it has not beaten since b's grant.
    store.pass(800).beat("d", d);
    store.pass(201).leave("x");
    assert_eq!(store.granted_by_push(), Some("d"));
    assert_eq!(store.queue(), "");
    assert_eq!(joined_at(store.beat("c", c)), c, "and if it lives, it is next");
}

#[test]
fn after_a_release_a_waiter_that_has_not_lapsed_is_served() {
    let mut store = Store::new();
    fence(store.join("a"));
    store.join("b");
    store.join("c");
    store.pass(100).release("a", 0);
    store.pass(990).release("b", 0);
    assert_eq!(store.granted_by_push(), Some("c"));
}

// Rule 5: a grant that seems to be from the future says nothing about who lives; else a step back would strand everyone.
#[test]
fn after_an_expiry_with_the_clock_set_back_everyone_counts_as_living() {
    for set_back_ms in [400, 60_000] {
        let mut store = Store::new();
        fence(store.join("a"));
        store.join("b");
        store.join("c");
        store.release("a", 0);
        assert_eq!(store.granted_by_push(), Some("b"));
        store.pass(1_100);
        store.now.wall -= set_back_ms * MS;
        store.leave("x");
        assert_eq!(store.granted_by_push(), Some("c"), "set back by {set_back_ms} ms");
    }
}

// R1.3: the clock of the leases was set back; beats from the future count, and the name is not stuck.
#[test]
fn a_lease_clock_that_was_set_back_strands_nobody() {
    let mut store = Store::new();
    fence(store.join("a"));
    let b = joined_at(store.join("b"));
    store.now.lease -= 500_000 * MS;
    assert_eq!(store.queue(), "b");
    assert_eq!(joined_at(store.beat("b", b)), b);
    store.release("a", 0);
    assert_eq!(store.granted_by_push(), Some("b"));
}

// R1.4
#[test]
fn leaving_the_queue_is_immediate_and_passes_a_grant_on() {
    let mut store = Store::new();
    fence(store.join("a"));
    store.join("b");
    store.join("c");
    store.join("d");
    assert_eq!(store.leave("c"), Reply::Done);
    assert_eq!(store.queue(), "bd");
    store.release("a", 0);
    assert_eq!(store.leave("b"), Reply::Done, "granted meanwhile");
    assert_eq!(store.granted_by_push(), Some("d"));
    assert_eq!(store.leave("b"), Reply::Done, "again: harmless");
    assert_eq!(store.holder().as_deref(), Some("d"));
}

// R1.3
#[test]
fn death_of_a_waiter_of_the_holder_and_of_a_stranger() {
    let mut store = Store::new();
    fence(store.join("a"));
    store.join("b");
    store.join("c");
    store.death("b");
    assert_eq!(store.queue(), "c");
    store.death("x");
    assert_eq!(store.holder().as_deref(), Some("a"));
    store.death("a");
    assert_eq!(store.granted_by_push(), Some("c"));
    store.death("c");
    assert_eq!(store.holder(), None);
    assert!(store.record.is_idle(store.now));
}

// A process that died or gave up must not be served by its own ghost.
#[test]
fn what_comes_too_late_is_refused_and_changes_nothing() {
    let mut store = Store::new();
    fence(store.join("a"));
    let now = store.now.lease;
    let late = |not_after| {
        let (token, ttl, floor) = (token("g"), TTL, u64::MAX / 2);
        let acquire = |wait| Op::Acquire { token: token.clone(), ttl, wait, polls: false, floor, not_after };
        let adopt = Op::Adopt { from: super::token("a"), token: token.clone(), ttl, floor, not_after };
        let take_over = Op::TakeOver { token: token.clone(), ttl, floor, not_after };
        let waits = [Wait::No, Wait::Join, Wait::Keep { joined_at: 5 }];
        waits.map(acquire).into_iter().chain([adopt, take_over])
    };
    for op in late(now - 1) {
        let before = store.record.clone();
        assert_eq!(store.apply(op.clone()), Reply::TooLate, "{op:?}");
        assert_eq!(store.record, before, "{op:?}");
        assert_eq!(store.notices, []);
    }
    for op in late(now) {
        assert_ne!(store.apply(op.clone()), Reply::TooLate, "{op:?}: in its last µs it is in time");
    }
}

// R4.1
#[test]
fn a_try_takes_only_what_nobody_living_waits_for() {
    let mut store = Store::new();
    fence(store.try_now("a"));
    store.join("b");
    let Reply::Busy { holding, waiters } = store.try_now("c") else { panic!("it is held") };
    assert_eq!((holding.token, waiters), (token("a"), 1));
    assert_eq!(store.queue(), "b", "a try does not wait");
    store.pass(9_800).join("b");
    store.pass(201);
    assert!(matches!(store.try_now("c"), Reply::Busy { .. }), "b is before it");
    assert_eq!(store.granted_by_push(), Some("b"));
    store.join("d");
    store.pass(1_501);
    fence(store.try_now("c"));
    assert_eq!(store.record.queue, [], "d was silent for too long");
}
