//! One at a time, whoever asks: between clients, between the tasks of one, and under cancellation.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::{Attempt, Fence, Guard};
use tokio::task::yield_now;

use super::fixture::{Client, Fixture};
use super::time::{LONG, NAME, SHORT, drive, hold, is_free, lock};

/// What the lock protects: a counter that loses updates as soon as two are inside, and fences that must grow.
#[derive(Default)]
struct Till {
    is_open: AtomicBool,
    sum: AtomicU64,
    fences: Mutex<Vec<Fence>>,
}

impl Till {
    /// Reads, lets others run, writes.
    async fn add_one(&self, guard: &Guard) {
        assert!(!self.is_open.swap(true, Ordering::SeqCst), "two are inside");
        assert!(guard.is_held(), "inside, and not holding");
        self.fences.lock().expect("no panic").push(guard.fence());
        let sum = self.sum.load(Ordering::Relaxed);
        for _ in 0..3 {
            yield_now().await;
        }
        self.sum.store(sum + 1, Ordering::Relaxed);
        self.is_open.store(false, Ordering::SeqCst);
    }

    fn check(&self, expected: u64) {
        assert_eq!(self.sum.load(Ordering::Relaxed), expected, "an update was lost");
        let fences = self.fences.lock().expect("no panic");
        assert!(fences.is_sorted_by(|a, b| a < b), "fences do not grow: {fences:?}");
    }
}

// R2.2
pub(super) async fn clients_exclude_each_other(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&a).await;
    assert!(guard.is_held());
    assert!(!lock(&b).try_acquire().await.expect("no error").is_acquired());
    guard.release().await.expect("to release");
    let guard = lock(&b).try_acquire().await.expect("no error").ok().expect("it is free");
    assert!(!lock(&a).try_acquire().await.expect("no error").is_acquired());
    drop(guard);
}

// R2.7
pub(super) async fn tasks_of_a_client_exclude_each_other(f: &impl Fixture) {
    let client = f.client().await;
    let guard = hold(&client).await;
    assert!(!lock(&client).try_acquire().await.expect("no error").is_acquired());
    guard.release().await.expect("to release");
    assert!(lock(&client).try_acquire().await.expect("no error").is_acquired());
}

// R0.7
pub(super) async fn other_names_are_not_concerned(f: &impl Fixture) {
    let client = f.client().await;
    let guards: Vec<Guard> =
        [client.domain().lock("a").acquire().await, client.domain().lock("b").acquire().await]
            .into_iter()
            .map(|guard| guard.expect("to acquire"))
            .collect();
    assert!(guards.iter().all(|guard| guard.is_held()));
}

// R1, R2.1
pub(super) async fn no_update_is_lost_between_clients(f: &impl Fixture) {
    let till = Arc::new(Till::default());
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let client = f.client().await;
        for _ in 0..4 {
            let (lock, till) = (lock(&client), Arc::clone(&till));
            tasks.push(tokio::spawn(async move {
                for _ in 0..10 {
                    let guard = lock.acquire().await.expect("to acquire");
                    till.add_one(&guard).await;
                    guard.release().await.expect("to release");
                }
            }));
        }
    }
    for task in tasks {
        drive(f, task).await.expect("no panic");
    }
    till.check(120);
}

// R2.7: tasks of one process with different terms can't share a lease, and exclude each other all the same.
pub(super) async fn no_update_is_lost_between_tasks_with_other_terms(f: &impl Fixture) {
    let till = Arc::new(Till::default());
    let mut tasks = Vec::new();
    for client in [f.client().await, f.client().await] {
        for number in 0..4 {
            let ttl = LONG - Duration::from_secs(number / 2);
            let (lock, till) = (lock(&client).ttl(ttl).label(format!("{}", number % 2)), Arc::clone(&till));
            tasks.push(tokio::spawn(async move {
                for _ in 0..10 {
                    let guard = lock.acquire().await.expect("to acquire");
                    till.add_one(&guard).await;
                }
            }));
        }
    }
    for task in tasks {
        drive(f, task).await.expect("no panic");
    }
    till.check(80);
}

// R1.4, R2.7: tasks that give up at any await take nothing from the others, and leave nothing behind.
pub(super) async fn no_update_is_lost_when_tasks_give_up(f: &impl Fixture) {
    let till = Arc::new(Till::default());
    let mut tasks = Vec::new();
    for client_number in 0..3_u64 {
        let client = f.client().await;
        for number in 0..4 {
            let (lock, till) = (lock(&client), Arc::clone(&till));
            tasks.push(tokio::spawn(async move {
                let mut random = client_number * 4 + number + 1;
                let mut added = 0_u64;
                for _ in 0..30 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let patience = (random >> 33) % 24;
                    let impatience = async {
                        for _ in 0..patience {
                            yield_now().await;
                        }
                    };
                    let guard = match random >> 62 {
                        0 => lock.acquire().await.expect("to acquire"),
                        1 => match lock.try_acquire_for(Duration::from_millis(1 + patience / 8)).await {
                            Ok(Attempt::Acquired(guard)) => guard,
                            Ok(Attempt::Busy(_)) => continue,
                            // So little time that it may not be enough to ask.
                            Err(error) if error.is_transient() => continue,
                            Err(error) => panic!("{error}"),
                        },
                        _ => tokio::select! {
                            biased;
                            guard = lock.acquire() => guard.expect("to acquire"),
                            () = impatience => continue,
                        },
                    };
                    till.add_one(&guard).await;
                    added += 1;
                }
                added
            }));
        }
    }
    let mut added = 0;
    for task in tasks {
        added += drive(f, task).await.expect("no panic");
    }
    till.check(added);
    is_free(f, f.client().await.domain()).await;
}

// R2.2: also a lease that nobody renews excludes until it ends.
pub(super) async fn an_unrenewed_lease_excludes_while_it_lasts(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = a.domain().lock(NAME).ttl(2 * SHORT).no_renewal().acquire().await.expect("to acquire");
    let other = drive(f, lock(&b).acquire()).await.expect("to acquire");
    assert!(!guard.is_held(), "two hold it");
    assert!(other.fence() > guard.fence());
}
