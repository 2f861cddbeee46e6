//! What the store says unasked, and what it is told every 400 ms: pushes that come early or for nobody, beats that keep a place.

use super::*;
use crate::backend::{Grant, Sink};
use crate::core::record::PROBATION;
use crate::types::owner::Token;

// Rule 2: the grant overtakes the answer that tells of the queue, and is not waited for again.
#[test]
fn a_grant_that_comes_before_the_answer_is_kept() {
    test("early grant", async {
        let world = World::new();
        let held = world.other.holds().await;
        world.mine.gates.once(Kind::Join, Fate::Sticky(100 * MS));
        let lock = world.mine.lock();
        let waiter = tokio::spawn(async move { lock.acquire().await });
        world.pass(20 * MS).await;
        assert_eq!(world.seen(), (1, 1));
        held.release().await.unwrap();
        world.pass(20 * MS).await;
        assert!(!waiter.is_finished(), "it can't be believed before the answer");
        world.pass(61 * MS).await;
        assert!(waiter.is_finished(), "the early grant was forgotten");
        assert!(waiter.await.unwrap().unwrap().is_held());
        assert_eq!(world.mine.gates.asked(Kind::Beat), 0, "it was forgotten, and asked for again");
        world.is_clean("early grant").await;
    });
}

// I5: nobody here wants the lease any more, so nobody would ever release it.
#[test]
fn a_grant_for_an_attempt_that_was_given_up_is_given_back() {
    test("late push", async {
        let world = World::new();
        let held = world.other.holds().await;
        let lock = world.mine.lock();
        let waiter = tokio::spawn(async move { lock.acquire().await });
        world.pass(20 * MS).await;
        assert_eq!(world.seen(), (1, 1));
        let client = world.mine.client.upgrade().unwrap();
        let (name, token) = {
            let table = client.table.lock();
            let (name, cohort) = table.cohorts.iter().next().unwrap();
            (name.clone(), cohort.asked_with().unwrap().clone())
        };
        waiter.abort();
        world.pass(20 * MS).await;
        assert_eq!(world.mine.gates.executed(Kind::Leave), 1, "it left the queue");
        client.granted(&name, Grant { token, fence: 1, at: 1, term: PROBATION });
        world.settle().await;
        assert_eq!(world.mine.gates.executed(Kind::Leave), 2, "the grant is given back");
        assert_eq!(client.table.lock().metrics.unasked_grants, 0, "it was asked for");
        drop(client);
        held.release().await.unwrap();
    });
}

// A copy of this client's memory has the same session. What is granted to the copy is not this client's to give back.
#[test]
fn a_grant_that_was_not_asked_for_is_counted_and_left_alone() {
    test("unasked push", async {
        let world = World::new();
        let guard = world.mine.holds().await;
        let lease = Arc::clone(&guard.lease().0.lease);
        let client = world.mine.client.upgrade().unwrap();
        let token = Token::fresh(client.session(), "", TTL);
        client.granted(&lease.name, Grant { token, fence: 1, at: 1, term: PROBATION });
        world.settle().await;
        assert_eq!(world.mine.gates.asked(Kind::Leave), 0, "the copy may be at work under it");
        assert_eq!(client.table.lock().metrics.unasked_grants, 1);
        assert!(guard.is_held());
    });
}

// R1.1: the place is the waiter's, also when the store forgot it in an outage.
#[test]
fn a_beat_keeps_the_place_that_the_queue_forgot() {
    test("order", async {
        let world = World::new();
        let later = party(&world.clock, &world.store);
        let held = world.other.holds().await;
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        let waits = |party: &Party, who: &'static str| {
            let (lock, order) = (party.lock().ttl(5 * TTL), Arc::clone(&order));
            tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                order.lock().unwrap().push(who);
                drop(guard);
            })
        };
        let first = waits(&world.mine, "first");
        world.pass(10 * MS).await;
        let second = waits(&later, "second");
        world.pass(10 * MS).await;
        assert_eq!(world.seen(), (1, 2));
        world.mine.gates.set(Kind::Beat, Fate::Down);
        // It outlasts an outage of one ttl; the queue forgets it before that.
        world.pass(2 * TTL).await;
        assert_eq!(world.seen(), (1, 1), "the queue forgot it");
        world.mine.gates.open();
        world.pass(TTL).await;
        assert_eq!(world.seen(), (1, 2), "it waits again");
        held.release().await.unwrap();
        world.settle().await;
        assert!(first.is_finished() && second.is_finished());
        assert_eq!(*order.lock().unwrap(), ["first", "second"]);
    });
}
