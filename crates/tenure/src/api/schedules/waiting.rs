//! Those who wait, and those who stop waiting: a grant meets a cancelled task, an answer that is still on its way, or the end of the
//! domain.

use super::*;
use crate::types::error::ErrorKind;

// I5, R1.4
#[test]
fn a_grant_meets_a_cancelled_task() {
    permute(async |world| {
        let guard = world.holds(0).await;
        let leaving = world.waiter(1);
        let staying = world.waiter(2);
        let dropped = sometime(12, move || drop(guard));
        cancelled(leaving).await;
        done(staying).await;
        done(dropped).await;
    });
}

// I5: the last one that waits goes away, and takes the place in the queue along.
#[test]
fn everybody_stops_waiting() {
    permute(async |world| {
        let guard = world.holds(0).await;
        let leaving = [1, 1, 2].map(|client| world.waiter(client));
        for task in leaving {
            cancelled(task).await;
        }
        // While the name is held: nothing else ends the wait.
        if world.line == Line::Direct {
            world.background_ends().await;
        }
        drop(guard);
    });
}

// Rule 2 of the hand-over: the push comes by another way than the answer.
#[test]
fn a_push_overtakes_the_answer_that_announces_it() {
    permute(async |world| {
        let guard = world.holds(0).await;
        let before = guard.fence().get();
        let waiter = world.waiter(1);
        let dropped = sometime(6, move || drop(guard));
        assert!(done(waiter).await > before);
        done(dropped).await;
    });
}

// I5: those of one client wait for the answer of the one that asked first, and it goes away.
#[test]
fn the_task_that_asks_is_cancelled() {
    permute(async |world| {
        let asking = world.waiter(0);
        let waiters = [0, 1, 0].map(|client| world.waiter(client));
        cancelled(asking).await;
        for waiter in waiters {
            done(waiter).await;
        }
    });
}

// R3.7
#[test]
fn closing_meets_those_who_acquire() {
    permute(async |world| {
        let held = world.lock(1).try_acquire().await.expect("the store is there").ok();
        let tasks = [0, 0].map(|_| {
            let lock = world.lock(0);
            spawn(async move {
                match lock.acquire().await {
                    // Whoever has the name when the domain is closed is told.
                    Ok(guard) => drop(guard.lost().await),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Closed),
                }
            })
        });
        let dropped = sometime(12, move || drop(held));
        some_time(20).await;
        world.domains[0].close().await;
        for task in tasks {
            done(task).await;
        }
        done(dropped).await;
        done(world.waiter(2)).await;
    });
}

// R0.3: everyone shares one attempt to connect, also when the one who began it goes away.
#[test]
fn the_first_callers_connect_together() {
    permute(async |world| {
        let first = world.waiter(0);
        let others = [0, 0].map(|client| world.waiter(client));
        cancelled(first).await;
        for other in others {
            done(other).await;
        }
        assert_eq!(world.connects.load(Ordering::Relaxed), 1, "they connected more than once");
    });
}
