//! What the holder, and those who act on its lease, can do: renew, release, detach, adopt, take over, break, inspect.

use super::*;

// R1.6
#[test]
fn the_same_token_asking_again_gets_the_same_lease_for_longer() {
    let mut store = Store::new();
    let first = fence(store.join("a"));
    store.pass(4_000);
    for wait in [Wait::No, Wait::Join, Wait::Keep { joined_at: 7 }] {
        store.pass(1);
        assert_eq!(fence(store.acquire_with("a", wait, 0)), first, "{wait:?}");
        assert_eq!(store.left(), TTL);
        assert_eq!(store.record.queue, []);
    }
}

// R2.2
#[test]
fn a_lease_ends_with_the_millisecond_that_holds_its_last_microsecond() {
    let mut store = Store::new();
    store.now.lease += 999;
    let granted = store.now.lease;
    fence(store.join("a"));
    store.now.lease = granted + 10_000 * MS;
    assert_eq!(store.left(), Duration::ZERO, "never ended before its ttl is over (I2)");
    assert!(matches!(store.join("b"), Reply::Waiting { .. }));
    store.now.lease = granted + 10_000 * MS + 1;
    assert_eq!(store.holder(), None);
    assert_eq!(store.renew("a", TTL), not_held(""));
}

// I2
#[test]
fn a_ttl_is_rounded_up_to_whole_milliseconds() {
    let mut store = Store::new();
    fence(store.join("a"));
    store.pass(9_999).renew("a", Duration::from_micros(1_500_001));
    assert_eq!(store.left(), Duration::from_millis(1_501));
}

// R1.5: a delayed renewal with a shorter ttl once gave a lock away under its holder.
#[test]
fn nothing_that_the_holder_sends_shortens_its_lease() {
    let mut store = Store::new();
    fence(store.join("a"));
    let short = Duration::from_secs(1);
    let (a, not_after) = (token("a"), store.now.lease);
    let acquire =
        Op::Acquire { token: a.clone(), ttl: short, wait: Wait::Join, polls: false, floor: 0, not_after };
    let renew = Op::Renew { token: a.clone(), ttl: short };
    let adopt = Op::Adopt { from: token("z"), token: a.clone(), ttl: short, floor: 0, not_after };
    let take_over = Op::TakeOver { token: a.clone(), ttl: short, floor: 0, not_after };
    let detach = Op::Detach { token: a, ttl: short };
    for op in [acquire, renew, adopt, take_over, detach] {
        assert!(matches!(store.apply(op.clone()), Reply::Granted { .. } | Reply::Done), "{op:?}");
        assert_eq!(store.left(), TTL, "{op:?}");
    }
}

// R1.5
#[test]
fn a_renewal_looks_at_the_holder_only() {
    let mut store = Store::new();
    fence(store.join("a"));
    store.pass(9_700).join("b");
    let before = store.record.clone();
    assert_eq!(store.renew("b", TTL), not_held("a"));
    assert_eq!(store.pass(301).renew("a", TTL), not_held(""), "it is over, and stays over");
    assert_eq!(store.record, before, "and it settles nothing");
}

// R2.4
#[test]
fn a_release_of_what_is_not_held_changes_nothing_and_says_who_holds() {
    let mut store = Store::new();
    assert_eq!(store.release("a", 0), not_held(""), "never held");
    fence(store.join("a"));
    let before = store.record.clone();
    assert_eq!(store.release("b", 0), not_held("a"), "taken by another");
    assert_eq!(store.record, before);
    assert_eq!(store.release("a", 0), Reply::Done);
    assert_eq!(store.release("a", 0), not_held(""), "again: harmless");
    fence(store.join("c"));
    store.pass(10_001);
    assert_eq!(store.release("c", 0), not_held(""), "already expired");
}

// R2.1: "detach, adopt": two adopters, one wins; its retry succeeds.
#[test]
fn of_two_adopters_one_wins() {
    let mut store = Store::new();
    let first = fence(store.join("a"));
    store.pass(3_000);
    assert_eq!(store.detach("a"), Reply::Done);
    assert_eq!(store.left(), TTL, "detach renews first");
    let second = fence(store.pass(1_000).adopt("a", "x"));
    assert!(second > first + RANGE - 1, "what the first used is not known");
    assert_eq!(store.adopt("a", "y"), not_held("x"));
    assert_eq!(fence(store.pass(1_000).adopt("a", "x")), second, "a retry finds its own token");
    assert_eq!(store.left(), TTL);
    assert_eq!(store.renew("a", TTL), not_held("x"), "the old token is void");
    assert_eq!(store.adopt("nobody", "z"), not_held("x"));
}

#[test]
fn a_detached_lease_outlives_its_process_until_it_is_adopted() {
    let mut store = Store::new();
    fence(store.join("a"));
    assert_eq!(store.detach("b"), not_held("a"), "only the holder's own");
    store.detach("a");
    store.death("a");
    assert_eq!(store.holder().as_deref(), Some("a"));
    fence(store.adopt("a", "b"));
    store.death("b");
    assert_eq!(store.holder(), None, "who adopted it holds it with its own process");
    fence(store.join("c"));
    store.detach("c");
    store.pass(10_001);
    assert_eq!(store.adopt("c", "d"), not_held(""), "it lives by its ttl");
}

// R3.3
#[test]
fn taking_over_goes_ahead_of_the_queue_and_tells_the_old_holder() {
    let mut store = Store::new();
    let first = fence(store.join("a"));
    store.join("b");
    let second = fence(store.take_over("x"));
    assert!(second > first + RANGE - 1);
    assert_eq!(store.notices, [Notice::Revoked { token: token("a") }]);
    assert_eq!(store.queue(), "b");
    assert_eq!(store.renew("a", TTL), not_held("x"));
    assert_eq!(fence(store.take_over("x")), second, "again: its own lease");
    assert_eq!(store.notices, []);
    store.release("x", 0);
    assert_eq!(store.granted_by_push(), Some("b"));
}

#[test]
fn taking_over_what_is_free_or_expired_revokes_nobody() {
    let mut store = Store::new();
    fence(store.take_over("x"));
    assert_eq!(store.notices, []);
    store.pass(10_001);
    fence(store.take_over("y"));
    assert_eq!(store.notices, []);
}

// R2.4: break ends the lease that was inspected, not one that came after it.
#[test]
fn a_break_compares_token_and_fence() {
    let mut store = Store::new();
    fence(store.join("a"));
    store.join("b");
    let seen = store.holding().unwrap();
    assert_eq!(store.break_lease("b", seen.fence), not_held("a"));
    assert_eq!(store.break_lease("a", seen.fence + 1), not_held("a"));
    assert_eq!(store.break_lease("a", seen.fence - 1), not_held("a"));
    assert_eq!(store.break_lease("a", seen.fence), Reply::Done);
    assert_eq!(store.notices[0], Notice::Revoked { token: token("a") });
    assert_eq!(store.granted_by_push(), Some("b"));
    let next = store.holding().unwrap();
    assert!(next.fence > seen.fence + RANGE - 1, "what it used is not known");
}

// R4.2
#[test]
fn what_was_ended_by_force_is_shown_for_a_minute() {
    let mut store = Store::new();
    let first = fence(store.join("a"));
    store.join("b");
    assert_eq!(
        (store.break_lease("a", first + 1), store.broken()),
        (not_held("a"), None),
        "nothing was ended"
    );
    store.break_lease("a", first);
    assert_eq!(store.broken(), Some(first));
    let second = store.holding().expect("b was next").fence;
    store.break_lease("a", first);
    assert_eq!(store.pass(500).broken(), Some(first), "broken again is broken once");
    let third = fence(store.take_over("x"));
    assert_eq!(store.broken(), Some(second));
    assert_eq!(
        (fence(store.pass(10).take_over("x")), store.broken()),
        (third, Some(second)),
        "not by itself"
    );
    store.release("x", third);
    assert!(store.record.is_idle(store.now) && !store.record.is_over(store.now), "nobody's, and remembered");
    store.pass(59_990);
    assert_eq!(store.broken(), Some(second));
    store.pass(1);
    assert_eq!(store.broken(), None);
    assert!(store.record.is_over(store.now));
    store.leave("nobody");
    assert_eq!(store.record, Record::new(store.record.last_fence()), "the next touch forgets it");
}

// R4.2
#[test]
fn what_ended_otherwise_was_not_broken() {
    let mut store = Store::new();
    let first = fence(store.join("a"));
    store.detach("a");
    fence(store.adopt("a", "b"));
    assert_eq!(store.broken(), None, "adopted");
    store.release("b", first);
    assert_eq!(store.broken(), None, "released");
    fence(store.take_over("c"));
    assert_eq!(store.broken(), None, "it was free");
    store.pass(10_001);
    fence(store.take_over("d"));
    assert_eq!(store.broken(), None, "it had expired");
    store.death("d");
    assert_eq!(store.broken(), None, "it died");
}

// R4.2
#[test]
fn inspecting_changes_nothing() {
    let mut store = Store::new();
    assert_eq!(store.holding(), None);
    let first = fence(store.join("a"));
    store.join("b");
    store.pass(8_600).join("c");
    for ms in [0, 1_400, 1, 60_000] {
        store.pass(ms);
        let before = store.record.clone();
        store.apply(Op::Inspect);
        assert_eq!((&store.record, &store.notices), (&before, &vec![]));
    }
    let mut store = Store::new();
    fence(store.join("a"));
    store.join("b");
    store.pass(1_000).join("c");
    store.pass(501);
    assert_eq!(store.queue(), "c", "the silent are not shown");
    let left = Duration::from_millis(10_000 - 1_501);
    let seen = Holding { token: token("a"), fence: first, left };
    assert_eq!(store.holding(), Some(seen));
}

// I5
#[test]
fn a_record_is_idle_when_nobody_living_is_in_it() {
    let mut store = Store::new();
    assert!(store.record.is_idle(store.now));
    fence(store.join("a"));
    assert!(!store.record.is_idle(store.now), "held");
    store.pass(9_000).join("b");
    assert!(!store.record.is_idle(store.now));
    store.pass(1_001);
    assert!(!store.record.is_idle(store.now), "b may still live");
    store.pass(500);
    assert!(store.record.is_idle(store.now));
}
