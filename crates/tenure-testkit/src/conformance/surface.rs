//! What people ask a lock: who, since when, how long still; and that it is answered without asking anyone.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use tenure::{Attempt, LossKind};

use super::fixture::{Client, Fixture};
use super::time::{LONG, NAME, SHORT, drive, enqueue, eventually, granted, hold, is_free, lock, look};

/// Clocks of a store and its clients may differ, but not by this much.
const ABOUT: Duration = Duration::from_secs(60);

fn is_about(a: SystemTime, b: SystemTime) -> bool {
    a.duration_since(b).or_else(|_| b.duration_since(a)).is_ok_and(|apart| apart < ABOUT)
}

// R4.2
pub(super) async fn is_it_locked_by_whom_and_for_how_long(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let status = look(b.domain()).await;
    assert!(!status.is_held() && status.holder.is_none() && status.waiters.is_empty());
    let guard = lock(&a).label("nightly").acquire().await.expect("to acquire");
    let waiter = enqueue(f, &b, "b").await;
    for domain in [a.domain(), b.domain()] {
        let status = look(domain).await;
        assert!(status.is_held());
        assert_eq!(status.name, NAME);
        assert_eq!(status.waiters.len(), 1);
        let holder = status.holder.expect("to be held");
        assert_eq!(holder.owner.label(), "nightly");
        assert_eq!(holder.owner.pid(), Some(std::process::id()));
        assert!(!holder.owner.is_foreign() && !holder.owner.user().is_empty());
        assert_eq!(holder.fence, guard.fence());
        assert!(is_about(holder.since, guard.since()), "{holder:?}");
        assert!(holder.remaining > LONG / 2 && holder.remaining <= LONG);
        assert!(format!("{holder} {holder:?}").contains("nightly"));
        assert!(!format!("{holder} {holder:?}").contains(guard.token()), "a token is a secret");
    }
    drop(guard);
    drop(granted(f, waiter).await);
}

// R4.2
pub(super) async fn those_who_wait_are_shown_with_their_place_and_time(f: &impl Fixture) {
    let (a, b, c) = (f.client().await, f.client().await, f.client().await);
    let guard = hold(&a).await;
    let first = enqueue(f, &b, "first").await;
    f.let_pass(SHORT).await;
    let second = enqueue(f, &c, "second").await;
    let status = look(b.domain()).await;
    let [one, two] = &status.waiters[..] else { panic!("{status:?}") };
    assert_eq!((one.owner.label(), two.owner.label()), ("first", "second"));
    // A store's clock may run a little slower than ours.
    assert!(one.waited > SHORT * 9 / 10 && one.waited > two.waited, "{status:?}");
    assert!(one.waited < ABOUT, "{status:?}");
    assert_eq!(look(a.domain()).await.position, None, "the holder does not wait");
    assert_eq!((status.position, look(c.domain()).await.position), (Some(1), Some(2)));
    guard.release().await.expect("to release");
    let guard = granted(f, first).await;
    let next = look(c.domain()).await;
    assert_eq!((next.position, look(b.domain()).await.position), (Some(1), None));
    assert!(next.waiters[0].waited >= two.waited, "a wait goes on when others have their turn: {next:?}");
    drop(guard);
    drop(granted(f, second).await);
}

// R2.3
pub(super) async fn busy_says_who_since_when_and_how_many_wait(f: &impl Fixture) {
    let (a, b, c) = (f.client().await, f.client().await, f.client().await);
    let guard = lock(&a).label("nightly").acquire().await.expect("to acquire");
    for waiting in 0..3 {
        let busy = match lock(&c).try_acquire().await.expect("no error") {
            Attempt::Acquired(_) => panic!("two hold it"),
            Attempt::Busy(busy) => busy,
        };
        assert_eq!(busy.waiters, Some(waiting));
        assert!(busy.to_string().contains("nightly"), "{busy}");
        let holder = busy.holder.expect("to be known");
        assert_eq!(holder.owner.label(), "nightly");
        assert_eq!(holder.owner.pid(), Some(std::process::id()));
        assert!(is_about(holder.since, guard.since()), "{holder:?}");
        assert!(holder.remaining > Duration::ZERO && holder.remaining <= LONG);
        if waiting < 2 {
            let client = if waiting == 0 { &b } else { &f.client().await };
            // Aborted with the case's runtime.
            enqueue(f, client, "b").await;
        }
    }
    // The same within the holder's own process.
    match lock(&a).try_acquire().await.expect("no error") {
        Attempt::Acquired(_) => panic!("two hold it"),
        Attempt::Busy(busy) => assert_eq!(busy.holder.expect("to be known").owner.label(), "nightly"),
    }
    drop(guard);
    // The waiters are granted it in turn, and drop it.
    is_free(f, a.domain()).await;
}

// R2.3, B1
pub(super) async fn busy_says_the_holders_fence(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&a).await;
    match lock(&b).try_acquire().await.expect("no error") {
        Attempt::Acquired(_) => panic!("two hold it"),
        Attempt::Busy(busy) => assert_eq!(busy.holder.expect("to be known").fence, guard.fence()),
    }
}

// R2.3: the store tells a waiter how many are ahead of it, and not how many are behind.
pub(super) async fn a_waiter_that_gives_up_claims_no_number_of_waiters(f: &impl Fixture) {
    let (a, b, c) = (f.client().await, f.client().await, f.client().await);
    let guard = hold(&a).await;
    // Aborted with the case's runtime.
    enqueue(f, &b, "b").await;
    // The holder's own client, and another one.
    for client in [&a, &c] {
        let (lock, limit) = (lock(client), Duration::from_millis(50));
        let attempt = loop {
            match tokio::join!(lock.try_acquire_for(limit), f.let_pass(limit * 4)).0 {
                // A busy machine may not answer in so short a time.
                Err(error) if error.is_transient() => {}
                attempt => break attempt.expect("no error"),
            }
        };
        match attempt {
            Attempt::Acquired(_) => panic!("two hold it"),
            Attempt::Busy(busy) => assert_eq!(busy.waiters, None, "{busy}"),
        }
    }
    drop(guard);
    // The waiter is granted it, and drops it.
    is_free(f, a.domain()).await;
}

// R4.3
pub(super) async fn a_guard_knows_its_facts(f: &impl Fixture) {
    let a = f.client().await;
    // Not renewed: what is verified, after a connection broke, would last longer again.
    let guard = lock(&a).no_renewal().acquire().await.expect("to acquire");
    assert_eq!(guard.name(), NAME);
    assert!(guard.token().len() >= 32);
    assert!(guard.is_held() && !guard.is_degraded());
    assert!(is_about(guard.since(), SystemTime::now()));
    let remaining = guard.remaining();
    assert!(remaining > LONG / 2 && remaining < LONG, "errs towards less than the store's {remaining:?}");
    assert!(guard.until() > guard.since());
    f.let_pass(SHORT).await;
    assert!(guard.remaining() < remaining, "time passes");
    assert!(!format!("{guard:?}").contains(guard.token()), "a token is a secret");
    assert!(format!("{guard:?}").contains(NAME));
}

// R4.3: no I/O is needed to know them.
pub(super) async fn a_guard_knows_its_facts_out_of_reach_too(f: &impl Fixture) {
    let a = f.client().await;
    let guard = a.domain().lock(NAME).ttl(2 * SHORT).acquire().await.expect("to acquire");
    a.cut_off().await;
    assert!(guard.is_held() && guard.remaining() > Duration::ZERO && guard.until() > guard.since());
    assert_eq!(*drive(f, guard.lost()).await.kind(), LossKind::Unreachable);
    assert!(!guard.is_held() && guard.remaining().is_zero());
    assert!(guard.fence().get() > 0 && guard.name() == NAME);
}

// R2.1: 128 bits that are new each time, and each of them random.
pub(super) async fn every_lease_has_a_fresh_token(f: &impl Fixture) {
    let clients = [f.client().await, f.client().await];
    let mut tokens = Vec::new();
    for number in 0..64 {
        let guard = hold(&clients[number % 2]).await;
        let (random, _) = guard.token().split_at(32);
        tokens.push(u128::from_str_radix(random, 16).expect("32 hexadecimal digits"));
        guard.release().await.expect("to release");
    }
    let (ever_set, always_set) =
        tokens.iter().fold((0, u128::MAX), |(ever, always), token| (ever | token, always & token));
    assert_eq!((ever_set, always_set), (u128::MAX, 0), "a bit that never changes");
    assert_eq!(tokens.iter().collect::<HashSet<_>>().len(), 64, "a token was used twice");
}

// R4.5
pub(super) async fn metrics_count(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let metrics = || a.domain().metrics();
    assert_eq!(metrics(), b.domain().metrics(), "all zero");
    let guard = hold(&a).await;
    assert_eq!((metrics().acquired, metrics().released, metrics().held), (1, 0, 1));
    guard.release().await.expect("to release");
    assert_eq!((metrics().acquired, metrics().released, metrics().held), (1, 1, 0));
    let other = hold(&b).await;
    assert!(!lock(&a).try_acquire().await.expect("no error").is_acquired());
    assert_eq!(metrics().busy, 1);
    let waiter = enqueue(f, &a, "a").await;
    // The store's queue may show it before it has heard so itself.
    eventually(f, async || metrics().waiting == 1).await;
    assert_eq!(metrics().acquired, 1);
    drop(other);
    drop(granted(f, waiter).await);
    assert_eq!((metrics().waiting, metrics().acquired, metrics().released), (0, 2, 2));
    is_free(f, b.domain()).await;
    let guard = a.domain().lock(NAME).ttl(SHORT).max_hold(2 * SHORT).acquire().await.expect("to acquire");
    drive(f, guard.lost()).await;
    eventually(f, async || metrics().lost == 1).await;
    assert!(metrics().renewals >= 1);
    assert_eq!(b.domain().metrics().lost, 0, "each client counts its own");
}

// R0.8
pub(super) async fn health_can_be_asked(f: &impl Fixture) {
    let client = f.client().await;
    let health = client.domain().health().await.expect("a store that answers");
    assert!(health.warnings.iter().all(|warning| !warning.is_empty()));
    if let Ok(statuses) = client.domain().list("").await {
        assert!(statuses.is_empty(), "asking takes no lock");
    }
}

// R4.2: looking changes nothing.
pub(super) async fn looking_changes_nothing(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let lock = a.domain().lock(NAME).ttl(2 * SHORT).no_renewal();
    let guard = lock.acquire().await.expect("to acquire");
    let before = look(b.domain()).await.holder.expect("to be held");
    for _ in 0..5 {
        f.let_pass(SHORT / 10).await;
        look(b.domain()).await;
    }
    let after = look(b.domain()).await.holder.expect("to be held");
    assert!(after.remaining < before.remaining);
    assert_eq!((after.fence, after.since, after.owner), (before.fence, before.since, before.owner));
    assert!(!b.domain().inspect("another name").await.expect("to look").is_held());
    assert!(guard.is_held());
}

// R1.6: a lock is a description, and can be used again and by many.
pub(super) async fn a_lock_can_be_used_again(f: &impl Fixture) {
    let client = f.client().await;
    let lock = lock(&client).label("again");
    let mut tokens = HashSet::new();
    for _ in 0..3 {
        let guard = lock.acquire().await.expect("to acquire");
        tokens.insert(guard.token().to_owned());
        guard.release().await.expect("to release");
    }
    assert_eq!(tokens.len(), 3, "a fresh lease each time");
    let (first, second) = (lock.clone(), lock.clone());
    let tasks =
        [first, second].map(|lock| tokio::spawn(async move { lock.run(async |_| ()).await.map(|_| ()) }));
    for task in tasks {
        drive(f, task).await.expect("no panic").expect("to run");
    }
}
