//! Closing a domain: everyone in it is told, and nothing stays in the store.

use std::future::pending;
use std::pin::pin;

use tenure::{ErrorKind, LossKind, Release};
use tokio::task::yield_now;

use super::fixture::{Client, Fixture};
use super::time::{
    LONG, NAME, drive, enqueue, eventually, granted, hold, is_free, lock, look, pending_until, queue, sit,
};

// R3.7
pub(super) async fn closing_tells_every_guard(f: &impl Fixture) {
    let a = f.client().await;
    let mut guards = vec![hold(&a).await];
    for name in ["b", "c"] {
        guards.push(a.domain().lock(name).ttl(LONG).acquire().await.expect("to acquire"));
    }
    let clone = a.domain().clone();
    drive(f, clone.close()).await;
    for guard in &guards {
        assert_eq!(*drive(f, guard.lost()).await.kind(), LossKind::Closed);
        assert!(!guard.is_held());
        assert_eq!(guard.renew().await.expect_err("it is lost").kind(), ErrorKind::Lost);
    }
}

// R3.7: a holder may still be at work, so its lease stays until its guard is gone.
pub(super) async fn a_lease_stays_until_its_guard_goes(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&a).await;
    drive(f, a.domain().close()).await;
    assert!(!lock(&b).try_acquire().await.expect("no error").is_acquired(), "its holder may be at work");
    let waiter = enqueue(f, &b, "b").await;
    drop(guard);
    drop(granted(f, waiter).await);
}

// R3.7
pub(super) async fn a_guard_of_a_closed_domain_can_be_released(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&a).await;
    drive(f, a.domain().close()).await;
    assert_eq!(drive(f, guard.release()).await.expect("to release"), Release::Released);
    is_free(f, b.domain()).await;
}

// R1.7, R3.7: the names of work that `close` stops in other tasks are free when it returns.
pub(super) async fn closing_waits_for_work_that_it_stops(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let names = ["a", "b", "c"];
    let tasks = names.map(|name| {
        let lock = a.domain().lock(name).ttl(LONG);
        tokio::spawn(async move { lock.run(async |_| pending::<()>().await).await.map(|_| ()) })
    });
    eventually(f, async || a.domain().metrics().held == 3).await;
    drive(f, a.domain().close()).await;
    for name in names {
        assert!(!b.domain().inspect(name).await.expect("to look").is_held(), "{name} is still held");
    }
    for task in tasks {
        let error = drive(f, task).await.expect("no panic").expect_err("it was stopped");
        assert_eq!(error.loss().map(|loss| loss.kind().clone()), Some(LossKind::Closed));
    }
}

// R3.7: as a future that `select!` has only borrowed.
pub(super) async fn closing_waits_in_vain_for_a_run_that_nobody_polls(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let lock = lock(&a);
    let mut run = pin!(lock.run(async |_| pending::<()>().await));
    pending_until(f, run.as_mut(), async || look(b.domain()).await.is_held()).await;
    drive(f, a.domain().close()).await;
    drive(f, run).await.expect_err("it was stopped");
    is_free(f, b.domain()).await;
}

// R3.7
pub(super) async fn closing_fails_those_who_wait(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&a).await;
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let lock = lock(&b);
            tokio::spawn(async move { lock.acquire().await })
        })
        .collect();
    eventually(f, async || b.domain().metrics().waiting == 3 && queue(a.domain()).await.len() == 1).await;
    drive(f, b.domain().close()).await;
    assert!(queue(a.domain()).await.is_empty(), "closed, and still in the queue");
    for waiter in waiters {
        let error = drive(f, waiter).await.expect("no panic").expect_err("it is closed");
        assert_eq!(error.kind(), ErrorKind::Closed);
        assert!(!error.is_transient());
    }
    assert!(guard.is_held(), "another client is not concerned");
}

// R4.4
pub(super) async fn a_closed_domain_says_so(f: &impl Fixture) {
    let a = f.client().await;
    let ticket = hold(&a).await.detach().await.ok();
    let domain = a.domain().clone();
    drive(f, domain.close()).await;
    drive(f, domain.close()).await;
    let is_closed = |kind| assert_eq!(kind, ErrorKind::Closed);
    is_closed(lock(&a).acquire().await.expect_err("closed").kind());
    is_closed(lock(&a).try_acquire().await.expect_err("closed").kind());
    is_closed(lock(&a).take_over().await.expect_err("closed").kind());
    is_closed(lock(&a).run(async |_| ()).await.expect_err("closed").kind());
    is_closed(domain.inspect(NAME).await.expect_err("closed").kind());
    if let Some(ticket) = ticket {
        is_closed(ticket.adopt(&domain).await.expect_err("closed").kind());
        drop(ticket.adopt(f.client().await.domain()).await.expect("another client adopts it"));
    }
}

// R1.7
pub(super) async fn closing_is_graceful_when_nothing_was_started(f: &impl Fixture) {
    let a = f.client().await;
    drive(f, a.domain().close()).await;
    let b = f.client().await;
    assert!(lock(&b).try_acquire().await.expect("no error").is_acquired());
}

// R3.7: for every point at which close can cut in.
pub(super) async fn an_acquire_that_races_with_close_leaves_nothing(f: &impl Fixture) {
    let witness = f.client().await;
    for yields in 0..12 {
        let a = f.client().await;
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let lock = lock(&a);
                tokio::spawn(async move { lock.acquire().await })
            })
            .collect();
        for _ in 0..yields {
            yield_now().await;
        }
        drive(f, a.domain().close()).await;
        for task in tasks {
            match drive(f, task).await.expect("no panic") {
                Ok(guard) => drop(guard),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Closed),
            }
        }
        is_free(f, witness.domain()).await;
    }
}

// R3.7: the same with a hand-over under way.
pub(super) async fn a_hand_over_that_races_with_close_goes_to_the_next(f: &impl Fixture) {
    let witness = f.client().await;
    for yields in 0..6 {
        let (a, b, c) = (f.client().await, f.client().await, f.client().await);
        let guard = hold(&a).await;
        let closing = lock(&b);
        let closing = tokio::spawn(async move { closing.acquire().await });
        eventually(f, async || queue(witness.domain()).await.len() == 1).await;
        let next = enqueue(f, &c, "c").await;
        let release = tokio::spawn(guard.release());
        for _ in 0..yields {
            yield_now().await;
        }
        drive(f, b.domain().close()).await;
        drop(drive(f, closing).await.expect("no panic"));
        drive(f, release).await.expect("no panic").expect("to release");
        drop(granted(f, next).await);
        is_free(f, witness.domain()).await;
    }
}

// R3.5: dropping the last handle of a domain while its tasks wait takes nothing from them.
pub(super) async fn a_wait_outlives_its_domain(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&a).await;
    let waiter = sit(f, &b, lock(&b)).await;
    eventually(f, async || queue(a.domain()).await.len() == 1).await;
    drop(b);
    drop(guard);
    let guard = granted(f, waiter).await;
    assert!(guard.is_held() && look(a.domain()).await.is_held());
}
