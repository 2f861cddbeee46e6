//! A client that can't reach its store: nothing is entered, every verb says the same, and all of it passes.

use std::time::Duration;

use tenure::{Attempt, Error, ErrorKind, Ticket};

use super::fixture::{Client, Fixture};
use super::time::{
    LONG, NAME, SHORT, drive, enqueue, eventually, granted, hold, is_free, is_soon_free, lock, look, queue,
};

#[track_caller]
fn is_unavailable<T>(answer: Result<T, Error>) {
    match answer {
        Ok(_) => panic!("it was answered"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.is_transient());
        }
    }
}

// R0.2, R0.5, R4.4
pub(super) async fn a_store_out_of_reach_is_one_typed_error(f: &impl Fixture) {
    let a = f.client().await;
    let domain = a.domain();
    // Opened, and known to work.
    let holder = {
        let guard = hold(&a).await;
        let holder = look(domain).await.holder.expect("to be held");
        guard.release().await.expect("to release");
        holder
    };
    a.cut_off().await;
    let lock = lock(&a).ttl(4 * SHORT);
    is_unavailable(drive(f, lock.acquire()).await);
    is_unavailable(drive(f, lock.try_acquire()).await);
    is_unavailable(drive(f, lock.try_acquire_for(SHORT)).await);
    is_unavailable(drive(f, lock.run(async |_| ())).await);
    is_unavailable(drive(f, lock.take_over()).await);
    is_unavailable(drive(f, domain.inspect(NAME)).await);
    is_unavailable(drive(f, domain.list("")).await);
    is_unavailable(drive(f, domain.break_lock(NAME, &holder)).await);
    is_unavailable(drive(f, domain.health()).await);
    let ticket: Ticket =
        "tenure1/orders/42/1/10000/token".replace("orders/42", "orders%2F42").parse().expect("a ticket");
    is_unavailable(drive(f, ticket.adopt(domain)).await);
    a.reconnect().await;
}

// R0.5
pub(super) async fn it_recovers_without_a_restart(f: &impl Fixture) {
    let a = f.client().await;
    hold(&a).await.release().await.expect("to release");
    for _ in 0..3 {
        a.cut_off().await;
        is_unavailable(drive(f, lock(&a).ttl(SHORT).acquire()).await);
        a.reconnect().await;
        eventually(f, async || lock(&a).try_acquire().await.is_ok_and(|attempt| attempt.is_acquired())).await;
    }
    is_free(f, a.domain()).await;
}

// R1.4: what failed left nothing behind, and can be repeated.
pub(super) async fn a_failed_acquire_leaves_nothing_behind(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    a.cut_off().await;
    is_unavailable(drive(f, lock(&a).ttl(SHORT).acquire()).await);
    a.reconnect().await;
    let guard = drive(f, lock(&b).acquire()).await.expect("to acquire");
    assert!(queue(b.domain()).await.is_empty());
    drop(guard);
    is_free(f, b.domain()).await;
}

// R0.5: one that waits already outlasts an outage of a ttl, and no longer.
pub(super) async fn a_waiter_learns_of_a_long_outage(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&a).await;
    let waiting = b.domain().lock(NAME).ttl(SHORT).label("b");
    let waiter = tokio::spawn(async move { waiting.acquire().await });
    eventually(f, async || queue(a.domain()).await == ["b"]).await;
    b.cut_off().await;
    is_unavailable(drive(f, waiter).await.expect("no panic"));
    eventually(f, async || queue(a.domain()).await.is_empty()).await;
    b.reconnect().await;
    drop(guard);
    is_free(f, a.domain()).await;
}

/// Is out of reach of the store for longer than `ttl`.
async fn sits_out(f: &impl Fixture, client: &impl Client, ttl: Duration) {
    client.cut_off().await;
    f.let_pass(3 * ttl).await;
    client.reconnect().await;
}

// R0.5, R1.1: a limit is the time that the caller has, whatever the reason for the wait; the place in the queue is kept.
pub(super) async fn a_wait_with_a_limit_outlasts_an_outage(f: &impl Fixture) {
    let (a, b, c) = (f.client().await, f.client().await, f.client().await);
    let guard = hold(&a).await;
    let waiting = b.domain().lock(NAME).ttl(SHORT).label("b");
    let first = tokio::spawn(async move { waiting.try_acquire_for(LONG).await });
    eventually(f, async || queue(a.domain()).await == ["b"]).await;
    let second = enqueue(f, &c, "c").await;
    sits_out(f, &b, SHORT).await;
    assert!(!first.is_finished(), "it gave up");
    eventually(f, async || queue(a.domain()).await == ["b", "c"]).await;
    drop(guard);
    let guard = drive(f, first).await.expect("no panic").expect("no error").ok().expect("to be granted");
    assert!(!second.is_finished());
    drop(guard);
    drop(granted(f, second).await);
}

// R0.5: the same for one that comes while the store is away.
pub(super) async fn a_call_with_a_limit_waits_for_the_store(f: &impl Fixture) {
    let a = f.client().await;
    hold(&a).await.release().await.expect("to release");
    for max_outage in [None, Some(LONG)] {
        a.cut_off().await;
        let waiting = a.domain().lock(NAME).ttl(SHORT);
        let waiting = max_outage.map_or(waiting.clone(), |max_outage| waiting.max_outage(max_outage));
        let waiter = tokio::spawn(async move {
            match max_outage {
                Some(_) => waiting.acquire().await.map(Some),
                None => waiting.try_acquire_for(LONG).await.map(Attempt::ok),
            }
        });
        f.let_pass(3 * SHORT).await;
        assert!(!waiter.is_finished(), "it gave up");
        a.reconnect().await;
        let guard = drive(f, waiter).await.expect("no panic").expect("no error");
        guard.expect("it is free").release().await.expect("to release");
    }
    is_free(f, a.domain()).await;
}

// R0.5: how long an outage is waited out can be said, with a limit and without one, and for each task of a client by itself.
pub(super) async fn each_waiter_outlasts_the_outage_that_it_said(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&a).await;
    let [patient, hasty, limited] = ["b", "hasty", "limited"].map(|label| lock(&b).label(label));
    let patient = tokio::spawn(async move { patient.max_outage(LONG).acquire().await });
    eventually(f, async || queue(a.domain()).await == ["b"]).await;
    let hasty = tokio::spawn(async move { hasty.max_outage(SHORT).acquire().await });
    let limited = tokio::spawn(async move { limited.max_outage(SHORT).try_acquire_for(LONG).await });
    eventually(f, async || b.domain().metrics().waiting == 3).await;
    b.cut_off().await;
    is_unavailable(drive(f, hasty).await.expect("no panic"));
    is_unavailable(drive(f, limited).await.expect("no panic"));
    // Also for one that comes during the outage.
    let late = b.domain().lock("another").max_outage(SHORT);
    is_unavailable(drive(f, late.acquire()).await);
    assert!(!patient.is_finished(), "it gave up");
    b.reconnect().await;
    eventually(f, async || queue(a.domain()).await == ["b"]).await;
    drop(guard);
    drop(drive(f, patient).await.expect("no panic").expect("to be granted in the end"));
    is_free(f, a.domain()).await;
}

// R1.1: a waiter that was silent for a while is skipped, and has its place again when it is back.
pub(super) async fn a_waiter_that_comes_back_has_its_place(f: &impl Fixture) {
    let (a, b, c) = (f.client().await, f.client().await, f.client().await);
    let guard = hold(&a).await;
    let first = enqueue(f, &b, "b").await;
    let second = enqueue(f, &c, "c").await;
    b.cut_off().await;
    eventually(f, async || queue(a.domain()).await == ["c"]).await;
    b.reconnect().await;
    eventually(f, async || queue(a.domain()).await == ["b", "c"]).await;
    drop(guard);
    let guard = granted(f, first).await;
    assert_eq!(queue(a.domain()).await, ["c"]);
    drop(guard);
    drop(granted(f, second).await);
}

// R1.3: granted while it could not hear of it. It never runs on that grant once its time is over, and the next one is served.
pub(super) async fn a_grant_that_was_not_heard_goes_to_the_next(f: &impl Fixture) {
    let (a, b, c) = (f.client().await, f.client().await, f.client().await);
    let guard = hold(&a).await;
    let unheard = enqueue(f, &b, "b").await;
    let next = enqueue(f, &c, "c").await;
    b.cut_off().await;
    guard.release().await.expect("to release");
    let guard = granted(f, next).await;
    assert!(!unheard.is_finished());
    b.reconnect().await;
    f.let_pass(SHORT).await;
    assert!(!unheard.is_finished(), "two hold it");
    guard.release().await.expect("to release");
    drop(granted(f, unheard).await);
}

// R1.4: a wait with a limit says what it knows when the time is up: that nobody can tell.
pub(super) async fn a_wait_with_a_limit_ends_in_an_outage_too(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&a).await;
    let waiting = lock(&b).label("b");
    let waiter = tokio::spawn(async move { waiting.try_acquire_for(Duration::from_secs(3)).await });
    eventually(f, async || queue(a.domain()).await == ["b"]).await;
    b.cut_off().await;
    match drive(f, waiter).await.expect("no panic") {
        Ok(Attempt::Acquired(_)) => panic!("two hold it"),
        Ok(Attempt::Busy(_)) => {}
        Err(error) => assert!(error.is_transient(), "{error}"),
    }
    b.reconnect().await;
    drop(guard);
    is_free(f, a.domain()).await;
}

// R1.4: granted while it could not hear of it, and given up before it could: it goes to the next all the same, and at once.
pub(super) async fn a_grant_that_nobody_wants_any_more_is_given_back(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&a).await;
    let unheard = enqueue(f, &b, "b").await;
    b.cut_off().await;
    guard.release().await.expect("to release");
    assert_eq!(look(a.domain()).await.holder.expect("to be granted").owner.label(), "b");
    unheard.abort();
    drop(unheard.await);
    b.reconnect().await;
    is_soon_free(f, a.domain()).await;
}

// R1.1: a lease has expired, the next one has not noticed yet, and another tries: it is told whose turn it is.
pub(super) async fn nobody_overtakes_the_queue_after_an_expiry(f: &impl Fixture) {
    let (a, b, c) = (f.client().await, f.client().await, f.client().await);
    let expiring = a.domain().lock(NAME).ttl(SHORT * 4 / 3).no_renewal();
    let _expiring = expiring.acquire().await.expect("to acquire");
    let next = enqueue(f, &b, "b").await;
    b.cut_off().await;
    eventually(f, async || !look(a.domain()).await.is_held()).await;
    match lock(&c).try_acquire().await.expect("no error") {
        Attempt::Acquired(_) => panic!("the queue was overtaken"),
        Attempt::Busy(busy) => assert_eq!(busy.holder.expect("to be known").owner.label(), "b"),
    }
    b.reconnect().await;
    drop(granted(f, next).await);
}
