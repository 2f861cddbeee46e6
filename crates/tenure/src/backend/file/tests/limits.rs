//! All kinds of names, many names, and many waiters.

use std::time::Instant;

use super::*;
use crate::ErrorKind;
use crate::backend::file::directory::Directory;
use crate::backend::file::torture::names_of_one_stripe;
use crate::backend::file::{FileDomain, session};

// R0.7
#[tokio::test]
async fn names_do_not_collide_and_do_not_leave_the_directory() {
    let scratch = Scratch::new();
    let (domain, other) = (open(&scratch).await, open(&scratch).await);
    let mut names = [
        "../../etc/passwd",
        "/etc/passwd",
        "..",
        ".",
        "a",
        "A",
        "å",
        "a\u{30a}",
        "Å",
        " ",
        "a ",
        "\n",
        "\u{1b}[31m",
    ]
    .map(str::to_owned)
    .to_vec();
    names.extend(
        ["\u{feff}", "\u{202e}txt", "💥", "stripe-00.1", "session-0", "%2e%2e", "%00", "a\\b"]
            .map(str::to_owned),
    );
    names.extend(["x".repeat(1_000), "x".repeat(999), "ü".repeat(500), format!("{}y", "x".repeat(999))]);
    let mut guards = Vec::new();
    for name in &names {
        guards.push(domain.lock(name).try_acquire().await.unwrap().ok().expect("a name of its own"));
    }
    for name in &names {
        assert!(is_busy(&other, name).await, "{name:?}");
    }
    let mut listed: Vec<String> =
        other.list("").await.unwrap().into_iter().map(|status| status.name).collect();
    listed.sort();
    names.sort();
    assert_eq!(listed, names);
    assert_eq!(domain.lock("x".repeat(1_001)).try_acquire().await.unwrap_err().kind(), ErrorKind::Invalid);
    let around: Vec<_> =
        std::fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(around.len(), 2, "{around:?}");
    let is_ours = |name: &String| ["stripe-", "session-", "pipe-"].iter().any(|kind| name.starts_with(kind));
    assert!(scratch.files().iter().all(is_ours), "{:?}", scratch.files());
}

#[tokio::test]
async fn thousands_of_names_are_held_at_once() {
    let scratch = Scratch::new();
    let (domain, other) = (open(&scratch).await, open(&scratch).await);
    let mut guards = Vec::new();
    let begin = Instant::now();
    for n in 0..3_000 {
        guards.push(hold(&domain, &format!("name {n}")).await);
    }
    println!("3,000 names were taken in {:?}", begin.elapsed());
    assert_eq!(other.list("name ").await.unwrap().len(), 3_000);
    for n in (0..3_000).step_by(97) {
        assert!(is_busy(&other, &format!("name {n}")).await);
    }
    drop(guards);
    assert_eq!(other.list("").await.unwrap(), []);
}

#[tokio::test]
async fn a_stripe_that_is_full_is_an_error_and_keeps_what_it_has() {
    let long = |n: usize| format!("{n:01000}");
    let stripe = index_of(&Name::new(&long(0)).unwrap());
    let mut names = (0..).map(long).filter(|name| index_of(&Name::new(name).unwrap()) == stripe);
    let clock = ClockIdentity::of_this_process().unwrap();
    let size = |names: &[String]| stripe_with(clock, names, 1).to_bytes().len();
    let each = size(&[long(0), long(1)]) - size(&[long(0)]);
    // Almost as many as fit.
    let held: Vec<String> = names.by_ref().take(copies::LONGEST / each - 5).collect();
    let state = stripe_with(clock, &held, 1);
    let scratch = Scratch::new();
    put_stripe(&scratch, &held[0], &state);

    let domain = open(&scratch).await;
    let mut guards = Vec::new();
    let error = loop {
        match domain.lock(names.next().unwrap()).ttl(HOUR).acquire().await {
            Ok(guard) => guards.push(guard),
            Err(error) => break error,
        }
    };
    println!("{} names of 1,000 bytes fit into a stripe: {error}", held.len() + guards.len());
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("too many names"), "{error}");
    let other = open(&scratch).await;
    for name in [&*held[0], &*held[held.len() - 1], guards[0].name(), guards[guards.len() - 1].name()] {
        assert!(is_busy(&other, name).await, "{name}");
    }
    // There is room again.
    let first = guards.remove(0).release().await.unwrap();
    assert_eq!(first, crate::Release::Released);
    hold(&domain, &names.next().unwrap()).await.release().await.unwrap();
}

// R1.1
#[test]
fn hundreds_wait_with_few_descriptors() {
    let scratch = Scratch::new();
    let mut holder = TestProcess::start(&scratch);
    let [name] = names_of_one_stripe();
    holder.acquire(&name);
    let limited = ["prlimit", "--nofile=256", "--"];
    let mut crowds: Vec<TestProcess> =
        (0..8).map(|_| TestProcess::start_as(&scratch, "", &limited)).collect();
    let begin = Instant::now();
    crowds.iter_mut().for_each(|crowd| crowd.tell(&format!("crowd 25 {name}")));
    crowds.iter().for_each(|crowd| drop(crowd.expect("waiting")));
    while !holder.ask(&format!("inspect {name}")).ends_with("waited for by 200") {
        assert!(begin.elapsed() < Duration::from_secs(20), "not all of them wait");
    }
    println!("200 waited after {:?}", begin.elapsed());
    let begin = Instant::now();
    holder.release(&name);
    crowds.iter().for_each(|crowd| drop(crowd.expect("all had it")));
    println!("and all had it {:?} after the release", begin.elapsed());
}

/// A client that removes dead sessions may take a pending session for a dead one, at any step. A record lock does not exclude its own process,
/// so this thread takes every session for dead. It sweeps once for each new session: a permanent sweep could remove every attempt.
#[tokio::test]
async fn a_session_that_is_removed_while_pending_is_begun_again() {
    let scratch = Scratch::new();
    drop(open(&scratch).await);
    let (sessions, begun) = std::sync::mpsc::sync_channel(0);
    let dir = Directory::open(Some(&scratch.store()), false).unwrap();
    let nobody = 0;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for () in begun {
                session::sweep(&dir, &dir.list().unwrap(), nobody);
            }
        });
        let opened = (0..3_000).map(|_| {
            sessions.send(()).unwrap();
            FileDomain::open(Some(scratch.store()), false, nowhere()).map(drop)
        });
        let failed: Vec<_> = opened.filter_map(Result::err).collect();
        drop(sessions);
        assert!(failed.is_empty(), "{failed:?}");
    });
}

/// A sink that receives nothing.
fn nowhere() -> std::sync::Weak<dyn crate::backend::Sink> {
    std::sync::Weak::<crate::engine::client::Client>::new()
}
