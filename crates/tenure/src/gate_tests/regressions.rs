//! One test for each way in which the async part once failed, most of them found by reading: what a ghost, a runtime that goes down, a
//! future that nobody polls, or a push at the wrong moment does to a lease.

use super::*;
use crate::backend::{Grant, Sink};
use crate::keeper;
use crate::loss::LossKind;
use crate::record::PROBATION;

// R1.7: a panic in a background task would go unseen, so the keeper is run here.
#[test]
fn closing_what_was_never_opened_is_graceful() {
    test("close before open", async {
        let world = World::new();
        world.mine.domain.close().await;
        let client = world.mine.client.clone();
        let running = keeper::Running { client, is_running: Arc::default(), has_ended: false };
        keeper::keep(running, Arc::default()).await;
    });
}

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
        drop(world.other.domain.adopt(&ticket).await.unwrap());
    });
}

// I1
#[test]
fn a_runtime_that_goes_down_takes_no_lease_away() {
    let world = World::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut waiter = ByHand::new({
        let lock = world.mine.lock();
        async move { lock.acquire().await.unwrap() }
    });
    let held = runtime.block_on(async {
        let held = world.other.holds().await;
        assert!(waiter.poll().is_none());
        world.settle().await;
        held
    });
    drop(held);
    let guard = waiter.poll().expect("granted by a push");
    drop(runtime);
    assert!(guard.is_held());
    assert_eq!(world.seen(), (1, 0), "it is believed to be held, and was given back");
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

// R0.3, R1.5
#[test]
fn the_keeper_works_on_the_second_runtime() {
    let world = World::new();
    for round in 0..3 {
        test("static", async {
            let guard = world.mine.holds().await;
            world.settle().await;
            if round == 2 {
                world.pass(3 * TTL).await;
                assert!(guard.is_held(), "nobody renewed it in the third runtime");
            }
            world.pass(10 * MS).await;
            guard.release().await.unwrap();
            world.pass(10 * MS).await;
        });
    }
}

#[test]
fn a_renewal_that_died_with_its_runtime_is_sent_again() {
    let world = World::new();
    let mut guard = None;
    test("first", async {
        guard = Some(world.mine.holds().await);
        world.mine.gates.once(Kind::Renew, Fate::Never(Run::Not));
        world.pass(TTL / 3 + 10 * MS).await;
        assert_eq!(world.mine.gates.asked(Kind::Renew), 1);
        assert_eq!(world.mine.gates.executed(Kind::Renew), 0);
    });
    test("second", async {
        let second = world.mine.domain.lock("another").acquire().await.unwrap();
        world.pass(2 * TTL).await;
        assert!(second.is_held(), "the keeper works again");
        assert!(guard.as_ref().unwrap().is_held(), "and renews all leases");
    });
}

#[test]
fn a_lease_whose_keeper_is_gone_blocks_nobody_for_ever() {
    let world = World::new();
    let mut guard = None;
    test("first", async {
        guard = Some(world.mine.holds().await);
        world.settle().await;
    });
    test("second", async {
        let lock = world.mine.lock();
        let waiter = tokio::spawn(async move { lock.acquire().await });
        world.pass(2 * TTL).await;
        assert!(!guard.as_ref().unwrap().is_held() || !waiter.is_finished());
        drop(guard.take().filter(|guard| guard.is_held()));
        world.pass(TTL).await;
        assert!(waiter.is_finished(), "its lease is lost, and the next one still waits");
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
fn connecting_does_not_last_for_ever() {
    test("connect never", async {
        let world = World::new();
        world.mine.gates.once(Kind::Connect, Fate::Never(Run::Not));
        let lock = world.mine.lock();
        let limited = tokio::spawn(async move { lock.try_acquire_for(100 * MS).await.map(drop) });
        world.pass(10 * TTL).await;
        assert!(limited.is_finished(), "the limit holds for connecting too");
        let lock = world.mine.lock();
        let next = tokio::spawn(async move { lock.acquire().await.map(drop) });
        world.pass(10 * TTL).await;
        assert!(next.is_finished(), "an attempt that got no answer is remembered for ever");
    });
}

#[test]
fn closing_ends_the_wait_for_a_connection() {
    test("close while connecting", async {
        let world = World::new();
        world.mine.gates.once(Kind::Connect, Fate::Never(Run::Not));
        let lock = world.mine.lock();
        let waiter = tokio::spawn(async move { lock.acquire().await.map(drop) });
        world.settle().await;
        world.mine.domain.close().await;
        world.settle().await;
        assert!(waiter.is_finished());
        assert_eq!(waiter.await.unwrap().unwrap_err().kind(), crate::ErrorKind::Closed);
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

#[test]
fn lost_is_told() {
    test("unreachable", async {
        let world = World::new();
        let guard = world.mine.holds().await;
        world.mine.gates.set(Kind::Renew, Fate::Down);
        world.pass(TTL - 100 * MS).await;
        assert!(guard.is_held());
        world.pass(100 * MS).await;
        assert_eq!(*guard.lost().await.kind(), LossKind::Unreachable);
    });
}

// Rule 2: a push is told by another connection than the answers, and may come late.
#[test]
fn a_late_push_for_a_detached_lease_does_not_give_it_back() {
    test("late push", async {
        let world = World::new();
        let guard = world.mine.holds().await;
        let lease = Arc::clone(&guard.tenure().0.lease);
        let (name, token) = (lease.name.clone(), lease.token.clone());
        let ticket = guard.detach().await.unwrap();
        let grant = Grant { token, fence: 1, at: 1, term: PROBATION };
        world.mine.client.upgrade().unwrap().granted(&name, grant);
        world.settle().await;
        assert_eq!(world.seen(), (1, 0), "the detached lease was given back");
        drop(world.other.domain.adopt(&ticket).await.unwrap());
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
            drop(world.other.domain.adopt(&ticket).await.unwrap());
        }
    });
}
