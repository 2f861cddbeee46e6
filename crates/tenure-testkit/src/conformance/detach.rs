//! A lease that changes hands as a ticket: detached by one process, renewed or given back by any, adopted by another, and by one only.

use tenure::{ErrorKind, Loss, LossKind, Release, Ticket};

use super::fixture::{Client, Doing, Fixture};
use super::time::{
    LONG, NAME, SHORT, drive, enqueue, eventually, granted, hold, is_free, lock, look, queue, sit,
};

// B1, R2.1
pub(super) async fn a_ticket_is_adopted_under_a_higher_fence(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&a).await;
    let (fence, token, lease) = (guard.fence(), guard.token().to_owned(), guard.lease().clone());
    let ticket = guard.detach().await.expect("to detach");
    assert_eq!((ticket.name(), ticket.fence()), (NAME, fence));
    assert!(!lease.is_held(), "detached, and still held here");
    assert!(!lock(&a).try_acquire().await.expect("no error").is_acquired(), "nobody has it, and it is held");
    let ticket: Ticket = ticket.to_string().parse().expect("a ticket that can be printed");
    let guard = ticket.adopt(b.domain()).await.expect("to adopt");
    assert!(guard.is_held() && guard.fence() > fence);
    assert_ne!(guard.token(), token);
    assert_eq!(look(a.domain()).await.holder.expect("to be held").owner.label(), "holder");
    assert_eq!(guard.release().await.expect("to release"), Release::Released);
}

// B1: two would hold it otherwise.
pub(super) async fn of_two_adopters_one_wins(f: &impl Fixture) {
    let (a, b, c) = (f.client().await, f.client().await, f.client().await);
    let ticket = hold(&a).await.detach().await.expect("to detach");
    let adopt = |domain: &tenure::Domain| {
        let (domain, ticket) = (domain.clone(), ticket.clone());
        tokio::spawn(async move { ticket.adopt(&domain).await })
    };
    let adopters = [adopt(b.domain()), adopt(c.domain()), adopt(b.domain())];
    let mut guards = Vec::new();
    for adopter in adopters {
        match drive(f, adopter).await.expect("no panic") {
            Ok(guard) => guards.push(guard),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Lost),
        }
    }
    assert_eq!(guards.len(), 1, "a ticket is good for one");
    assert!(guards[0].is_held());
    assert_eq!(look(a.domain()).await.holder.expect("to be held").fence, guards[0].fence());
}

// R1.5: nobody renews it, so it ends.
pub(super) async fn a_detached_lease_ends_after_its_ttl(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = a.domain().lock(NAME).ttl(SHORT).acquire().await.expect("to acquire");
    let ticket = guard.detach().await.expect("to detach");
    let guard = drive(f, lock(&b).acquire()).await.expect("to acquire");
    assert!(guard.fence() > ticket.fence());
    assert_eq!(ticket.adopt(a.domain()).await.expect_err("it is over").kind(), ErrorKind::Lost);
    guard.release().await.expect("to release");
    is_free(f, b.domain()).await;
    assert_eq!(ticket.adopt(a.domain()).await.expect_err("it is over").kind(), ErrorKind::Lost);
}

// R2.2: it gets a full ttl to be adopted in.
pub(super) async fn a_detached_lease_lasts_a_full_ttl(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = a.domain().lock(NAME).ttl(4 * SHORT).no_renewal().acquire().await.expect("to acquire");
    f.let_pass(3 * SHORT).await;
    let _ticket = guard.detach().await.expect("to detach");
    let left = look(b.domain()).await.holder.expect("to be held").remaining;
    assert!(left > 2 * SHORT && left <= 4 * SHORT, "{left:?}");
    is_free(f, b.domain()).await;
}

// R1.5
pub(super) async fn an_adopted_lease_is_kept(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = a.domain().lock(NAME).ttl(SHORT).acquire().await.expect("to acquire");
    let ticket = guard.detach().await.expect("to detach");
    let guard = ticket.adopt(b.domain()).await.expect("to adopt");
    f.let_pass(SHORT * 5 / 2).await;
    assert!(guard.is_held());
    assert!(!lock(&a).try_acquire().await.expect("no error").is_acquired());
}

// R3.5: it was cut loose: neither the end of its domain nor that of its process ends it.
pub(super) async fn a_detached_lease_outlives_its_domain(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let ticket = hold(&a).await.detach().await.expect("to detach");
    drive(f, a.domain().close()).await;
    drop(a);
    assert!(!lock(&b).try_acquire().await.expect("no error").is_acquired());
    assert!(ticket.adopt(b.domain()).await.expect("to adopt").is_held());
}

// B1
pub(super) async fn a_detached_lease_outlives_its_process(f: &impl Fixture) {
    let b = f.client().await;
    let ticket = f.die(Doing::Detached, NAME, LONG).await.expect("a ticket");
    assert!(!lock(&b).try_acquire().await.expect("no error").is_acquired());
    let guard = ticket.adopt(b.domain()).await.expect("to adopt");
    assert!(guard.is_held() && guard.fence() > ticket.fence());
}

// R1.1: whoever waits, waits for whoever adopts.
pub(super) async fn those_who_wait_wait_for_the_adopter(f: &impl Fixture) {
    let (a, b, c) = (f.client().await, f.client().await, f.client().await);
    let guard = hold(&a).await;
    let inside = sit(f, &a, lock(&a).label("inside")).await;
    let outside = enqueue(f, &c, "outside").await;
    let ticket = guard.detach().await.expect("to detach");
    eventually(f, async || queue(b.domain()).await.len() == 2).await;
    let guard = ticket.adopt(b.domain()).await.expect("to adopt");
    assert!(!inside.is_finished() && !outside.is_finished());
    assert_eq!(queue(b.domain()).await.len(), 2);
    guard.release().await.expect("to release");
    granted(f, outside).await.release().await.expect("to release");
    drop(granted(f, inside).await);
}

// R2.5
pub(super) async fn a_detach_that_did_not_reach_the_store_is_tried_again(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&a).await;
    a.cut_off().await;
    let returned = drive(f, guard.detach()).await.expect_err("the store is out of reach");
    assert_eq!(returned.error.kind(), ErrorKind::Unavailable);
    assert!(returned.guard.is_held(), "nothing has happened");
    a.reconnect().await;
    let mut left = Some(returned.guard);
    let mut ticket = None;
    eventually(f, async || {
        match left.take().expect("a guard").detach().await {
            Ok(detached) => ticket = Some(detached),
            Err(returned) => left = Some(returned.guard),
        }
        ticket.is_some()
    })
    .await;
    let guard = ticket.expect("a ticket").adopt(b.domain()).await.expect("to adopt");
    assert!(guard.is_held());
}

// R2.7: a ticket of a lease that was given back is worth nothing.
pub(super) async fn a_ticket_is_good_once(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let ticket = hold(&a).await.detach().await.expect("to detach");
    let guard = ticket.adopt(b.domain()).await.expect("to adopt");
    let again = guard.detach().await.expect("to detach");
    assert_eq!(ticket.adopt(a.domain()).await.expect_err("it was used").kind(), ErrorKind::Lost);
    let guard = again.adopt(a.domain()).await.expect("to adopt");
    assert!(again.fence() > ticket.fence() && guard.fence() > again.fence());
    drop(guard);
    is_free(f, b.domain()).await;
    assert_eq!(again.adopt(a.domain()).await.expect_err("it was used").kind(), ErrorKind::Lost);
}

// R2.1: by its token; and never shorter than it was.
pub(super) async fn a_ticket_is_renewed(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = a.domain().lock(NAME).ttl(4 * SHORT).acquire().await.expect("to acquire");
    let ticket = guard.detach().await.expect("to detach");
    assert_eq!(ticket.ttl(), 4 * SHORT);
    for _ in 0..2 {
        f.let_pass(3 * SHORT).await;
        ticket.renew(b.domain()).await.expect("to renew");
        let holder = look(a.domain()).await.holder.expect("to be held");
        assert!(holder.remaining > 2 * SHORT && holder.remaining <= 4 * SHORT, "{holder:?}");
        assert_eq!(holder.fence, ticket.fence(), "under the same fence");
    }
    is_free(f, b.domain()).await;
    let error = ticket.renew(b.domain()).await.expect_err("it is over");
    assert_eq!(error.loss().map(Loss::kind), Some(&LossKind::Gone));
    assert!(error.to_string().contains("its lease has ended, or the ticket was used"), "{error}");
}

// B1: a renewed lease is still nobody's, so that the end of whoever renewed it does not end it.
pub(super) async fn a_renewed_ticket_outlives_its_renewer(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let ticket = hold(&a).await.detach().await.expect("to detach");
    ticket.renew(b.domain()).await.expect("to renew");
    drive(f, b.domain().close()).await;
    drop(b);
    assert!(!lock(&a).try_acquire().await.expect("no error").is_acquired());
    assert!(ticket.adopt(a.domain()).await.expect("to adopt").is_held());
}

/// Releases what a ticket does not hold any more. `None` where it was asked twice: then that is taken for the work of the first try.
async fn release_in_vain(f: &impl Fixture, client: &impl Client, ticket: &Ticket) -> Option<Release> {
    let said = ticket.release(client.domain()).await.expect("an answer");
    (!f.breaks_connections() || said != Release::Released).then_some(said)
}

// R2.4, R1.1
pub(super) async fn a_ticket_is_released(f: &impl Fixture) {
    let (a, b, c) = (f.client().await, f.client().await, f.client().await);
    let ticket = hold(&a).await.detach().await.expect("to detach");
    let waiter = enqueue(f, &c, "waiter").await;
    assert_eq!(ticket.release(b.domain()).await.expect("to release"), Release::Released);
    let guard = granted(f, waiter).await;
    assert!(guard.fence() > ticket.fence());
    match release_in_vain(f, &a, &ticket).await {
        Some(Release::Taken { by }) => assert_eq!(by.label(), "waiter"),
        other => assert!(other.is_none(), "{other:?}"),
    }
    assert!(guard.is_held(), "nothing was changed");
    assert_eq!(guard.release().await.expect("to release"), Release::Released);
    assert!(release_in_vain(f, &a, &ticket).await.is_none_or(|said| said == Release::Gone));
    is_free(f, a.domain()).await;
}

// R2.1, R2.4: whoever adopted it has another token, and is not concerned.
pub(super) async fn a_ticket_that_was_used_changes_nothing(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let ticket = hold(&a).await.detach().await.expect("to detach");
    let guard = ticket.adopt(b.domain()).await.expect("to adopt");
    for error in [
        ticket.renew(a.domain()).await.expect_err("it was used"),
        ticket.adopt(a.domain()).await.expect_err("it was used"),
    ] {
        assert!(matches!(error.loss().map(Loss::kind), Some(LossKind::Taken { .. })), "{error:?}");
        assert!(error.to_string().contains("the ticket was used, and the name is held by"), "{error}");
    }
    let said = release_in_vain(f, &a, &ticket).await;
    assert!(said.is_none_or(|said| matches!(said, Release::Taken { .. })));
    assert_eq!(look(a.domain()).await.holder.expect("to be held").fence, guard.fence());
    assert_eq!(guard.release().await.expect("to release"), Release::Released, "it was ours all the time");
}
