//! Taking over and breaking: by force, but never blindly.

use tenure::{LossKind, Release};

use super::fixture::{Client, Fixture};
use super::time::{
    LONG, NAME, SHORT, drive, enqueue, eventually, granted, hold, is_free, lock, look, queue, sit,
};

// R3.3
pub(super) async fn the_old_holder_is_told_who_took_over(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let old = a.domain().lock(NAME).ttl(2 * SHORT).acquire().await.expect("to acquire");
    let new = lock(&b).label("operator").take_over().await.expect("to take over");
    assert!(new.is_held() && new.fence() > old.fence());
    match drive(f, old.lost()).await.kind() {
        LossKind::Taken { by } => assert_eq!((by.label(), by.pid()), ("operator", Some(std::process::id()))),
        kind => panic!("{kind:?}"),
    }
    assert!(!old.is_held());
    assert!(matches!(old.release().await.expect("an answer"), Release::Taken { .. }));
    assert!(new.is_held());
    assert_eq!(new.release().await.expect("to release"), Release::Released);
}

// R3.3
pub(super) async fn taking_over_a_free_name_takes_it(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = lock(&a).take_over().await.expect("to take over");
    assert!(!lock(&b).try_acquire().await.expect("no error").is_acquired());
    assert_eq!(guard.release().await.expect("to release"), Release::Released);
}

// R3.3: ahead of the queue, which stays as it is.
pub(super) async fn taking_over_does_not_disturb_the_queue(f: &impl Fixture) {
    let (a, b, c) = (f.client().await, f.client().await, f.client().await);
    let old = a.domain().lock(NAME).ttl(2 * SHORT).acquire().await.expect("to acquire");
    let waiter = enqueue(f, &b, "b").await;
    let new = lock(&c).label("c").take_over().await.expect("to take over");
    drive(f, old.lost()).await;
    assert_eq!(look(a.domain()).await.holder.expect("to be held").owner.label(), "c");
    assert_eq!(queue(a.domain()).await, ["b"]);
    assert!(!waiter.is_finished());
    let fence = new.fence();
    drop(new);
    assert!(granted(f, waiter).await.fence() > fence);
}

// R3.3, R2.7: the tasks of one process are strangers to each other here as well.
pub(super) async fn a_task_takes_over_from_another_of_its_client(f: &impl Fixture) {
    let a = f.client().await;
    let old = a.domain().lock(NAME).ttl(2 * SHORT).acquire().await.expect("to acquire");
    let waiter = sit(f, &a, lock(&a)).await;
    let new = lock(&a).label("new").take_over().await.expect("to take over");
    assert!(matches!(drive(f, old.lost()).await.kind(), LossKind::Taken { .. }));
    drop(old);
    f.let_pass(SHORT / 2).await;
    assert!(new.is_held() && !waiter.is_finished());
    new.renew().await.expect("still ours, says the store");
    drop(new);
    drop(granted(f, waiter).await);
}

// R3.3
pub(super) async fn a_lease_that_was_taken_over_is_kept(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let _old = a.domain().lock(NAME).ttl(SHORT).acquire().await.expect("to acquire");
    let new = b.domain().lock(NAME).ttl(SHORT).take_over().await.expect("to take over");
    f.let_pass(SHORT * 5 / 2).await;
    assert!(new.is_held());
}

// R3.1, R3.3
pub(super) async fn breaking_tells_the_holder(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = a.domain().lock(NAME).ttl(2 * SHORT).acquire().await.expect("to acquire");
    let holder = look(b.domain()).await.holder.expect("to be held");
    assert_eq!(b.domain().break_lock(NAME, &holder).await.expect("to break"), Release::Released);
    assert_eq!(*drive(f, guard.lost()).await.kind(), LossKind::Gone);
    assert!(!look(b.domain()).await.is_held());
    let next = hold(&b).await;
    assert!(next.fence() > guard.fence());
}

// R1.1
pub(super) async fn a_broken_lock_goes_to_the_next(f: &impl Fixture) {
    let (a, b, c) = (f.client().await, f.client().await, f.client().await);
    let guard = a.domain().lock(NAME).ttl(2 * SHORT).acquire().await.expect("to acquire");
    let waiter = enqueue(f, &b, "b").await;
    let holder = look(c.domain()).await.holder.expect("to be held");
    assert_eq!(c.domain().break_lock(NAME, &holder).await.expect("to break"), Release::Released);
    let next = granted(f, waiter).await;
    assert!(next.fence() > guard.fence());
    // Who it was taken by, or that it is gone: that depends on when it is asked.
    drive(f, guard.lost()).await;
}

// R2.4: what was inspected is broken, and nothing that came after it, were it of the same client.
pub(super) async fn breaking_compares(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let first = lock(&a).label("same").acquire().await.expect("to acquire");
    let stale = look(b.domain()).await.holder.expect("to be held");
    first.release().await.expect("to release");
    is_free(f, b.domain()).await;
    assert_eq!(b.domain().break_lock(NAME, &stale).await.expect("an answer"), Release::Gone);
    let second = lock(&a).label("same").acquire().await.expect("to acquire");
    match b.domain().break_lock(NAME, &stale).await.expect("an answer") {
        Release::Taken { by } => assert_eq!(by.label(), "same"),
        release => panic!("{release:?}"),
    }
    second.renew().await.expect("still ours, says the store");
    assert!(second.is_held());
    let holder = look(b.domain()).await.holder.expect("to be held");
    let other = b.domain().break_lock("another name", &holder).await.expect("an answer");
    assert_eq!(other, Release::Gone, "a holder is the holder of one name");
    assert!(second.is_held());
}

// B3, B1: the holder that is shown is the lease, whichever task's turn it is; and none of its fences is used again.
pub(super) async fn a_shared_lease_is_broken_as_one(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&b).await;
    for number in 1..=3 {
        let lock = lock(&a);
        tokio::spawn(async move { lock.run(async |_| ()).await.map(|_| ()) });
        eventually(f, async || a.domain().metrics().waiting == number).await;
    }
    let last = sit(f, &a, lock(&a)).await;
    guard.release().await.expect("to release");
    let last = granted(f, last).await;
    let holder = look(b.domain()).await.holder.expect("to be held");
    assert!(holder.fence <= last.fence());
    assert_eq!(b.domain().break_lock(NAME, &holder).await.expect("to break"), Release::Released);
    let next = lock(&b).take_over().await.expect("to take over");
    assert!(next.fence() > last.fence(), "a fence of the broken lease is used again");
    // A ttl too long to be renewed within this case: asked by hand, unless it was told already.
    if last.is_held() {
        last.renew().await.expect_err("it is lost");
    }
    assert!(!last.is_held());
}

// R4.2: a lease that was broken is told from one that was released, by whoever looks.
pub(super) async fn what_was_ended_by_force_is_shown(f: &impl Fixture) {
    let (a, b, c) = (f.client().await, f.client().await, f.client().await);
    let first = hold(&a).await;
    assert_eq!(look(c.domain()).await.broken, None);
    let holder = look(b.domain()).await.holder.expect("to be held");
    assert_eq!(b.domain().break_lock(NAME, &holder).await.expect("to break"), Release::Released);
    let status = look(c.domain()).await;
    assert_eq!((status.is_held(), status.broken), (false, Some(first.fence())));
    assert_eq!(c.domain().list("").await.expect("to list"), [], "held by nobody, and waited for by nobody");
    drop(first);
    let second = hold(&a).await;
    assert_ne!(look(c.domain()).await.broken, Some(second.fence()), "the holder is another");
    let third = lock(&b).take_over().await.expect("to take over");
    let status = look(c.domain()).await;
    assert_eq!(status.holder.expect("to be held").fence, third.fence());
    assert_eq!(status.broken, Some(second.fence()));
    let broken = status.broken;
    third.release().await.expect("to release");
    is_free(f, c.domain()).await;
    assert_eq!(look(c.domain()).await.broken, broken, "a release is no force");
}

// R3.7, R3.3: force leaves nothing behind either.
pub(super) async fn a_cancelled_take_over_is_given_back(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    for yields in 0..8 {
        let old = hold(&a).await;
        let taker = lock(&b).ttl(LONG);
        let impatience = async {
            for _ in 0..yields {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            () = impatience => {}
            taken = taker.take_over() => drop(taken.expect("to take over")),
        }
        drop(old);
        eventually(f, async || !look(a.domain()).await.is_held()).await;
    }
}
