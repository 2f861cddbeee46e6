//! Turns that follow each other: one at a time, everybody gets one, and none is lost on its way.

use std::sync::atomic::AtomicU64;

use super::*;

/// What the lock protects. It is read and written in two steps: of two that are here at once, one is lost.
#[derive(Clone, Default)]
struct Protected {
    count: Arc<AtomicU64>,
    last_fence: Arc<AtomicU64>,
}

impl Protected {
    async fn use_with(&self, guard: &Guard) {
        assert!(guard.is_held(), "a turn begins with a lease");
        let (count, last) = (self.count.load(Ordering::Relaxed), self.last_fence.load(Ordering::Relaxed));
        assert!(last < guard.fence().get(), "fences went back");
        some_time(3).await;
        assert!(guard.is_held(), "nobody took it away");
        self.count.store(count + 1, Ordering::Relaxed);
        self.last_fence.store(guard.fence().get(), Ordering::Relaxed);
    }
}

// I1, I3, R3.5: by release and by drop, passed on here and handed over by the store.
#[test]
fn all_tasks_of_all_clients_have_their_turns() {
    permute(async |world| {
        let protected = Protected::default();
        let tasks = [0, 0, 1, 1, 2].map(|client| {
            let (lock, protected) = (world.lock(client), protected.clone());
            let clock = Arc::clone(&world.clock);
            spawn(async move {
                for turn in 0..2 {
                    let guard = lock.acquire().await.expect("the store is there");
                    protected.use_with(&guard).await;
                    // After 5 ms a lease goes back to the store.
                    clock.jump(3 * MS);
                    match turn {
                        0 => drop(guard.release().await.expect("the store is there")),
                        _ => drop(guard),
                    }
                }
            })
        });
        for task in tasks {
            done(task).await;
        }
        assert_eq!(protected.count.load(Ordering::Relaxed), 10);
    });
}

// I5: a task that is called and cancelled at the same moment passes its turn on.
#[test]
fn a_pass_meets_a_task_that_goes_away() {
    permute(async |world| {
        let guard = world.holds(0).await;
        let leaving = world.waiter(0);
        let staying = world.waiter(0);
        let elsewhere = world.waiter(1);
        let dropped = sometime(12, move || drop(guard));
        cancelled(leaving).await;
        done(staying).await;
        done(elsewhere).await;
        done(dropped).await;
    });
}

// R3.5
#[test]
fn a_guard_is_dropped_on_another_thread() {
    permute(async |world| {
        let guard = world.holds(0).await;
        let before = guard.fence().get();
        let waiters = [0, 1, 0].map(|client| world.waiter(client));
        some_time(12).await;
        let thread = shuttle::thread::spawn(move || drop(guard));
        for waiter in waiters {
            assert!(done(waiter).await > before);
        }
        thread.join().expect("no panic");
    });
}

// I5: a release that is cancelled is done by the background.
#[test]
fn a_release_is_cancelled() {
    permute(async |world| {
        let guard = world.holds(0).await;
        let waiters = [0, 1].map(|client| world.waiter(client));
        let releasing = spawn(async move { guard.release().await.expect("the store is there") });
        cancelled(releasing).await;
        for waiter in waiters {
            done(waiter).await;
        }
    });
}

// R4.1: whoever does not wait is told, and stands in nobody's way.
#[test]
fn tries_come_and_go() {
    permute(async |world| {
        let tries = [0, 0, 1].map(|client| {
            let lock = world.lock(client);
            spawn(async move { lock.try_acquire().await.expect("the store is there").is_acquired() })
        });
        let waiter = world.waiter(0);
        for attempt in tries {
            done(attempt).await;
        }
        done(waiter).await;
    });
}
