//! What two looks tell. The owners are real ones, from a store in memory: nothing else makes them.

use std::time::{Duration, SystemTime};

use tenure::{Domain, Owner};

use super::events::{Event, EventKind, Snapshot, differences, present};
use crate::name_status::{HolderStatus, NameStatus, WaiterStatus};

/// Between two snapshots.
const PASSED: Duration = Duration::from_millis(250);
const NAME: &str = "nightly";

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Someone with this label.
fn owner(label: &str) -> Owner {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let domain = Domain::open("memory:").await.unwrap();
        let _guard = domain.lock(NAME).label(label).acquire().await.unwrap();
        domain.inspect(NAME).await.unwrap().holder.unwrap().owner
    })
}

/// A lease with so much left, held for so long when it is seen. It begins at its fence, in milliseconds.
fn held(label: &str, fence: u64, held: u64, left: u64) -> Option<HolderStatus> {
    Some(HolderStatus {
        owner: owner(label),
        fence,
        since: Some(SystemTime::UNIX_EPOCH + ms(fence)),
        held: Some(ms(held)),
        left: Some(ms(left)),
    })
}

fn look(holder: Option<HolderStatus>, waiters: &[(&str, u64)], broken: Option<u64>) -> Snapshot {
    let waiting = |(label, waited): &(&str, u64)| WaiterStatus { owner: owner(label), waited: ms(*waited) };
    let waiters = waiters.iter().map(waiting).collect();
    Snapshot::from([(NAME.to_owned(), NameStatus { name: NAME.to_owned(), holder, waiters, broken })])
}

fn kinds(events: &[Event]) -> Vec<(EventKind, &str)> {
    events.iter().map(|event| (event.kind, event.who.label())).collect()
}

#[test]
fn nothing_happens_while_a_lease_is_renewed_and_others_wait_on() {
    let before = look(held("a", 7, 1_000, 6_800), &[("b", 100), ("c", 50)], None);
    let after = look(held("a", 7, 1_250, 9_900), &[("b", 350), ("c", 300)], None);
    assert_eq!(differences(&before, &after, PASSED), []);
}

#[test]
fn a_hand_over_between_two_looks() {
    let before = look(held("a", 1_000, 500, 9_000), &[("b", 400), ("c", 50)], None);
    let after = look(held("b", 1_600, 150, 850), &[("c", 300)], None);
    let events = differences(&before, &after, PASSED);
    assert_eq!(kinds(&events), [(EventKind::Released, "a"), (EventKind::Acquired, "b")]);
    assert_eq!((events[0].fence, events[0].held), (Some(1_000), Some(ms(600))), "until the next lease began");
    assert_eq!((events[1].fence, events[1].waited), (Some(1_600), Some(ms(500))), "until its lease began");
    assert_eq!(events[1].left, Some(ms(850)));
}

#[test]
fn the_same_holder_with_a_new_lease() {
    let before = look(held("a", 1_000, 500, 9_000), &[], None);
    let after = look(held("a", 1_700, 50, 9_950), &[], None);
    let events = differences(&before, &after, PASSED);
    assert_eq!(kinds(&events), [(EventKind::Released, "a"), (EventKind::Acquired, "a")]);
    assert_eq!((events[0].held, events[1].waited), (Some(ms(700)), None));
}

#[test]
fn expired_or_given_back_or_broken() {
    let nothing = Snapshot::new();
    let one = |left, after: &Snapshot| {
        let events = differences(&look(held("a", 1_000, 500, left), &[], None), after, PASSED);
        assert_eq!(events.len(), 1);
        (events[0].kind, events[0].held)
    };
    assert_eq!(one(249, &nothing), (EventKind::Expired, Some(ms(749))), "until its lease was over");
    assert_eq!(one(250, &nothing), (EventKind::Released, Some(ms(750))), "at most until it was seen");
    let broken = look(None, &[], Some(1_000));
    assert_eq!(one(9_000, &broken).0, EventKind::Broken);
    assert_eq!(one(10, &broken).0, EventKind::Broken, "force is known, and time is guessed");
    assert_eq!(one(9_000, &look(None, &[], Some(999))).0, EventKind::Released, "another lease was broken");
}

#[test]
fn a_lease_without_expiry_is_given_back() {
    let mut forever = held("a", 1_000, 500, 0);
    forever.as_mut().unwrap().left = None;
    assert_eq!(
        kinds(&differences(&look(forever, &[], None), &Snapshot::new(), ms(99_000))),
        [(EventKind::Released, "a")]
    );
}

#[test]
fn a_lease_that_was_broken_and_handed_over() {
    let before = look(held("a", 1_000, 500, 9_000), &[("b", 400)], None);
    let after = look(held("b", 1_600, 150, 850), &[], Some(1_000));
    assert_eq!(
        kinds(&differences(&before, &after, PASSED)),
        [(EventKind::Broken, "a"), (EventKind::Acquired, "b")]
    );
}

#[test]
fn who_comes_and_who_gives_up() {
    let before = look(held("a", 7, 1_000, 9_000), &[("b", 400), ("c", 50)], None);
    let after = look(held("a", 7, 1_250, 8_750), &[("c", 300), ("d", 20)], None);
    let events = differences(&before, &after, PASSED);
    assert_eq!(kinds(&events), [(EventKind::Queued, "d"), (EventKind::Left, "b")]);
    assert_eq!((events[0].waited, events[1].waited), (Some(ms(20)), Some(ms(400))));
}

#[test]
fn a_holder_whose_process_waits_again_has_not_given_up() {
    let before = look(held("a", 1_000, 500, 9_000), &[("b", 5_000)], None);
    let after = look(held("b", 1_600, 150, 850), &[("b", 100)], None);
    let events = differences(&before, &after, PASSED);
    assert_eq!(
        kinds(&events),
        [(EventKind::Released, "a"), (EventKind::Acquired, "b"), (EventKind::Queued, "b")]
    );
    assert_eq!(events[1].waited, Some(ms(5_100)));
}

#[test]
fn two_that_look_alike_are_counted() {
    let before = look(held("a", 7, 1_000, 9_000), &[("b", 400), ("b", 300)], None);
    let after = look(held("a", 7, 1_250, 8_750), &[("b", 550)], None);
    assert_eq!(kinds(&differences(&before, &after, PASSED)), [(EventKind::Left, "b")]);
}

#[test]
fn a_whole_queue_is_lost() {
    let before = look(held("a", 7, 1_000, 9_000), &[("b", 400), ("c", 50)], None);
    let after = Snapshot::new();
    assert_eq!(
        kinds(&differences(&before, &after, PASSED)),
        [(EventKind::Released, "a"), (EventKind::Left, "b"), (EventKind::Left, "c")]
    );
}

#[test]
fn what_is_there_at_first() {
    let events = present(&look(held("a", 7, 1_000, 9_000), &[("b", 400)], None));
    assert_eq!(kinds(&events), [(EventKind::Held, "a"), (EventKind::Queued, "b")]);
    assert_eq!((events[0].held, events[1].waited), (Some(ms(1_000)), Some(ms(400))));
}
