//! Fences grow with every grant on a name, however the grant before it ended.

use tenure::{Fence, HighWater};

use super::fixture::{Client, Doing, Fixture};
use super::time::{LONG, NAME, SHORT, drive, enqueue, granted, hold, is_free, lock, look};

#[track_caller]
fn grow(fences: &[Fence]) {
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
}

// B1
pub(super) async fn fences_grow_over_releases(f: &impl Fixture) {
    let clients = [f.client().await, f.client().await, f.client().await];
    let mut fences = Vec::new();
    for number in 0..90 {
        let guard = hold(&clients[number % 3]).await;
        fences.push(guard.fence());
        guard.release().await.expect("to release");
    }
    grow(&fences);
}

// B1: a name that nobody uses is forgotten, and its fence is not.
pub(super) async fn fences_grow_over_names_that_were_forgotten(f: &impl Fixture) {
    let client = f.client().await;
    let mut fences = Vec::new();
    for round in 0..4 {
        let guard = hold(&client).await;
        fences.push(guard.fence());
        drop(guard);
        is_free(f, client.domain()).await;
        for other in 0..50 {
            let other = client.domain().lock(format!("other/{round}/{other}"));
            other.acquire().await.expect("to acquire").release().await.expect("to release");
        }
    }
    grow(&fences);
}

// B1
pub(super) async fn fences_grow_over_hand_overs(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let mut guard = hold(&a).await;
    let mut fences = vec![guard.fence()];
    for client in [&b, &a, &b, &a] {
        let next = enqueue(f, client, "next").await;
        guard.release().await.expect("to release");
        guard = granted(f, next).await;
        fences.push(guard.fence());
    }
    grow(&fences);
}

// B1
pub(super) async fn fences_grow_over_an_expiry(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let lapsing = a.domain().lock(NAME).ttl(SHORT).no_renewal();
    let first = lapsing.acquire().await.expect("to acquire");
    let second = drive(f, lock(&b).acquire()).await.expect("to acquire");
    let fences = [first.fence(), second.fence()];
    drop((first, second));
    let third = drive(f, lock(&a).acquire()).await.expect("to acquire");
    grow(&[fences[0], fences[1], third.fence()]);
}

// B1
pub(super) async fn fences_grow_over_a_death(f: &impl Fixture) {
    let client = f.client().await;
    f.die(Doing::Holding, NAME, SHORT).await;
    let dead = look(client.domain()).await.holder;
    let next = drive(f, lock(&client).acquire()).await.expect("to acquire");
    if let Some(dead) = dead {
        grow(&[dead.fence, next.fence()]);
    }
}

// B1
pub(super) async fn fences_grow_over_force(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let first = hold(&a).await;
    let second = lock(&b).take_over().await.expect("to take over");
    let third = lock(&a).take_over().await.expect("to take over");
    let holder = look(b.domain()).await.holder.expect("to be held");
    assert_eq!(holder.fence, third.fence());
    b.domain().break_lock(NAME, &holder).await.expect("to break");
    let fourth = drive(f, lock(&b).acquire()).await.expect("to acquire");
    grow(&[first.fence(), second.fence(), third.fence(), fourth.fence()]);
}

// B1
pub(super) async fn fences_grow_over_tickets(f: &impl Fixture) {
    let clients = [f.client().await, f.client().await];
    let mut guard = hold(&clients[0]).await;
    let mut fences = vec![guard.fence()];
    for number in 0..6 {
        let ticket = guard.detach().await.expect("to detach");
        guard = ticket.adopt(clients[number % 2].domain()).await.expect("to adopt");
        fences.push(guard.fence());
    }
    guard.release().await.expect("to release");
    fences.push(hold(&clients[0]).await.fence());
    grow(&fences);
}

// B1: what it is all for.
pub(super) async fn a_resource_refuses_the_holder_before(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let lapsing = a.domain().lock(NAME).ttl(SHORT).no_renewal();
    let paused = lapsing.acquire().await.expect("to acquire");
    let next = drive(f, lock(&b).ttl(LONG).acquire()).await.expect("to acquire");
    let mut resource = HighWater::default();
    resource.admit(next.fence()).expect("the present holder");
    resource.admit(next.fence()).expect("as often as it likes");
    resource.admit(paused.fence()).expect_err("the one before, which woke up too late");
}
