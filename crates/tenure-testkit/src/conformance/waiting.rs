//! The queue: first come, first served; those who give up or die are out of it.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::{Attempt, Lock};
use tokio::task::JoinHandle;

use super::fixture::{Client, Doing, Fixture};
use super::time::{
    LONG, NAME, SHORT, drive, enqueue, enqueue_lock, eventually, granted, hold, is_free, is_soon_free, lock,
    pending_until, queue, sit, soon, soon_granted,
};

// R1.1, R3.6: each is called as soon as its turn has come.
pub(super) async fn first_come_first_served_between_clients(f: &impl Fixture) {
    let labels = ["1", "2", "3", "4", "5", "6"];
    let holder = f.client().await;
    let guard = hold(&holder).await;
    let mut waiters = Vec::new();
    for label in labels {
        waiters.push(enqueue(f, &f.client().await, label).await);
    }
    assert_eq!(queue(holder.domain()).await, labels);
    guard.release().await.expect("to release");
    for (number, waiter) in waiters.into_iter().enumerate() {
        let guard = soon_granted(f, waiter).await;
        assert_eq!(queue(holder.domain()).await, labels[number + 1..], "another came first");
        guard.release().await.expect("to release");
    }
}

// R1.1
pub(super) async fn first_come_first_served_within_a_client(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&a).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..6 {
        let (lock, order) = (lock(&b), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let guard = lock.acquire().await.expect("to acquire");
            order.lock().expect("no panic").push(number);
            guard.release().await.expect("to release");
        }));
        eventually(f, async || b.domain().metrics().waiting == number + 1).await;
    }
    guard.release().await.expect("to release");
    for task in tasks {
        drive(f, task).await.expect("no panic");
    }
    assert_eq!(*order.lock().expect("no panic"), [0, 1, 2, 3, 4, 5]);
}

// R1.1
pub(super) async fn nobody_overtakes_the_queue(f: &impl Fixture) {
    let (a, b, c) = (f.client().await, f.client().await, f.client().await);
    let guard = hold(&a).await;
    let waiter = enqueue(f, &b, "b").await;
    drop(guard);
    // Whether the name has changed hands by now or not: it is not free for one that comes past the queue, nor for its last holder.
    assert!(!lock(&c).try_acquire().await.expect("no error").is_acquired());
    assert!(!lock(&a).try_acquire().await.expect("no error").is_acquired());
    drop(granted(f, waiter).await);
}

// R1.1: a long wait costs nobody its place, however short its ttl.
pub(super) async fn a_waiter_keeps_its_place_past_its_ttl(f: &impl Fixture) {
    let (a, b, c) = (f.client().await, f.client().await, f.client().await);
    let guard = hold(&a).await;
    let first = enqueue_lock(f, &b, b.domain().lock(NAME).ttl(SHORT).label("b")).await;
    let second = enqueue(f, &c, "c").await;
    f.let_pass(SHORT * 5 / 2).await;
    assert_eq!(queue(a.domain()).await, ["b", "c"]);
    drop(guard);
    let guard = granted(f, first).await;
    assert_eq!(queue(a.domain()).await, ["c"]);
    drop(guard);
    drop(granted(f, second).await);
}

// R1.3: the ttl of all is so long that only the waiter's own short lease can be what ended.
pub(super) async fn a_dead_waiter_is_skipped(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&a).await;
    f.die(Doing::Waiting, NAME, LONG).await;
    let waiter = acquiring_behind(f, &a, lock(&b).label("b")).await;
    guard.release().await.expect("to release");
    drop(granted(f, waiter).await);
}

// R1.3
pub(super) async fn a_row_of_dead_waiters_is_skipped(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&a).await;
    for _ in 0..4 {
        f.die(Doing::Waiting, NAME, LONG).await;
    }
    let waiter = acquiring_behind(f, &a, lock(&b).label("b")).await;
    guard.release().await.expect("to release");
    drop(granted(f, waiter).await);
}

// R1.3
pub(super) async fn a_dead_waiter_leaves_nothing_behind(f: &impl Fixture) {
    let client = f.client().await;
    let guard = hold(&client).await;
    f.die(Doing::Waiting, NAME, LONG).await;
    eventually(f, async || queue(client.domain()).await.is_empty()).await;
    drop(guard);
    is_free(f, client.domain()).await;
}

// R1.4, R4.1: the answer says who holds it.
pub(super) async fn a_waiter_whose_time_is_up_leaves_the_queue(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&a).await;
    let limit = Duration::from_millis(300);
    match drive(f, lock(&b).label("b").try_acquire_for(limit)).await.expect("no error") {
        Attempt::Acquired(_) => panic!("two hold it"),
        Attempt::Busy(busy) => assert_eq!(busy.holder.expect("to be known").owner.label(), "holder"),
    }
    soon(f, async || queue(a.domain()).await.is_empty()).await;
    assert!(guard.is_held());
    drop(guard);
    is_free(f, a.domain()).await;
}

// R1.4
pub(super) async fn a_waiter_that_is_dropped_leaves_the_queue(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&a).await;
    enqueue(f, &b, "b").await.abort();
    soon(f, async || queue(a.domain()).await.is_empty()).await;
    drop(guard);
    is_free(f, a.domain()).await;
}

// R1.4, R1.1
pub(super) async fn one_that_gives_up_costs_nobody_a_place(f: &impl Fixture) {
    let a = f.client().await;
    let guard = hold(&a).await;
    let first = enqueue(f, &f.client().await, "1").await;
    enqueue(f, &f.client().await, "2").await.abort();
    let third = enqueue_after(f, &a, f.client().await, "3", &["1", "3"]).await;
    drop(guard);
    let guard = granted(f, first).await;
    assert_eq!(queue(a.domain()).await, ["3"]);
    drop(guard);
    drop(granted(f, third).await);
}

// R1.4: granted, and dropped before it knew.
pub(super) async fn a_grant_to_one_that_gave_up_goes_to_the_next(f: &impl Fixture) {
    let (a, b, c) = (f.client().await, f.client().await, f.client().await);
    let guard = hold(&a).await;
    let waiting = lock(&b).label("b");
    let mut waiting = Box::pin(waiting.acquire());
    pending_until(f, waiting.as_mut(), async || queue(a.domain()).await == ["b"]).await;
    let next = enqueue(f, &c, "c").await;
    guard.release().await.expect("to release");
    drop(waiting);
    drop(soon_granted(f, next).await);
}

// R1.4: the same without a next one.
pub(super) async fn a_grant_to_one_that_gave_up_is_given_back(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&a).await;
    let waiting = lock(&b).label("b");
    let mut waiting = Box::pin(waiting.acquire());
    pending_until(f, waiting.as_mut(), async || queue(a.domain()).await == ["b"]).await;
    guard.release().await.expect("to release");
    drop(waiting);
    is_soon_free(f, a.domain()).await;
}

// R1.4: a task that waits inside a `select!` that is busy elsewhere does not collect its turn.
pub(super) async fn a_waiter_that_is_not_polled_holds_nobody_up(f: &impl Fixture) {
    let (a, b, c) = (f.client().await, f.client().await, f.client().await);
    let guard = hold(&a).await;
    let waiting = b.domain().lock(NAME).ttl(3 * SHORT).label("b");
    let mut waiting = pin!(waiting.acquire());
    pending_until(f, waiting.as_mut(), async || queue(a.domain()).await == ["b"]).await;
    let next = enqueue(f, &c, "c").await;
    guard.release().await.expect("to release");
    let guard = granted(f, next).await;
    guard.release().await.expect("to release");
    let guard = drive(f, waiting).await.expect("its turn, now that it asks again");
    assert!(guard.is_held());
}

// R1.1, R3.6: everyone gets it, and exactly once: no wake-up is lost.
pub(super) async fn everyone_who_waits_is_served(f: &impl Fixture) {
    let a = f.client().await;
    let guard = hold(&a).await;
    let mut tasks: Vec<JoinHandle<()>> = Vec::new();
    for _ in 0..8 {
        let client = f.client().await;
        for _ in 0..4 {
            let lock = lock(&client);
            tasks.push(tokio::spawn(async move {
                lock.acquire().await.expect("to acquire").release().await.expect("to release");
            }));
        }
    }
    eventually(f, async || queue(a.domain()).await.len() == 8).await;
    drop(guard);
    for task in tasks {
        drive(f, task).await.expect("no panic");
    }
}

// R4.1
pub(super) async fn trying_does_not_wait(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&a).await;
    for _ in 0..3 {
        assert!(!lock(&b).try_acquire().await.expect("no error").is_acquired());
        let zero = lock(&b).try_acquire_for(Duration::ZERO).await.expect("no error");
        assert!(!zero.is_acquired());
        assert!(queue(a.domain()).await.is_empty(), "one that does not wait is in the queue");
    }
    drop(guard);
    is_free(f, a.domain()).await;
    assert!(lock(&b).try_acquire_for(Duration::ZERO).await.expect("no error").is_acquired());
}

// R4.1
pub(super) async fn a_wait_with_a_limit_succeeds_within_it(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    assert!(lock(&b).try_acquire_for(LONG).await.expect("no error").is_acquired(), "free");
    is_free(f, a.domain()).await;
    let guard = hold(&a).await;
    let waiting = lock(&b).label("b");
    let mut waiting = pin!(waiting.try_acquire_for(LONG));
    pending_until(f, waiting.as_mut(), async || queue(a.domain()).await == ["b"]).await;
    drop(guard);
    assert!(drive(f, waiting).await.expect("no error").is_acquired());
}

// R1.4: one task's limit is its own.
pub(super) async fn the_limit_of_a_task_concerns_no_other(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&a).await;
    let impatient = lock(&b);
    // Long enough to be seen in the queue, also on a machine that is busy.
    let mut impatient = pin!(impatient.try_acquire_for(Duration::from_millis(1_500)));
    pending_until(f, impatient.as_mut(), async || queue(a.domain()).await.len() == 1).await;
    let patient = sit(f, &b, lock(&b)).await;
    assert!(!drive(f, impatient).await.expect("no error").is_acquired());
    assert_eq!(queue(a.domain()).await.len(), 1, "the place of the others is kept");
    drop(guard);
    drop(granted(f, patient).await);
}

/// A waiter behind others that may be shown or not, for they are dead.
async fn acquiring_behind(f: &impl Fixture, witness: &impl Client, lock: Lock) -> JoinHandle<tenure::Guard> {
    let task = super::time::acquiring(lock);
    eventually(f, async || queue(witness.domain()).await.last().is_some_and(|label| label == "b")).await;
    task
}

async fn enqueue_after(
    f: &impl Fixture,
    witness: &impl Client,
    client: impl Client,
    label: &str,
    expected: &[&str],
) -> JoinHandle<tenure::Guard> {
    let task = super::time::acquiring(lock(&client).label(label));
    eventually(f, async || queue(witness.domain()).await == expected).await;
    task
}
