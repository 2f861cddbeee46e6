//! A lease that is renewed, taken, detached or watched while its turn ends.

use super::*;
use crate::types::loss::LossKind;
use crate::types::release::Release;

// R1.5: what is released is not renewed back to life, and what is passed on stays renewed.
#[test]
fn a_renewal_meets_a_release() {
    permute(async |world| {
        let guard = world.holds(0).await;
        let waiters = [0, 1].map(|client| world.patient_waiter(client));
        some_time(6).await;
        world.clock.jump(TTL / 3 + MS);
        some_time(12).await;
        // A request that was on its way meanwhile comes too late, and is sent again after a pause.
        let ended = async {
            assert_eq!(guard.release().await.expect("the store is there"), Release::Released);
            for waiter in waiters {
                done(waiter).await;
            }
        };
        world.while_time_passes(10 * MS, ended).await;
    });
}

// R3.3: whoever takes it over has it; the old holder finds out, whatever it does at that moment.
#[test]
fn a_take_over_meets_a_release() {
    permute(async |world| {
        let old = world.holds(0).await;
        let (before, old_view) = (old.fence(), old.lease().clone());
        let waiter = world.waiter(2);
        let lock = world.lock(1);
        let taking = spawn(async move {
            some_time(6).await;
            let new = lock.take_over().await.expect("the store is there");
            assert!(new.is_held() && new.fence() > before);
        });
        some_time(6).await;
        match old.release().await.expect("the store is there") {
            Release::Released | Release::Gone => {}
            Release::Taken { by } => assert_ne!(by.to_string(), ""),
        }
        assert!(!old_view.is_held());
        done(taking).await;
        done(waiter).await;
    });
}

// R3.2: a holder that does nothing is told by the push, without time.
#[test]
fn a_holder_is_told_that_its_lease_was_taken() {
    permute(async |world| {
        let old = world.holds(0).await;
        let watchers = [0, 1].map(|_| {
            let lease = old.lease().clone();
            spawn(async move { lease.ended().await })
        });
        let new = world.lock(1).take_over().await.expect("the store is there");
        for watcher in watchers {
            let loss = done(watcher).await;
            assert!(matches!(loss.kind(), LossKind::Taken { .. }), "{loss}");
        }
        assert!(!old.is_held() && new.is_held());
        drop(old);
        assert!(new.is_held(), "the old guard took nothing along");
    });
}

// R3.6: no wake-up is lost between the look of a watcher and the end of the turn.
#[test]
fn a_watcher_meets_the_end_of_the_turn() {
    permute(async |world| {
        let guard = world.holds(0).await;
        let lease = guard.lease().clone();
        let next = world.waiter(0);
        let watcher = spawn(async move { lease.ended().await });
        let thread = shuttle::thread::spawn(move || drop(guard));
        assert_eq!(*done(watcher).await.kind(), LossKind::Released);
        thread.join().expect("no panic");
        done(next).await;
    });
}

// R3.7: the same for the end of the domain.
#[test]
fn a_watcher_meets_the_end_of_the_domain() {
    permute(async |world| {
        let guard = world.holds(0).await;
        let lease = guard.lease().clone();
        let watcher = spawn(async move { lease.ended().await });
        some_time(4).await;
        world.domains[0].close().await;
        assert_eq!(*done(watcher).await.kind(), LossKind::Closed);
        drop(guard);
    });
}

// R2.7: a ticket is good for once.
#[test]
fn two_adopt_one_ticket() {
    permute(async |world| {
        // The holder may have got it through a background task, whose last beat comes when all this is over.
        let waiter = world.waiter(2);
        let guard = world.holds(0).await;
        let ticket = guard.detach().await.expect("the store is there");
        let adopting = [0, 1].map(|client| {
            let (domain, ticket) = (world.domains[client].clone(), ticket.clone());
            spawn(async move { ticket.adopt(&domain).await.ok() })
        });
        let mut adopted = Vec::new();
        for task in adopting {
            adopted.extend(done(task).await);
        }
        assert_eq!(adopted.len(), 1);
        drop(adopted);
        done(waiter).await;
    });
}

// I4, R2.4: the lease runs out at the moment of its release.
#[test]
fn a_deadline_meets_the_end_of_the_turn() {
    permute(async |world| {
        let guard = world.lock(0).no_renewal().acquire().await.expect("nobody has it");
        let lease = guard.lease().clone();
        let watcher = spawn(async move { lease.ended().await });
        let waiter = world.patient_waiter(0);
        let dropped = sometime(12, move || drop(guard));
        some_time(12).await;
        world.clock.jump(TTL);
        let loss = done(watcher).await;
        assert!(matches!(loss.kind(), LossKind::Released | LossKind::Expired), "{loss}");
        world.while_time_passes(10 * MS, done(waiter)).await;
        done(dropped).await;
    });
}
