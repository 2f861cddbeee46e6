//! How long a lease lasts: renewed while its holder lives, and not a moment longer than it may.

use std::time::Duration;

use tenure::{Guard, LossKind};

use super::fixture::{Client, Doing, Fixture};
use super::time::{
    LONG, NAME, SHORT, acquiring, drive, enqueue, eventually, granted, hold, is_free, lock, look, queue,
};

/// What the store says of the time left: it is there, and not more than was asked for.
async fn time_left(client: &impl Client, ttl: Duration) -> Duration {
    let holder = look(client.domain()).await.holder.expect("to be held");
    assert!(holder.remaining > Duration::ZERO, "a lease without an end, or at it");
    assert!(holder.remaining <= ttl, "{:?} left of {ttl:?}", holder.remaining);
    holder.remaining
}

// R1.5
pub(super) async fn renewal_keeps_a_lease_past_several_ttls(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = a.domain().lock(NAME).ttl(SHORT).acquire().await.expect("to acquire");
    for _ in 0..16 {
        f.let_pass(SHORT / 5).await;
        assert!(guard.is_held());
        time_left(&b, SHORT).await;
    }
    assert!(!lock(&b).try_acquire().await.expect("no error").is_acquired());
    assert!(a.domain().metrics().renewals >= 3);
}

// R1.5, R1.3: a lease that was handed over starts short, and becomes a full one.
pub(super) async fn a_lease_that_was_handed_over_is_kept(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&a).await;
    let waiter = enqueue(f, &b, "b").await;
    guard.release().await.expect("to release");
    let guard = granted(f, waiter).await;
    f.let_pass(SHORT * 5 / 2).await;
    assert!(guard.is_held());
    assert!(time_left(&a, LONG).await > SHORT);
}

// R2.2
pub(super) async fn a_lease_always_has_an_end(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&a).await;
    assert!(time_left(&b, LONG).await > LONG / 2);
    assert!(guard.remaining() > LONG / 2 && guard.remaining() < LONG);
    let waiter = enqueue(f, &b, "b").await;
    guard.release().await.expect("to release");
    let guard = granted(f, waiter).await;
    time_left(&a, LONG).await;
    guard.renew().await.expect("to renew");
    assert!(time_left(&a, LONG).await > LONG / 2);
}

// R2.6
pub(super) async fn the_default_lease_is_ten_seconds(f: &impl Fixture) {
    let client = f.client().await;
    let guard = client.domain().lock(NAME).acquire().await.expect("to acquire");
    let left = time_left(&client, Duration::from_secs(10)).await;
    assert!(left > Duration::from_secs(5), "{left:?}");
    assert!(guard.remaining() <= Duration::from_secs(10));
}

// R1.5
pub(super) async fn the_name_of_a_dead_holder_goes_to_the_next(f: &impl Fixture) {
    let client = f.client().await;
    f.die(Doing::Holding, NAME, 2 * SHORT).await;
    let waiter = acquiring(lock(&client).label("next"));
    drop(granted(f, waiter).await);
}

// R1.5
pub(super) async fn the_name_of_a_dead_holder_is_free_without_a_next(f: &impl Fixture) {
    let client = f.client().await;
    f.die(Doing::Holding, NAME, SHORT).await;
    is_free(f, client.domain()).await;
    assert!(lock(&client).try_acquire().await.expect("no error").is_acquired());
}

// R1.5: the old holder's keeper lives, its guard lives, and neither keeps a lease of another alive.
pub(super) async fn a_stale_lock_is_not_kept_alive(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let stale = a.domain().lock(NAME).ttl(SHORT).acquire().await.expect("to acquire");
    let taker = b.domain().lock(NAME).ttl(SHORT).no_renewal();
    let guard = taker.take_over().await.expect("to take over");
    assert_eq!(*drive(f, guard.lost()).await.kind(), LossKind::Expired);
    is_free(f, b.domain()).await;
    assert!(!stale.is_held());
}

// R1.5
pub(super) async fn max_hold_ends_renewal(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let lock_capped = a.domain().lock(NAME).ttl(SHORT).max_hold(2 * SHORT);
    let guard = lock_capped.acquire().await.expect("to acquire");
    f.let_pass(SHORT * 3 / 2).await;
    assert!(guard.is_held(), "it was renewed once");
    assert_eq!(*drive(f, guard.lost()).await.kind(), LossKind::Expired);
    let next = drive(f, lock(&b).acquire()).await.expect("to acquire");
    assert!(next.fence() > guard.fence());
}

// R1.5: the shorter one of the two counts.
pub(super) async fn max_hold_may_be_shorter_than_the_ttl(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let capped = a.domain().lock(NAME).ttl(LONG).max_hold(SHORT);
    let guard = capped.acquire().await.expect("to acquire");
    time_left(&b, SHORT).await;
    assert_eq!(*drive(f, guard.lost()).await.kind(), LossKind::Expired);
    drop(drive(f, lock(&b).acquire()).await.expect("to acquire"));
}

/// A lease on [`NAME`] that nobody renews.
async fn unrenewed(client: &impl Client, ttl: Duration) -> Guard {
    let lock = client.domain().lock(NAME).ttl(ttl).no_renewal();
    lock.acquire().await.expect("to acquire")
}

// R1.5
pub(super) async fn without_renewal_a_lease_ends_after_its_ttl(f: &impl Fixture) {
    let client = f.client().await;
    let guard = unrenewed(&client, SHORT).await;
    let loss = drive(f, guard.lost()).await;
    assert_eq!((loss.kind(), loss.name()), (&LossKind::Expired, NAME));
    assert!(!guard.is_held() && guard.remaining().is_zero());
    is_free(f, client.domain()).await;
}

// R4.3
pub(super) async fn renewal_by_hand_extends(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = unrenewed(&a, 3 * SHORT).await;
    f.let_pass(SHORT * 9 / 5).await;
    assert!(guard.remaining() < SHORT * 3 / 2);
    guard.renew().await.expect("to renew");
    assert!(guard.remaining() > SHORT * 3 / 2);
    f.let_pass(SHORT * 9 / 5).await;
    assert!(guard.is_held(), "past its first ttl");
    time_left(&b, 3 * SHORT).await;
    assert_eq!(*drive(f, guard.lost()).await.kind(), LossKind::Expired, "by hand, once, is once");
}

// R1.6: a renewal never makes a lease end sooner.
pub(super) async fn renewal_never_shortens(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let capped = a.domain().lock(NAME).ttl(LONG).max_hold(LONG / 2);
    let guard = capped.acquire().await.expect("to acquire");
    f.let_pass(SHORT / 2).await;
    let before = guard.remaining();
    guard.renew().await.expect("to renew");
    assert!(guard.remaining() + SHORT / 4 > before, "{before:?}, and then {:?}", guard.remaining());
    time_left(&b, LONG / 2).await;
}

// R1.5, R1.1: whoever waits for a lease that just ends gets it without anyone's help.
pub(super) async fn an_expiry_is_noticed_by_those_who_wait(f: &impl Fixture) {
    let (a, b, c) = (f.client().await, f.client().await, f.client().await);
    let guard = unrenewed(&a, 2 * SHORT).await;
    let first = enqueue(f, &b, "b").await;
    let second = enqueue(f, &c, "c").await;
    let guard_b = granted(f, first).await;
    assert!(!guard.is_held());
    eventually(f, async || queue(a.domain()).await == ["c"]).await;
    drop(guard_b);
    drop(granted(f, second).await);
}
