//! When a lease counts as lost, when it does not, and what is told afterwards (I4, R1.5, R2.4, R2.5, R3.2).

use super::*;
use crate::types::loss::LossKind;
use crate::types::release::Release;

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

// R1.5: unknown is not lost, and what was unknown is forgotten.
#[test]
fn an_outage_that_heals_in_time_is_no_loss() {
    test("outage", async {
        for fate in [Fate::Down, Fate::Broken(Run::Not), Fate::Never(Run::Not)] {
            let world = World::new();
            let guard = world.mine.holds().await;
            world.mine.gates.set(Kind::Renew, fate);
            world.pass(TTL - 600 * MS).await;
            assert!(world.mine.domain.metrics().renewals_failed > 0);
            world.mine.gates.open();
            world.pass(3 * TTL).await;
            assert!(guard.is_held(), "{fate:?}");
            assert_eq!(world.mine.domain.metrics().lost, 0);
            world.clock.jump(2 * TTL);
            assert_eq!(*guard.lost().await.kind(), LossKind::Expired, "the outage was over");
        }
    });
}

// I4: told once, it stays.
#[test]
fn an_answer_after_the_deadline_does_not_revive() {
    test("late answer", async {
        let world = World::new();
        let guard = world.mine.holds().await;
        world.mine.gates.once(Kind::Renew, Fate::Sticky(100 * MS));
        world.pass(TTL / 3 + 10 * MS).await;
        assert_eq!(world.mine.gates.executed(Kind::Renew), 1, "the store renewed it");
        world.clock.jump(TTL);
        assert!(!guard.is_held());
        world.settle().await;
        assert!(!guard.is_held(), "revived by an answer that came too late");
        assert_eq!(*guard.lost().await.kind(), LossKind::Expired);
        drop(guard);
        world.is_clean("late answer").await;
    });
}

// R3.2: the renewal was executed before the lease was taken, and answered after that was told.
#[test]
fn a_doubt_outlasts_the_renewal_that_is_under_way() {
    test("doubt", async {
        let world = World::new();
        let guard = world.mine.holds().await;
        world.mine.gates.once(Kind::Renew, Fate::Sticky(300 * MS));
        world.pass(TTL / 3 + 10 * MS).await;
        assert_eq!(world.mine.gates.executed(Kind::Renew), 1);
        let new = world.other.lock().take_over().await.unwrap();
        world.pass(310 * MS).await;
        let loss = soon(guard.lost()).await.expect("it is told before the next renewal is due");
        assert!(matches!(loss.kind(), LossKind::Taken { .. }), "{loss}");
        assert!(new.is_held());
    });
}

// R1.5
#[test]
fn max_hold_ends_a_lease_that_is_renewed() {
    test("max_hold", async {
        let world = World::new();
        let guard = world.mine.lock().max_hold(3 * TTL).acquire().await.unwrap();
        world.pass(3 * TTL - 200 * MS).await;
        assert!(guard.is_held());
        world.pass(200 * MS).await;
        assert_eq!(*soon(guard.lost()).await.expect("its time is up").kind(), LossKind::Expired);
        world.pass(10 * MS).await;
        assert!(world.other.lock().try_acquire().await.unwrap().is_acquired());
    });
}

// R2.5: the first was executed, and only its answer is missing.
#[test]
fn a_release_that_was_not_answered_is_done_when_it_is_tried_again() {
    test("release twice", async {
        for fate in [Fate::Never(Run::First), Fate::Never(Run::Not)] {
            let world = World::new();
            let guard = world.mine.holds().await;
            world.mine.gates.once(Kind::Release, fate);
            let releasing = tokio::spawn(guard.release());
            world.pass(TTL / 4 + 10 * MS).await;
            let returned = releasing.await.unwrap().unwrap_err();
            assert!(returned.error.is_transient());
            assert_eq!(returned.guard.release().await.unwrap(), Release::Released, "{fate:?}");
            world.is_clean("release twice").await;
        }
    });
}

// R3.5
#[test]
fn a_client_ends_with_its_last_handle() {
    for before in ["held", "released", "waited"] {
        test(before, async {
            let world = World::new();
            match before {
                "held" => {
                    let guard = world.mine.holds().await;
                    let World { mine, clock, .. } = world;
                    drop(mine.domain);
                    clock.advance(TTL).await;
                    assert!(guard.is_held(), "a guard is a handle");
                    drop(guard);
                    clock.advance(Duration::ZERO).await;
                    assert_eq!(mine.client.strong_count(), 0);
                }
                "released" => {
                    world.mine.holds().await.release().await.unwrap();
                    let World { mine, clock, .. } = world;
                    drop(mine.domain);
                    clock.advance(Duration::ZERO).await;
                    assert_eq!(mine.client.strong_count(), 0);
                }
                _ => {
                    let held = world.other.holds().await;
                    let lock = world.mine.lock();
                    let waiter = tokio::spawn(async move { lock.acquire().await.map(drop) });
                    world.pass(TTL).await;
                    assert_eq!(world.seen(), (1, 1));
                    waiter.abort();
                    let World { mine, clock, .. } = world;
                    drop(mine.domain);
                    clock.advance(Duration::ZERO).await;
                    assert_eq!(mine.client.strong_count(), 0);
                    drop(held);
                }
            }
        });
    }
}

/// Drops, releases or loses a guard of an hour while the store is away for 3 s; `is_short` for one that is believed for a second only.
async fn given_back_after_an_outage(world: &World, is_short: bool, how: &'static str) {
    let held = if is_short { Some(world.other.holds().await) } else { None };
    let lock = world.mine.lock().ttl(3_600_000 * MS);
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    world.pass(10 * MS).await;
    world.mine.gates.set(Kind::Renew, Fate::Never(Run::First));
    drop(held);
    world.pass(10 * MS).await;
    let guard = waiter.await.unwrap();
    let until_sent = if is_short { 400 * MS } else { 1_210_000 * MS };
    world.pass(until_sent).await;
    assert!(world.mine.gates.executed(Kind::Renew) > 0, "the store renewed it, and the answer is lost");
    world.mine.gates.set(Kind::Renew, Fate::Down);
    world.mine.gates.set(Kind::Release, Fate::Down);
    if how == "lost" {
        let left = guard.remaining();
        world.pass(left + 10 * MS).await;
        assert!(!guard.is_held());
        assert!(!guard.left_in_store().is_zero(), "the store has it");
    }
    assert!(guard.left_in_store() > 3_500_000 * MS, "{:?}", guard.left_in_store());
    let given_back = tokio::spawn(async move {
        if how == "release" {
            drop(guard.release().await);
        }
    });
    world.pass(3_000 * MS).await;
    assert!(given_back.is_finished());
    assert_eq!(world.seen(), (1, 0), "away");
    world.mine.gates.open();
    world.pass(3_000 * MS).await;
    assert_eq!(world.seen(), (0, 0), "the store is back");
    world.is_empty(how).await;
}

// R1.7: the store renewed the lease, and the answer is lost: it has the lease for longer than the holder believes.
#[test]
fn a_lease_that_was_renewed_without_an_answer_is_given_back_after_an_outage() {
    for is_short in [true, false] {
        for how in ["drop", "release", "lost"] {
            test(how, async move { given_back_after_an_outage(&World::new(), is_short, how).await });
        }
    }
}
