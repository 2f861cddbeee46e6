//! The scripts are the record in Lua: for every sequence of operations and every clock, both give the same answers, keep the same state,
//! and notify the same sessions. The Rust side is the specification.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::drafts::{Draft, Event, Floor, Limit, SESSIONS, Story, Who, join, session, story};
use super::mirror::{Comparison, Mirror};
use super::store::Store;
use crate::types::name::Name;

const CASES: u32 = 600;

/// What was compared, so that a test that compares nothing fails.
#[derive(Debug, Default)]
struct Tally {
    operations: usize,
    stories: usize,
    /// Stories that ended early because a key ended while a script ran.
    undecided: usize,
    seen: BTreeMap<&'static str, usize>,
}

impl Tally {
    fn count(&mut self, what: &'static str, by: usize) {
        *self.seen.entry(what).or_default() += by;
    }
}

// R1.1, R1.2, R1.6, R2.2, R2.4, R2.9, B1
#[test]
fn the_scripts_are_the_record() {
    let (store, tally) = (RefCell::new(Store::start()), RefCell::new(Tally::default()));
    proptest!(ProptestConfig::with_cases(CASES), |(story in story())| {
        tell(&story, &mut store.borrow_mut(), &mut tally.borrow_mut())?;
    });
    let tally = tally.into_inner();
    println!("{tally:?}");
    if tally.stories < CASES as usize {
        return;
    }
    assert!(tally.undecided * 2 < tally.stories, "most stories are decided to their end: {tally:?}");
    for what in ["granted", "waiting", "busy", "not held", "done", "too late", "ahead", "seen", "seen broken"]
        .into_iter()
        .chain(["lock", "fence", "queue", "broken", "messages", "deaths", "trimmed", "long pauses"])
    {
        assert!(tally.seen.get(what).is_some_and(|count| *count > 10), "{what} was hardly seen: {tally:?}");
    }
}

// R1.3: the rule of silence after an expiry, on both sides of its limits, and that a death in between ends it. Random stories get here
// about once in a run.
#[test]
fn silence_is_judged_alike_after_an_expiry() {
    let mut store = Store::start();
    // The lease is granted 300 ms after the second waiter's last heartbeat, lasts 300 ms, and is found expired then.
    for (has_heartbeat_since, found_after) in [(true, 900), (false, 750), (false, 850), (false, 1_300)] {
        let mut events = vec![join(0), join(1), join(2), Event::Step(300), take_over(3)];
        events.extend(has_heartbeat_since.then(|| join(1)));
        events.extend([Event::Step(found_after), Event::Do(Draft::Leave { who: Who::Token(4) })]);
        for (has_flags, subscribed) in [(true, 0b0000), (false, 0b0100), (true, 0b0110)] {
            let (name, events, mut tally) = ("orders/42", events.clone(), Tally::default());
            let story = Story { name, has_flags, subscribed, events };
            tell(&story, &mut store, &mut tally).unwrap();
            assert!(tally.operations > 0 || tally.undecided > 0);
        }
    }
}

// Rule 5: a waiter far from the head promises a longer pause, in each way in which it can be answered. It moves up, and is silent for as
// long as it may be, and for longer.
#[test]
fn a_long_pause_is_kept_alike() {
    let mut store = Store::start();
    let crowd = 40;
    for silence in [300, 2_900, 3_200] {
        let mut events: Vec<_> = (0..crowd).map(join).collect();
        // A heartbeat, a waiter that the queue has lost, one that settles.
        events.extend([join(30), Event::Do(Draft::Leave { who: Who::Token(31) }), join(31), join(39)]);
        events.extend((1..30).map(|number| Event::Do(Draft::Leave { who: Who::Token(number) })));
        events.extend([Event::Step(silence), Event::Do(Draft::Inspect)]);
        events.push(Event::Do(Draft::Release { who: Who::Holder, used: None }));
        events.extend([Event::Step(1_100), join(39), Event::Do(Draft::Inspect)]);
        for subscribed in [0b0000, 0b1111] {
            let (name, has_flags, events, mut tally) = ("orders/42", true, events.clone(), Tally::default());
            let story = Story { name, has_flags, subscribed, events };
            tell(&story, &mut store, &mut tally).unwrap();
            assert!(tally.seen.get("long pauses").is_some_and(|count| *count > 20), "{tally:?}");
        }
    }
}

fn take_over(number: u8) -> Event {
    let (who, ttl) = (Who::Token(number), Duration::from_millis(300));
    Event::Do(Draft::TakeOver { who, ttl, floor: Floor::Zero, limit: Limit::Ample })
}

fn tell(story: &Story, store: &mut Store, tally: &mut Tally) -> Result<(), TestCaseError> {
    let name = Name::new(story.name).expect("a name");
    let mut mirror = Mirror::new(name.clone());
    store.reset();
    store.has_flags = story.has_flags;
    for number in (0..SESSIONS).filter(|number| story.subscribed >> number & 1 == 1) {
        store.subscribe(&session(number), true);
    }
    tally.stories += 1;
    for (index, event) in story.events.iter().enumerate() {
        let draft = match event {
            Event::Do(draft) => draft,
            Event::Step(millis) => {
                store.step(*millis);
                continue;
            }
            Event::Subscribe(number) => {
                store.subscribe(&session(*number), true);
                continue;
            }
            Event::Unsubscribe(number) => {
                store.subscribe(&session(*number), false);
                continue;
            }
            Event::FlushAll => {
                store.flush_all();
                mirror.clear();
                continue;
            }
            Event::ScriptFlush => {
                store.forget_scripts();
                continue;
            }
        };
        let op = mirror.op(draft, store.now());
        let outcome = store.execute(&name, op.clone());
        match mirror.compare(&op, &store.subscribed, &outcome) {
            Ok(Comparison::Equal(seen)) => {
                tally.operations += 1;
                tally.count(seen.reply, 1);
                tally.count("messages", seen.messages);
                tally.count("deaths", seen.deaths);
                tally.count("trimmed", seen.is_trimmed.into());
                tally.count("long pauses", seen.long_pauses);
                seen.ended.into_iter().for_each(|key| tally.count(key, 1));
            }
            Ok(Comparison::Undecided) => {
                tally.undecided += 1;
                return Ok(());
            }
            Err(difference) => {
                return Err(TestCaseError::fail(format!(
                    "event {index}, {op:?}: {difference}\n{outcome:#?}"
                )));
            }
        }
    }
    Ok(())
}
