//! A fault at the first or the second script of a verb: the name is free again in both stores, long before its lease would have ended.
//!
//! Every step and every order of events, on a clock that tests own: `gate_tests/layered.rs`. Here are a real server and a real network.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tenure::{Attempt, Degrade, Domain};
use tenure_testkit::redis::{Fault, Proxy, named};

use crate::layered::scene::Scene;

/// What is free before this is over was given back, and did not expire.
const TTL: Duration = Duration::from_secs(60);
/// More than a busy machine needs for what takes a second.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many cells are at work at the same time.
const AT_ONCE: usize = 12;

const FAULTS: [Fault; 8] = [
    Fault::SwallowThenReset,
    Fault::Silence,
    Fault::Drop,
    Fault::ResetBefore,
    Fault::ResetAfter,
    Fault::Duplicate,
    Fault::DelayCommand(Duration::from_millis(400)),
    Fault::DelayReply(Duration::from_millis(400)),
];

#[derive(Clone, Copy, Debug)]
enum Verb {
    Acquire,
    TryAcquire,
    /// Dropped while the fault is under way.
    Cancel,
    TakeOver,
    Release,
    Adopt,
}

const VERBS: [Verb; 6] =
    [Verb::Acquire, Verb::TryAcquire, Verb::Cancel, Verb::TakeOver, Verb::Release, Verb::Adopt];

/// Does it; whatever comes of it is over when this returns. Says whether the fault was met.
async fn meet(domain: &Domain, proxy: &Proxy, name: &str, verb: Verb, fault: Fault, after: usize) -> bool {
    let lock = || domain.lock(name);
    let (mut held, mut ticket) = (None, None);
    match verb {
        Verb::Release => held = Some(lock().acquire().await.expect("a free name")),
        Verb::Adopt => {
            let guard = lock().acquire().await.expect("a free name");
            ticket = Some(guard.detach().await.expect("to detach"));
        }
        Verb::Acquire | Verb::TryAcquire | Verb::Cancel | Verb::TakeOver => {}
    }
    // The first command, or the one after it: what comes second where two are needed.
    let passed = AtomicUsize::new(0);
    let is_script = named("EVALSHA");
    proxy.inject(fault, 1, move |words| is_script(words) && passed.fetch_add(1, Ordering::SeqCst) >= after);
    match verb {
        Verb::Acquire => drop(lock().acquire().await),
        Verb::TryAcquire => drop(lock().try_acquire().await),
        Verb::Cancel => drop(tokio::time::timeout(Duration::from_millis(30), lock().acquire()).await),
        Verb::TakeOver => drop(lock().take_over().await),
        Verb::Release => {
            let guard = held.expect("it was acquired");
            drop(guard.release().await);
        }
        Verb::Adopt => {
            let ticket = ticket.expect("it was detached");
            if ticket.adopt(domain).await.is_err() {
                // Nobody but its owner may end it.
                proxy.clear();
                while ticket.release(domain).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
    }
    proxy.clear();
    proxy.faults() > 0
}

/// Another process of the machine has the name in both stores, soon, and gives it back.
async fn is_free_again(other: &Domain, name: &str, what: &str) {
    let give_up = Instant::now() + PATIENCE;
    loop {
        match other.lock(name).try_acquire().await {
            Ok(Attempt::Acquired(guard)) if !guard.is_degraded() => {
                drop(guard.release().await);
                return;
            }
            _ => {}
        }
        assert!(Instant::now() < give_up, "{what}: something is left behind");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn every_fault_at_every_verb(degrade: Degrade) {
    let scene = Arc::new(Scene::new());
    let other = scene.peer(Degrade::Never, TTL).await;
    let (mut cells, room) = (Vec::new(), Arc::new(tokio::sync::Semaphore::new(AT_ONCE)));
    for fault in FAULTS {
        for (verb, after) in VERBS.into_iter().flat_map(|verb| [(verb, 0), (verb, 1)]) {
            let (scene, other) = (Arc::clone(&scene), other.domain.clone());
            let room = Arc::clone(&room);
            cells.push(tokio::spawn(async move {
                let _room = room.acquire_owned().await.expect("it is not closed");
                let what = format!("{degrade:?}, {verb:?}, {fault:?}, command {after}");
                let name = what.as_str();
                let proxy = Proxy::new(&scene.server);
                // A silence is noticed soon, although a lease lasts long.
                let outer = format!("{}?ttl={}s&timeout=2s", proxy.url(), TTL.as_secs());
                let domain = Domain::layered(outer, scene.machine.url(), degrade).await.expect("to open");
                let is_met = meet(&domain, &proxy, name, verb, fault, after).await;
                assert!(is_met || after > 0 || matches!(verb, Verb::Cancel), "{what}: no fault was met");
                is_free_again(&other, name, &what).await;
                // Nothing of it comes back either.
                is_free_again(&domain, name, &what).await;
                usize::from(is_met)
            }));
        }
    }
    let (count, mut met) = (cells.len(), 0);
    for cell in cells {
        met += cell.await.expect("no panic");
    }
    println!(
        "{count} cells, {met} of which met their fault; the others sent one script, or were dropped before"
    );
    let give_up = Instant::now() + PATIENCE;
    while !other.domain.list("").await.expect("to list").is_empty() {
        assert!(Instant::now() < give_up, "something is left behind");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

// R2.5, I5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_behind_without_leave_to_degrade() {
    every_fault_at_every_verb(Degrade::Never).await;
}

// R2.5, I5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_behind_with_leave_to_degrade() {
    every_fault_at_every_verb(Degrade::Allow).await;
}
