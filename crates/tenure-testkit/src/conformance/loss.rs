//! A lease that ends before its holder gives it back: the holder is told, in time, and can do no more harm.

use tenure::{Attempt, ErrorKind, LossKind, Release};

use super::fixture::{Client, Fixture};
use super::time::{
    LONG, NAME, SHORT, drive, enqueue, eventually, granted, hold, is_free, is_ready, lock, look,
};

// R3.2
pub(super) async fn a_holder_is_told_before_another_can_hold(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = a.domain().lock(NAME).ttl(SHORT).acquire().await.expect("to acquire");
    let next = enqueue(f, &b, "b").await;
    a.cut_off().await;
    let next = granted(f, next).await;
    assert!(!guard.is_held(), "two believe that they hold it");
    assert!(is_ready(guard.lost()).await, "not told yet, and another holds it");
    assert!(next.fence() > guard.fence());
}

// R3.2: the same where nothing is broken, and the lease is just over.
pub(super) async fn an_unrenewed_holder_is_told_before_another_can_hold(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let lock = a.domain().lock(NAME).ttl(SHORT).no_renewal();
    let guard = lock.acquire().await.expect("to acquire");
    let next = granted(f, enqueue(f, &b, "b").await).await;
    assert!(!guard.is_held(), "two believe that they hold it");
    assert!(is_ready(guard.lost()).await, "not told yet, and another holds it");
    assert!(next.fence() > guard.fence());
}

// R3.2
pub(super) async fn a_holder_out_of_reach_of_its_store_is_told_why(f: &impl Fixture) {
    let a = f.client().await;
    let guard = a.domain().lock(NAME).ttl(SHORT).acquire().await.expect("to acquire");
    a.cut_off().await;
    assert_eq!(*drive(f, guard.lost()).await.kind(), LossKind::Unreachable);
    assert!(a.domain().metrics().renewals_failed > 0);
}

// R1.5: an answer that did not come is unknown, not lost.
pub(super) async fn a_short_outage_costs_no_lease(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = a.domain().lock(NAME).ttl(4 * SHORT).acquire().await.expect("to acquire");
    a.cut_off().await;
    f.let_pass(2 * SHORT).await;
    assert!(guard.is_held());
    a.reconnect().await;
    for _ in 0..12 {
        f.let_pass(SHORT / 2).await;
        assert!(guard.is_held());
    }
    assert!(look(b.domain()).await.is_held());
}

// R1.5: a renewal is refused, because another took the name while the holder could not hear of it.
pub(super) async fn a_refused_renewal_is_told(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = a.domain().lock(NAME).ttl(4 * SHORT).acquire().await.expect("to acquire");
    a.cut_off().await;
    let taker = lock(&b).label("taker").take_over().await.expect("to take over");
    a.reconnect().await;
    match drive(f, guard.lost()).await.kind() {
        LossKind::Taken { by } => assert_eq!(by.label(), "taker"),
        kind => panic!("{kind:?}"),
    }
    assert!(taker.is_held());
    let renewals = a.domain().metrics().renewals;
    f.let_pass(3 * SHORT).await;
    assert_eq!(a.domain().metrics().renewals, renewals, "renewed after it was refused");
}

// R1.5: the same, and nobody has it.
pub(super) async fn a_lease_that_is_gone_is_told(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = a.domain().lock(NAME).ttl(4 * SHORT).acquire().await.expect("to acquire");
    a.cut_off().await;
    let holder = look(b.domain()).await.holder.expect("to be held");
    assert_eq!(b.domain().break_lock(NAME, &holder).await.expect("to break"), Release::Released);
    a.reconnect().await;
    assert_eq!(*drive(f, guard.lost()).await.kind(), LossKind::Gone);
}

// R3.1: the ttl is so long that no renewal can be what told it.
pub(super) async fn a_loss_is_pushed_to_its_holder(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&a).await;
    let taker = lock(&b).label("taker").take_over().await.expect("to take over");
    match drive(f, guard.lost()).await.kind() {
        LossKind::Taken { by } => assert_eq!(by.label(), "taker"),
        kind => panic!("{kind:?}"),
    }
    // The first one was told after a hand-over and after a renewal as well.
    let waiter = enqueue(f, &a, "a").await;
    drop(taker);
    let guard = granted(f, waiter).await;
    f.let_pass(SHORT).await;
    guard.renew().await.expect("to renew");
    let _taker = lock(&b).take_over().await.expect("to take over");
    drive(f, guard.lost()).await;
}

// R2.4
pub(super) async fn releasing_what_expired_says_so(f: &impl Fixture) {
    let client = f.client().await;
    let lock = client.domain().lock(NAME).ttl(SHORT).no_renewal();
    let guard = lock.acquire().await.expect("to acquire");
    drive(f, guard.lost()).await;
    is_free(f, client.domain()).await;
    assert_eq!(guard.release().await.expect("an answer"), Release::Gone);
}

// R2.4
pub(super) async fn releasing_what_another_holds_changes_nothing(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let lapsing = a.domain().lock(NAME).ttl(SHORT).no_renewal();
    let guard = lapsing.acquire().await.expect("to acquire");
    let next = drive(f, lock(&b).label("next").acquire()).await.expect("to acquire");
    match guard.release().await.expect("an answer") {
        Release::Taken { by } => assert_eq!(by.label(), "next"),
        release => panic!("{release:?}"),
    }
    is_untouched(&b, &next).await;
}

// R2.4
pub(super) async fn dropping_what_another_holds_changes_nothing(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let lapsing = a.domain().lock(NAME).ttl(SHORT).no_renewal();
    let guard = lapsing.acquire().await.expect("to acquire");
    let next = drive(f, lock(&b).label("next").acquire()).await.expect("to acquire");
    drop(guard);
    f.let_pass(SHORT / 2).await;
    is_untouched(&b, &next).await;
}

// R2.1, R2.7: also when both are of one process.
pub(super) async fn a_lost_guard_can_change_nothing(f: &impl Fixture) {
    let a = f.client().await;
    let lapsing = a.domain().lock(NAME).ttl(SHORT).no_renewal();
    let guard = lapsing.acquire().await.expect("to acquire");
    drive(f, guard.lost()).await;
    let next = drive(f, lock(&a).label("next").acquire()).await.expect("to acquire");
    assert_eq!(guard.renew().await.expect_err("it is lost").kind(), ErrorKind::Lost);
    let returned = guard.detach().await.expect_err("it is lost");
    assert_eq!(returned.error.kind(), ErrorKind::Lost);
    assert!(matches!(returned.guard.release().await.expect("an answer"), Release::Taken { .. }));
    f.let_pass(SHORT / 2).await;
    is_untouched(&a, &next).await;
}

async fn is_untouched(client: &impl Client, guard: &tenure::Guard) {
    assert!(guard.is_held());
    let holder = look(client.domain()).await.holder.expect("still held");
    assert_eq!((holder.owner.label(), holder.fence), ("next", guard.fence()));
    guard.renew().await.expect("still ours, says the store");
}

// R2.1: a loss is final: the same guard never comes back to life.
pub(super) async fn a_loss_is_final(f: &impl Fixture) {
    let client = f.client().await;
    let lapsing = client.domain().lock(NAME).ttl(SHORT).no_renewal();
    let guard = lapsing.acquire().await.expect("to acquire");
    let lease = guard.lease().clone();
    let loss = drive(f, guard.lost()).await;
    assert_eq!(guard.renew().await.expect_err("it is lost").kind(), ErrorKind::Lost);
    f.let_pass(SHORT / 2).await;
    assert!(!guard.is_held() && !lease.is_held());
    assert_eq!(lease.lost().await, loss);
    drop(guard);
    assert_eq!(drive(f, lease.lost()).await, loss, "also after its guard is gone");
    let again = match drive(f, lapsing.try_acquire_for(LONG)).await.expect("no error") {
        Attempt::Acquired(again) => again,
        Attempt::Busy(busy) => panic!("{busy}"),
    };
    assert!(again.is_held() && !lease.is_held());
}

// R3.2: everyone who asks is told, not only the first.
pub(super) async fn every_view_of_a_lease_is_told(f: &impl Fixture) {
    let client = f.client().await;
    let lapsing = client.domain().lock(NAME).ttl(SHORT).no_renewal();
    let guard = lapsing.acquire().await.expect("to acquire");
    let watchers: Vec<_> = (0..4)
        .map(|_| {
            let lease = guard.lease().clone();
            tokio::spawn(async move { lease.lost().await })
        })
        .collect();
    for watcher in watchers {
        assert_eq!(*drive(f, watcher).await.expect("no panic").kind(), LossKind::Expired);
    }
    eventually(f, async || client.domain().metrics().lost == 1).await;
}
