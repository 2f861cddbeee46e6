//! What callers are told is what is known: no release that was not seen, no lease that has ended, no work that outlived its lock.

use super::*;
use crate::types::error::ErrorKind;
use crate::types::release::Release;

// R2.4, R2.5
#[test]
fn a_release_that_never_arrived_is_not_called_done() {
    test("release", async {
        let world = World::new();
        let guard = world.mine.holds().await;
        world.mine.gates.set(Kind::Release, Fate::Broken(Run::Not));
        let releasing = tokio::spawn(guard.release());
        world.pass(TTL / 2).await;
        let returned = releasing.await.unwrap().unwrap_err();
        world.mine.gates.open();
        world.pass(2 * TTL).await;
        let other = world.other.holds().await;
        assert!(matches!(returned.guard.release().await, Ok(Release::Taken { .. })));
        assert!(other.is_held());
    });
}

// R2.4, R3.7: the first request released the lease, and its answer was lost. Closing the domain changes nothing about that.
#[test]
fn a_release_whose_answer_was_lost_is_done() {
    for is_closed in [false, true] {
        test("release", async move {
            let world = World::new();
            let guard = world.mine.holds().await;
            if is_closed {
                world.mine.domain.close().await;
            }
            world.mine.gates.once(Kind::Release, Fate::Broken(Run::First));
            let releasing = tokio::spawn(guard.release());
            world.pass(100 * MS).await;
            assert_eq!(releasing.await.unwrap().unwrap(), Release::Released, "closed: {is_closed}");
        });
    }
}

// R2.4
#[test]
fn a_break_that_never_arrived_is_not_called_done() {
    test("break", async {
        let world = World::new();
        let gone = world.other.holds().await;
        let holder = world.mine.domain.inspect(NAME).await.unwrap().holder.unwrap();
        drop(gone);
        let present = world.other.holds().await;
        world.mine.gates.once(Kind::Break, Fate::Broken(Run::Not));
        let domain = world.mine.domain.clone();
        let breaking = tokio::spawn(async move { domain.break_lock(NAME, &holder).await });
        world.pass(100 * MS).await;
        assert!(matches!(breaking.await.unwrap(), Ok(Release::Taken { .. })));
        assert!(present.is_held());
    });
}

// R2.6: a cap is a cap, whoever renews.
#[test]
fn max_hold_caps_renewals_by_hand_and_detaching() {
    test("max_hold", async {
        let world = World::new();
        let lock = world.mine.lock().max_hold(3 * TTL).no_renewal();
        let guard = lock.acquire().await.unwrap();
        for _ in 0..10 {
            let _ = guard.renew().await;
            world.pass(TTL / 2).await;
        }
        assert!(!guard.is_held(), "held for five ttls, three were allowed");
        drop(guard);

        let guard = world.mine.lock().max_hold(TTL).acquire().await.unwrap();
        world.pass(TTL / 2).await;
        let ticket = guard.detach().await.unwrap();
        world.pass(TTL * 3 / 5).await;
        assert_eq!(world.seen(), (0, 0), "a detached lease lives no longer than max_hold lets it");
        let error = ticket.adopt(&world.mine.domain).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost);
        assert!(error.loss().is_some());
    });
}

// R1.7
#[test]
fn work_that_outlived_its_lock_does_not_pass_for_done() {
    test("run", async {
        let world = World::new();
        let clock = Arc::clone(&world.clock);
        let ran = world.mine.lock().run(async move |_| clock.jump(2 * TTL)).await;
        assert_eq!(ran.unwrap_err().kind(), ErrorKind::Lost);
    });
}

// I4: as after the machine slept between the question and the answer.
#[test]
fn an_answer_that_is_read_too_late_is_asked_for_again() {
    test("late answer", async {
        let world = World::new();
        world.mine.gates.once(Kind::Join, Fate::Wire);
        let lock = world.mine.lock();
        let mut acquiring = ByHand::new(async move { lock.acquire().await });
        assert!(acquiring.poll().is_none());
        world.settle().await;
        assert_eq!(world.seen(), (1, 0), "granted, and the answer is on its way");
        world.clock.jump(2 * TTL);
        let guard = loop {
            if let Some(guard) = acquiring.poll() {
                break guard.unwrap();
            }
            world.settle().await;
        };
        assert!(guard.is_held(), "a lease that had ended was handed out");
        assert_eq!(world.mine.gates.asked(Kind::Join), 2);
    });
}

// I5: what was granted by an answer that nobody understands is given back, long before its ttl is over.
#[test]
fn what_a_garbled_answer_granted_is_given_back() {
    for kind in [Kind::Join, Kind::Try, Kind::TakeOver, Kind::Adopt] {
        test("garbled", async move {
            let world = World::new();
            let ticket = match kind {
                Kind::Adopt => Some(world.other.holds().await.detach().await.unwrap()),
                _ => None,
            };
            world.mine.gates.once(kind, Fate::Garbled);
            let (lock, domain) = (world.mine.lock(), world.mine.domain.clone());
            let asking = tokio::spawn(async move {
                match kind {
                    Kind::Join => lock.acquire().await.map(|_| ()),
                    Kind::Try => lock.try_acquire().await.map(|_| ()),
                    Kind::TakeOver => lock.take_over().await.map(|_| ()),
                    _ => ticket.unwrap().adopt(&domain).await.map(|_| ()),
                }
            });
            world.settle().await;
            let error = asking.await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol, "{kind:?}: {error}");
            world.settle().await;
            assert_eq!(world.seen(), (0, 0), "{kind:?}");
            world.is_clean("garbled").await;
        });
    }
}
