//! Names are any text, and are told apart by all of it.

use std::time::Duration;

use tenure::{Error, ErrorKind, Guard};

use super::fixture::{Client, Fixture};
use super::time::{LONG, NAME, enqueue, eventually, hold, is_free, lock, look};

/// Names that a careless store takes for each other, for a path, a pattern or a key of its own.
const CONFUSING: &[&str] = &[
    "a",
    "A",
    " a",
    "a ",
    "a\n",
    "a\0",
    "a\0b",
    "a/b",
    "a%2Fb",
    "a%2fb",
    "a%252Fb",
    "a\\b",
    "a//b",
    "a/",
    "/a",
    "/",
    ".",
    "..",
    "../a",
    "a/../a",
    "./a",
    "~",
    "*",
    "?",
    "a*",
    "[a]",
    "{a}",
    "%7Ba%7D",
    "{tenure:a}:fence",
    "a:fence",
    "a:queue",
    "a:beats",
    "a:broken",
    "tenure:a",
    "tenure",
    "a.lock",
    "a.tmp",
    "é",
    "e\u{301}",
    "É",
    "ａ",
    "名前",
    "🔒",
    "\u{200b}",
    "\u{202e}a",
    "'",
    "\"",
    "`",
    "$a",
    "-",
    "--",
    "null",
    "0",
    "00",
];

#[track_caller]
fn is_invalid<T>(answer: Result<T, Error>) {
    match answer {
        Ok(_) => panic!("it was accepted"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(!error.is_transient() && !error.to_string().is_empty());
        }
    }
}

// R0.7
pub(super) async fn names_of_any_characters_are_told_apart(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let mut guards: Vec<Guard> = Vec::new();
    for name in CONFUSING {
        let attempt = a.domain().lock(name).ttl(LONG).try_acquire().await.expect("a name like any other");
        guards.push(attempt.ok().unwrap_or_else(|| panic!("{name:?} was taken for another name")));
    }
    for (name, guard) in CONFUSING.iter().zip(&guards) {
        assert_eq!(guard.name(), *name);
        let status = b.domain().inspect(name).await.expect("to look");
        assert_eq!(status.name, *name);
        assert_eq!(status.holder.expect("to be held").fence, guard.fence(), "{name:?}");
        assert!(!b.domain().lock(name).try_acquire().await.expect("no error").is_acquired());
    }
    for (name, guard) in CONFUSING.iter().zip(guards) {
        guard.release().await.expect("to release");
        assert!(!b.domain().inspect(name).await.expect("to look").is_held(), "{name:?}");
    }
}

// R0.7
pub(super) async fn names_of_a_thousand_bytes_are_told_apart(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let names = ["x".repeat(1_000), format!("{}y", "x".repeat(999)), "x".repeat(999), "é".repeat(500)];
    let mut guards = Vec::new();
    for name in &names {
        let attempt = a.domain().lock(name).ttl(LONG).try_acquire().await.expect("not too long");
        guards.push(attempt.ok().expect("a name of its own"));
    }
    for name in &names {
        assert!(!b.domain().lock(name).try_acquire().await.expect("no error").is_acquired());
    }
}

// R4.4
pub(super) async fn a_bad_name_is_invalid(f: &impl Fixture) {
    let client = f.client().await;
    let domain = client.domain();
    let guard = hold(&client).await;
    let holder = look(domain).await.holder.expect("to be held");
    for name in ["", &"x".repeat(1_001), &"é".repeat(501)] {
        let lock = domain.lock(name);
        is_invalid(lock.acquire().await);
        is_invalid(lock.try_acquire().await);
        is_invalid(lock.try_acquire_for(LONG).await);
        is_invalid(lock.take_over().await);
        is_invalid(lock.run(async |_| ()).await);
        is_invalid(lock.try_run(async |_| ()).await);
        is_invalid(domain.inspect(name).await);
        is_invalid(domain.break_lock(name, &holder).await);
    }
    assert!(guard.is_held());
}

// R4.4, R2.6
pub(super) async fn a_bad_time_is_invalid(f: &impl Fixture) {
    let client = f.client().await;
    let hour = Duration::from_secs(60 * 60);
    for ttl in [Duration::ZERO, Duration::from_millis(99), 25 * hour, Duration::MAX] {
        let lock = lock(&client).ttl(ttl);
        is_invalid(lock.acquire().await);
        is_invalid(lock.try_acquire().await);
        is_invalid(lock.take_over().await);
    }
    is_invalid(lock(&client).max_hold(Duration::from_millis(99)).acquire().await);
    assert!(!look(client.domain()).await.is_held(), "refused, and taken");
    for ttl in [Duration::from_millis(100), 24 * hour] {
        let guard = loop {
            match lock(&client).ttl(ttl).acquire().await {
                // So short a ttl leaves a busy machine little time to answer.
                Err(error) if error.is_transient() => {}
                guard => break guard.expect("at the limit"),
            }
        };
        drop(guard);
        is_free(f, client.domain()).await;
    }
    let patient = lock(&client).try_acquire_for(Duration::MAX).await.expect("no limit at all");
    assert!(patient.is_acquired());
}

// R4.4, R4.2
pub(super) async fn a_label_is_any_text_up_to_its_limit(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    is_invalid(lock(&a).label("x".repeat(201)).acquire().await);
    is_invalid(lock(&a).label("é".repeat(101)).take_over().await);
    for label in ["", "x", "a:b c%d", "名前 🔒\n\0\u{1b}[31m", "null", &"é".repeat(100)] {
        let guard = lock(&a).label(label).acquire().await.expect("to acquire");
        assert_eq!(look(b.domain()).await.holder.expect("to be held").owner.label(), label);
        guard.release().await.expect("to release");
    }
}

// R4.2
pub(super) async fn names_in_use_are_listed(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let listed = async |prefix: &str| -> Vec<String> {
        let statuses = b.domain().list(prefix).await.expect("to list");
        statuses.into_iter().map(|status| status.name).collect()
    };
    assert!(listed("").await.is_empty());
    let names =
        ["orders/42", "orders/1", "orders", "orders/", "invoices/7", "Orders/1", "or*ers", "or[d]ers/é"];
    let mut guards = Vec::new();
    for name in names {
        guards.push(a.domain().lock(name).ttl(LONG).acquire().await.expect("to acquire"));
    }
    let mut all = names.map(str::to_owned);
    all.sort();
    assert_eq!(listed("").await, all);
    assert_eq!(listed("orders/").await, ["orders/", "orders/1", "orders/42"]);
    assert_eq!(listed("or*").await, ["or*ers"], "a prefix is no pattern");
    assert_eq!(listed("or[d]").await, ["or[d]ers/é"]);
    assert!(listed("x").await.is_empty());
    let waiter = enqueue(f, &b, "b").await;
    let statuses = b.domain().list(NAME).await.expect("to list");
    let [listed_status] = &statuses[..] else { panic!("{statuses:?}") };
    let seen = look(a.domain()).await;
    let fence = |status: &tenure::Status| status.holder.as_ref().map(|holder| holder.fence);
    assert_eq!((&listed_status.name, fence(listed_status)), (&seen.name, fence(&seen)));
    let labels = |status: &tenure::Status| -> Vec<String> {
        status.waiters.iter().map(|waiter| waiter.owner.label().to_owned()).collect()
    };
    assert_eq!((labels(listed_status), labels(&seen)), (vec!["b".to_owned()], vec!["b".to_owned()]));
    assert_eq!(
        (listed_status.position, seen.position),
        (Some(1), None),
        "the lister waits, the other does not"
    );
    waiter.abort();
    drop(guards);
    // It may have been granted before it was aborted: then its guard is here.
    drop(waiter.await);
    eventually(f, async || listed("").await.is_empty()).await;
}

// L2: a name that was used, waited for, given up and lost is gone.
pub(super) async fn nothing_is_listed_once_all_is_over(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    for round in 0..5 {
        for name in 0..20 {
            let name = format!("{round}/{name}");
            let guard = a.domain().lock(&name).ttl(LONG).acquire().await.expect("to acquire");
            assert!(!b.domain().lock(&name).try_acquire().await.expect("no error").is_acquired());
            if name.ends_with('7') {
                drop(guard);
            } else {
                guard.release().await.expect("to release");
            }
        }
    }
    eventually(f, async || a.domain().list("").await.expect("to list").is_empty()).await;
    let metrics = a.domain().metrics();
    assert_eq!((metrics.held, metrics.waiting), (0, 0));
}
