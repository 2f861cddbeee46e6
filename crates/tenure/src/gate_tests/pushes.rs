//! What the store says unasked, and what it is told every 400 ms: pushes that come early or for nobody, beats that keep a place.

use super::*;
use crate::backend::{Grant, Sink};
use crate::record::PROBATION;

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

// I5: nobody here knows the token, so nobody would ever release it.
#[test]
fn a_grant_for_nobody_is_given_back() {
    test("unknown push", async {
        let world = World::new();
        let guard = world.mine.holds().await;
        let lease = Arc::clone(&guard.tenure().0.lease);
        let (name, token) = (lease.name.clone(), lease.token.clone());
        guard.release().await.unwrap();
        assert_eq!(world.mine.gates.asked(Kind::Leave), 0);
        let grant = Grant { token, fence: 1, at: 1, term: PROBATION };
        world.mine.client.upgrade().unwrap().granted(&name, grant);
        world.settle().await;
        assert_eq!(world.mine.gates.executed(Kind::Leave), 1);
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
