//! The numbers: fences grow over everything that can happen to a name or to the clock, and ranges give back what was not used.

use super::*;

// B1
#[test]
fn a_fence_is_the_time_of_its_grant() {
    let mut store = Store::new();
    assert_eq!(fence(store.join("a")), WALL);
    assert_eq!(store.record.last_fence(), WALL + RANGE - 1);
    store.pass(10_001);
    assert_eq!(fence(store.join("b")), WALL + 10_001 * MS);
}

// B1
#[test]
fn fences_grow_when_the_wall_clock_is_set_back() {
    let mut store = Store::new();
    let first = fence(store.join("a"));
    store.now.wall -= 3_600_000 * MS;
    store.release("a", first + 5);
    assert_eq!(fence(store.join("b")), first + 6);
}

// B1: a store that lost its data is told the highest fence that its client has seen.
#[test]
fn a_grant_is_above_the_floor_of_its_client() {
    let floor = WALL + 77;
    for wait in [Wait::No, Wait::Join, Wait::Keep { joined_at: 3 }] {
        let mut store = Store::new();
        assert_eq!(fence(store.acquire_with("a", wait, floor)), floor + 1, "{wait:?}");
    }
    let not_after = START;
    let (a, ttl) = (token("a"), TTL);
    let adopt = Op::Adopt { from: token("z"), token: a.clone(), ttl, floor, not_after };
    let take_over = Op::TakeOver { token: a, ttl, floor, not_after };
    for op in [adopt, take_over] {
        let mut store = Store::new();
        fence(store.join("z"));
        assert!(fence(store.apply(op)) > floor);
    }
    let mut store = Store { record: Record::new(floor), ..Store::new() };
    assert_eq!(fence(store.join("a")), floor + 1, "the store's own memory");
}

// I3: a server refuses a floor that neither its clock nor the last fence explains.
#[test]
fn a_floor_that_is_too_far_ahead_is_refused() {
    let (a, ttl) = (token("a"), TTL);
    let operations = |floor, not_after| {
        let acquire = |wait| Op::Acquire { token: a.clone(), ttl, wait, polls: false, floor, not_after };
        let adopt = Op::Adopt { from: token("z"), token: a.clone(), ttl, floor, not_after };
        let take_over = Op::TakeOver { token: a.clone(), ttl, floor, not_after };
        [acquire(Wait::No), acquire(Wait::Join), acquire(Wait::Keep { joined_at: START }), adopt, take_over]
    };
    for last in [0, WALL + 7 * MOST_AHEAD] {
        let (store, explained) = (Store { record: Record::new(last), ..Store::new() }, WALL.max(last));
        let most = explained + MOST_AHEAD;
        for (floor, is_refused) in [(most, false), (most + 1, true), ((1 << 53) - 1, true), (u64::MAX, true)]
        {
            let refusal = is_refused.then(|| Reply::Ahead { by: floor - explained });
            for op in operations(floor, START) {
                assert_eq!(store.record.ahead(&op, store.now), refusal, "{op:?}");
            }
            for op in operations(floor, START - 1) {
                assert_eq!(store.record.ahead(&op, store.now), None, "{op:?}: it is too late");
            }
        }
    }
}

// B1: a pushed fence that is not above the waiter's floor is raised by a beat, once.
#[test]
fn a_beat_raises_a_fence_that_is_not_above_the_floor() {
    let mut store = Store::new();
    let first = fence(store.join("a"));
    let mut beat = |floor| fence(store.acquire_with("a", Wait::Keep { joined_at: START }, floor));
    assert_eq!(beat(first - 1), first);
    assert_eq!(beat(first), first + RANGE, "above all that was reserved");
    assert_eq!(beat(first), first + RANGE, "its retry finds it raised");
    assert_eq!(fence(store.acquire_with("a", Wait::Join, 0)), first + RANGE);
}

// B3: the range of 64 is for the tasks of one process; what they did not use goes back.
#[test]
fn a_release_gives_back_the_fences_that_were_not_used() {
    for (used, next) in [(0, 1), (WALL, 1), (WALL + 9, 10), (WALL + RANGE - 1, RANGE)] {
        let mut store = Store::new();
        fence(store.join("a"));
        store.release("a", used);
        assert_eq!(fence(store.join("b")), WALL + next, "used up to {}", used.saturating_sub(WALL));
    }
    let mut store = Store::new();
    fence(store.join("a"));
    store.release("a", u64::MAX);
    assert_eq!(fence(store.join("b")), WALL + RANGE, "never more than was reserved");
}

#[test]
fn without_a_release_the_whole_range_stays_reserved() {
    let ends: [fn(&mut Store); 4] = [
        |store| {
            store.now.lease += 10_001 * MS;
        },
        |store| drop(store.death("a")),
        // A store that no release has reached: others may have seen the range being used.
        |store| drop(store.leave("a")),
        |store| drop(store.break_lease("a", WALL)),
    ];
    for end in ends {
        let mut store = Store::new();
        fence(store.join("a"));
        end(&mut store);
        assert_eq!(fence(store.join("b")), WALL + RANGE);
    }
}

// B1: what the store remembers when it drops an idle record.
#[test]
fn a_record_that_was_dropped_and_made_again_goes_on_counting() {
    let mut store = Store::new();
    let first = fence(store.join("a"));
    store.release("a", first + 20);
    store.now.wall -= 1;
    store.record = Record::new(store.record.last_fence());
    assert_eq!(fence(store.join("b")), first + 21);
}
