//! The tasks of one process: they share a lease in turn, and nobody outside can tell but by its speed.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure::Fence;
use tokio::task::yield_now;

use super::fixture::{Client, Fixture};
use super::time::{
    LONG, NAME, SHORT, drive, enqueue, enqueue_lock, eventually, granted, hold, lock, look, queue, sit,
};

// B3, R2.1
pub(super) async fn tasks_share_one_lease_in_turn(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let mut turns: Vec<(Fence, String)> = Vec::new();
    // A machine that is busy enough may use up the time of every lease: then again.
    for _ in 0..100 {
        let guard = hold(&b).await;
        let mut tasks = Vec::new();
        for _ in 0..8 {
            let lock = lock(&a);
            tasks.push(tokio::spawn(async move {
                let guard = lock.acquire().await.expect("to acquire");
                let turn = (guard.fence(), guard.token().to_owned());
                guard.release().await.expect("to release");
                turn
            }));
        }
        eventually(f, async || a.domain().metrics().waiting == 8).await;
        guard.release().await.expect("to release");
        let mut round = Vec::new();
        for task in tasks {
            round.push(drive(f, task).await.expect("no panic"));
        }
        round.sort();
        turns.extend(round);
        if a.domain().metrics().passed > 0 {
            break;
        }
    }
    assert!(a.domain().metrics().passed > 0, "every turn went through the store");
    assert!(turns.is_sorted_by(|a, b| a.0 < b.0), "a fence was used twice: {turns:?}");
    let leases: HashSet<&str> = turns.iter().map(|(_, token)| &**token).collect();
    assert_eq!(leases.len() as u64 + a.domain().metrics().passed, turns.len() as u64);
}

// B1, B3: more turns than any range of fences has.
pub(super) async fn fences_grow_over_many_turns(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let fences = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for client in [&a, &a, &a, &a, &b] {
        let (lock, fences) = (lock(client), Arc::clone(&fences));
        tasks.push(tokio::spawn(async move {
            for _ in 0..50 {
                let guard = lock.acquire().await.expect("to acquire");
                fences.lock().expect("no panic").push(guard.fence());
                yield_now().await;
            }
        }));
    }
    for task in tasks {
        drive(f, task).await.expect("no panic");
    }
    let fences = fences.lock().expect("no panic");
    assert_eq!(fences.len(), 250);
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
}

// B3, R1.1: tasks that pass a lease on among themselves leave room for another process.
pub(super) async fn a_busy_client_does_not_starve_another(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let is_over = Arc::<AtomicBool>::default();
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let (lock, is_over) = (lock(&a), Arc::clone(&is_over));
            tokio::spawn(async move {
                while !is_over.load(Ordering::SeqCst) {
                    let guard = lock.acquire().await.expect("to acquire");
                    yield_now().await;
                    drop(guard);
                    yield_now().await;
                }
            })
        })
        .collect();
    eventually(f, async || a.domain().metrics().acquired > 10).await;
    for _ in 0..3 {
        let guard = drive(f, lock(&b).acquire()).await.expect("to acquire");
        guard.release().await.expect("to release");
    }
    is_over.store(true, Ordering::SeqCst);
    for task in tasks {
        drive(f, task).await.expect("no panic");
    }
}

// R4.2: a task that asked for something else gets what it asked for.
pub(super) async fn tasks_with_other_terms_get_their_own(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let first = lock(&a).label("first").acquire().await.expect("to acquire");
    let second = sit(f, &a, lock(&a).label("second").ttl(LONG / 4)).await;
    let third = sit(f, &a, lock(&a).label("third").ttl(LONG / 2)).await;
    assert_eq!(look(b.domain()).await.holder.expect("to be held").owner.label(), "first");
    let token = first.token().to_owned();
    first.release().await.expect("to release");
    for (task, label, ttl) in [(second, "second", LONG / 4), (third, "third", LONG / 2)] {
        let guard = granted(f, task).await;
        let holder = look(b.domain()).await.holder.expect("to be held");
        assert_eq!(holder.owner.label(), label);
        assert!(holder.remaining <= ttl && guard.remaining() <= ttl);
        assert_ne!(guard.token(), token, "a fresh token for a lease of its own");
        guard.renew().await.expect("to renew");
        assert!(guard.remaining() > ttl / 2 && guard.remaining() <= ttl);
    }
}

// R1.4, B3: the cohort is in the queue, not the task; whoever inherits the place gets its own terms.
pub(super) async fn a_task_that_gives_up_leaves_its_place_to_the_others(f: &impl Fixture) {
    let (a, b, c) = (f.client().await, f.client().await, f.client().await);
    let guard = hold(&a).await;
    let first = enqueue(f, &b, "first").await;
    let heir = sit(f, &b, lock(&b).label("heir").ttl(LONG / 4)).await;
    let behind = enqueue(f, &c, "c").await;
    first.abort();
    eventually(f, async || b.domain().metrics().waiting == 1).await;
    guard.release().await.expect("to release");
    let guard = granted(f, heir).await;
    assert_eq!(queue(a.domain()).await, ["c"], "its place is lost");
    let holder = look(a.domain()).await.holder.expect("to be held");
    assert_eq!(holder.owner.label(), "heir");
    guard.renew().await.expect("to renew");
    let holder = look(a.domain()).await.holder.expect("to be held");
    assert!(holder.remaining <= LONG / 4);
    drop(guard);
    drop(granted(f, behind).await);
}

// B3, R3.2: a lease that is lost is lost for the task whose turn it is, and those that wait go on.
pub(super) async fn a_loss_does_not_concern_the_tasks_that_wait(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let lapsing = a.domain().lock(NAME).ttl(SHORT).no_renewal();
    let guard = lapsing.acquire().await.expect("to acquire");
    let first = sit(f, &a, lapsing.clone()).await;
    let second = sit(f, &a, lock(&a)).await;
    let next = granted(f, first).await;
    assert!(!guard.is_held() && next.fence() > guard.fence());
    assert_eq!(look(b.domain()).await.holder.expect("to be held").fence, next.fence());
    drop(guard);
    assert!(next.is_held(), "the late drop of another turn");
    drop(next);
    drop(granted(f, second).await);
}

// B3: each turn gets a lease with enough left to it: it is never handed the last moments of the one before.
pub(super) async fn every_turn_starts_with_time_left(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&b).await;
    let mut tasks = vec![enqueue_lock(f, &a, a.domain().lock(NAME).ttl(2 * SHORT)).await];
    for _ in 0..4 {
        tasks.push(sit(f, &a, a.domain().lock(NAME).ttl(2 * SHORT)).await);
    }
    drop(guard);
    for task in tasks {
        let guard = granted(f, task).await;
        assert!(guard.remaining() > Duration::ZERO && guard.is_held());
        f.let_pass(SHORT / 2).await;
        assert!(guard.is_held(), "renewed, or long enough");
        guard.release().await.expect("to release");
    }
}

// B3: a task that passes its turn on does not need the store for it.
pub(super) async fn a_turn_is_passed_on_or_waits_out_of_reach(f: &impl Fixture) {
    let a = f.client().await;
    let guard = hold(&a).await;
    let next = sit(f, &a, lock(&a).label("holder")).await;
    let fence = guard.fence();
    a.cut_off().await;
    match drive(f, guard.release()).await {
        Ok(_) => {}
        Err(returned) => {
            assert!(returned.error.is_transient());
            drop(returned);
        }
    }
    a.reconnect().await;
    assert!(granted(f, next).await.fence() > fence);
}
