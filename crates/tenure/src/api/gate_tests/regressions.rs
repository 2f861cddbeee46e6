//! What a ghost, a future that nobody polls, or a push at the wrong moment must not do to a lease: each is one interleaving that the
//! matrix does not meet, because it heals within a ttl.

use super::*;
use crate::backend::{Grant, Sink};
use crate::core::record::PROBATION;

// Rule 6
#[test]
fn a_ghost_of_an_acquire_is_laid_after_the_release() {
    test("ghost after release", async {
        for kind in [Kind::Join, Kind::Try, Kind::TakeOver] {
            let world = World::new();
            world.mine.gates.once(kind, Fate::Broken(Run::Late(300 * MS)));
            let lock = world.mine.lock();
            let guard = tokio::spawn(async move {
                match kind {
                    Kind::Join => lock.acquire().await.unwrap(),
                    Kind::Try => lock.try_acquire().await.unwrap().ok().unwrap(),
                    _ => lock.take_over().await.unwrap(),
                }
            });
            world.pass(50 * MS).await;
            guard.await.unwrap().release().await.unwrap();
            world.pass(550 * MS).await;
            assert_eq!(world.seen(), (0, 0), "{kind:?}: the ghost was given the name");
        }
    });
}

// Where the release has not been executed yet, a leave would keep the whole range.
#[test]
fn a_ghost_of_a_used_lease_is_laid_with_its_release() {
    test("ghost after release, by release", async {
        let world = World::new();
        world.mine.gates.once(Kind::Join, Fate::Broken(Run::Late(300 * MS)));
        let lock = world.mine.lock();
        let guard = tokio::spawn(async move { lock.acquire().await.unwrap() });
        world.pass(50 * MS).await;
        guard.await.unwrap().release().await.unwrap();
        world.pass(550 * MS).await;
        assert_eq!((world.mine.gates.asked(Kind::Release), world.mine.gates.asked(Kind::Leave)), (2, 0));
        assert_eq!(world.seen(), (0, 0));
    });
}

#[test]
fn a_ghost_of_a_try_that_was_refused_is_laid() {
    test("ghost after busy", async {
        let world = World::new();
        let held = world.other.holds().await;
        world.mine.gates.once(Kind::Try, Fate::Broken(Run::Late(300 * MS)));
        let lock = world.mine.lock();
        let attempt = tokio::spawn(async move { lock.try_acquire().await.unwrap().is_acquired() });
        world.pass(50 * MS).await;
        assert!(!attempt.await.unwrap());
        held.release().await.unwrap();
        world.pass(600 * MS).await;
        assert_eq!(world.seen(), (0, 0), "the ghost was given the name");
    });
}

// R2.1
#[test]
fn a_lease_that_came_by_a_push_can_be_detached_at_once() {
    test("detach after push", async {
        let world = World::new();
        world.mine.domain.inspect(NAME).await.unwrap();
        let held = world.other.holds().await;
        let mut waiter = ByHand::new({
            let lock = world.mine.lock();
            async move { lock.acquire().await.unwrap().detach().await.unwrap() }
        });
        assert!(waiter.poll().is_none());
        world.settle().await;
        held.release().await.unwrap();
        let ticket = waiter.poll().expect("granted by a push, detached at once");
        world.settle().await;
        assert_eq!(world.seen(), (1, 0), "the detached lease was given back");
        drop(ticket.adopt(&world.other.domain).await.unwrap());
    });
}

#[test]
fn a_closed_guards_lease_stays_until_it_is_dropped() {
    test("close after push", async {
        let world = World::new();
        let held = world.other.holds().await;
        let mut waiter = ByHand::new({
            let lock = world.mine.lock();
            async move { lock.acquire().await.unwrap() }
        });
        assert!(waiter.poll().is_none());
        world.settle().await;
        held.release().await.unwrap();
        let guard = waiter.poll().expect("granted by a push");
        world.mine.domain.close().await;
        world.settle().await;
        assert_eq!(world.seen(), (1, 0), "its holder may still be at work");
        drop(guard);
        world.settle().await;
        assert_eq!(world.seen(), (0, 0));
    });
}

// "futurelock"
#[test]
fn an_asker_that_is_not_polled_blocks_nobody_for_ever() {
    test("futurelock while asking", async {
        let world = World::new();
        world.mine.domain.inspect(NAME).await.unwrap();
        world.mine.gates.once(Kind::Join, Fate::Wire);
        let mut kept = ByHand::new({
            let lock = world.mine.lock();
            async move { lock.acquire().await }
        });
        assert!(kept.poll().is_none());
        let lock = world.mine.lock();
        let waiter = tokio::spawn(async move { lock.acquire().await.map(drop) });
        world.pass(3 * TTL).await;
        assert!(waiter.is_finished(), "waits for ever for an answer that nobody collects");
    });
}

#[test]
fn a_turn_that_is_not_collected_blocks_nobody_for_long() {
    test("futurelock while called", async {
        for ttl in [TTL, Duration::from_secs(3600)] {
            let world = World::new();
            let held = world.other.lock().ttl(ttl).acquire().await.unwrap();
            let mut kept = ByHand::new({
                let lock = world.mine.lock().ttl(ttl);
                async move { lock.acquire().await }
            });
            assert!(kept.poll().is_none());
            let lock = world.mine.lock().ttl(ttl);
            let waiter = tokio::spawn(async move { lock.acquire().await.map(drop) });
            world.settle().await;
            held.release().await.unwrap();
            world.pass(5 * Duration::from_secs(1)).await;
            assert!(waiter.is_finished(), "ttl {ttl:?}: waits for a turn that nobody collects");
        }
    });
}

#[test]
fn a_turn_that_nobody_collected_is_counted_evenly() {
    test("metrics", async {
        let world = World::new();
        let held = world.other.holds().await;
        let mut waiter = ByHand::new({
            let lock = world.mine.lock();
            async move { lock.acquire().await }
        });
        assert!(waiter.poll().is_none());
        world.settle().await;
        held.release().await.unwrap();
        drop(waiter);
        let metrics = world.mine.domain.metrics();
        assert_eq!(metrics.acquired, metrics.released);
        world.is_clean("cancelled when called").await;
    });
}

// Rule 2: a push is told by another connection than the answers, and may come late.
#[test]
fn a_late_push_for_a_detached_lease_does_not_give_it_back() {
    test("late push", async {
        let world = World::new();
        let guard = world.mine.holds().await;
        let lease = Arc::clone(&guard.lease().0.lease);
        let (name, token) = (lease.name.clone(), lease.token.clone());
        let ticket = guard.detach().await.unwrap();
        let grant = Grant { token, fence: 1, at: 1, term: PROBATION };
        world.mine.client.upgrade().unwrap().granted(&name, grant);
        world.settle().await;
        assert_eq!(world.seen(), (1, 0), "the detached lease was given back");
        drop(ticket.adopt(&world.other.domain).await.unwrap());
    });
}

// Rule 6, and the token of a ticket is nobody's to leave with.
#[test]
fn a_ghost_is_not_laid_at_the_cost_of_a_detached_lease() {
    test("detach after a broken request", async {
        for run in [Run::Not, Run::First, Run::Late(300 * MS)] {
            let world = World::new();
            world.mine.gates.once(Kind::Join, Fate::Broken(run));
            let lock = world.mine.lock();
            let detaching =
                tokio::spawn(async move { lock.acquire().await.unwrap().detach().await.unwrap() });
            world.pass(50 * MS).await;
            let ticket = detaching.await.unwrap();
            world.pass(TTL / 2).await;
            assert_eq!(world.seen(), (1, 0), "{run:?}: the detached lease was given back");
            drop(ticket.adopt(&world.other.domain).await.unwrap());
        }
    });
}
