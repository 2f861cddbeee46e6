//! Turns on a store: the part of a worker that other programs' workers do as well.

use std::io::{BufRead, Write};
use std::time::Duration;

use tenure::Domain;

use crate::raw::Raw;
use crate::turns::{Turn, now};
use crate::workers::STALLED;

/// After its end is due, how long a worker may take to come to it.
const GRACE: Duration = Duration::from_secs(5);

/// Says that this worker is ready, and waits until all are; returns when to end.
pub(crate) fn ready() -> u64 {
    let mut line = String::new();
    let mut stdout = std::io::stdout();
    let is_told = stdout.write_all(b"r").and_then(|()| stdout.flush()).is_ok()
        && std::io::stdin().lock().read_line(&mut line).is_ok();
    let Some(until) = line.trim().parse().ok().filter(|_| is_told) else { std::process::exit(1) };
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_nanos(until - now().min(until)) + GRACE);
        std::process::exit(STALLED);
    });
    until
}

/// A client of its own with a single task, so that each turn goes through the store.
pub(crate) async fn tenure_turns(url: &str, hold: Duration) -> Vec<Turn> {
    let domain = Domain::open(url).await.expect("the domain opens");
    let until = ready();
    turns_of(&domain, hold, until).await
}

/// The same for many clients: this process stands for as many.
pub(crate) async fn crowd_turns(url: &str, clients: usize) -> Vec<Turn> {
    let mut domains = Vec::new();
    for _ in 0..clients {
        domains.push(Domain::open(url).await.expect("the domain opens"));
    }
    let until = ready();
    let tasks: Vec<_> = domains
        .into_iter()
        .map(|domain| tokio::spawn(async move { turns_of(&domain, Duration::ZERO, until).await }))
        .collect();
    let mut turns = Vec::new();
    for task in tasks {
        turns.extend(task.await.expect("a client that ends"));
    }
    turns
}

async fn turns_of(domain: &Domain, hold: Duration, until: u64) -> Vec<Turn> {
    let (lock, mut turns) = (domain.lock("bench"), Vec::new());
    while now() < until {
        let asked = now();
        let guard = lock.acquire().await.expect("the store answers");
        let acquired = now();
        let order = guard.fence().get();
        if !hold.is_zero() {
            tokio::time::sleep(hold).await;
        }
        let released = now();
        guard.release().await.expect("the store answers");
        turns.push(Turn { order, asked, acquired, released });
    }
    turns
}

/// One script call after the other, on a connection of its own: what a round trip takes.
pub(crate) async fn script_turns(url: &str) -> Vec<Turn> {
    let (raw, mut turns) = (Raw::connect(url).await, Vec::with_capacity(1 << 16));
    let until = ready();
    while now() < until {
        let asked = now();
        raw.call().await;
        let acquired = now();
        turns.push(Turn { order: asked, asked, acquired, released: acquired });
    }
    turns
}
