//! What holds in every cell of the table: the call ends, nobody holds what another believes to hold, fences grow, the name can be had
//! by another within the life of a lease, and in the end nothing is left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure::Domain;
use tenure_testkit::patience::{PATIENCE, until};
use tenure_testkit::redis::{Fault, Proxy, RedisServer};
use tokio::sync::Semaphore;

use super::operation::{ALL, Cell, Operation, in_the_end};
use crate::redis::hygiene::traces::until_clean;

/// How the clients of a table are, and what they may do about a fault.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) ttl: Duration,
    pub(crate) timeout: Duration,
    /// An error that may pass is as good as an answer.
    pub(crate) may_fail: bool,
}

/// So many cells of a row at once: the machine must not be what is tried.
const AT_ONCE: usize = 5;
/// What a busy machine adds to the life of a lease.
const SLACK: Duration = Duration::from_secs(3);
/// The lease of whoever has no faults, at least.
const OTHERS_TTL: Duration = Duration::from_secs(4);

/// Every operation meets the fault, each on a name and a line of its own.
pub(crate) async fn row(fault: Fault, terms: Terms) {
    let server = Arc::new(RedisServer::start());
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let cells = ALL.map(|operation| {
        let (server, places) = (Arc::clone(&server), Arc::clone(&places));
        tokio::spawn(async move {
            let _place = places.acquire().await.expect("nobody closes it");
            let cell = cell(&server, operation, fault, terms);
            tokio::time::timeout(PATIENCE, cell).await.expect("a cell that ends");
        })
    });
    let mut failed = Vec::new();
    for (operation, cell) in ALL.iter().zip(cells) {
        if cell.await.is_err() {
            failed.push(operation);
        }
    }
    assert!(failed.is_empty(), "{fault:?} at {failed:?}");
    until_clean(&server).await;
}

async fn cell(server: &RedisServer, operation: Operation, fault: Fault, terms: Terms) {
    let proxy = Proxy::new(server);
    let Terms { ttl, timeout, may_fail } = terms;
    let options = format!("ttl={}ms&timeout={}ms", ttl.as_millis(), timeout.as_millis());
    let victim = in_the_end(|| Domain::open(format!("{}?{options}", proxy.url()))).await;
    let others_ttl = ttl.max(OTHERS_TTL);
    let others = format!("{}?ttl={}ms", server.url(), others_ttl.as_millis());
    let other = in_the_end(|| Domain::open(others.as_str())).await;
    let (name, watched) =
        (format!("{operation:?}"), if may_fail { ttl / 2 } else { Duration::from_millis(100) });
    let cell = Cell { victim: &victim, other: &other, proxy: &proxy, name: &name, watched, may_fail };

    let first = if operation.is_contended() { &other } else { &victim };
    let lock = first.lock(&name);
    let held = in_the_end(|| lock.acquire()).await;
    let mut fences = vec![held.fence()];
    let arm = || proxy.inject(fault, 1, move |words| operation.is(words));
    let (outcome, others) = cell.perform(operation, held, arm).await;
    until("the fault is met", || proxy.faults() == 1).await;
    for guard in outcome.guard().into_iter().chain(&others) {
        fences.extend((guard.fence() > fences[0]).then(|| guard.fence()));
    }
    drop(others);

    let contender = tokio::spawn({
        let lock = other.lock(&name);
        async move { in_the_end(|| lock.acquire()).await }
    });
    if let Some(guard) = outcome.guard() {
        let end = Instant::now() + watched;
        while Instant::now() < end {
            let is_taken = contender.is_finished();
            assert!(!(is_taken && guard.is_held()), "two hold the name");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let given_up = Instant::now();
    drop(outcome);
    let next = contender.await.expect("no panic");
    // Without an error nothing is left to expire; a ticket that nobody could use ends with the lease of whoever wrote it.
    let life = match operation {
        _ if !may_fail => Duration::ZERO,
        Operation::Adopt => others_ttl,
        _ => ttl,
    };
    let leaked_for = given_up.elapsed();
    assert!(leaked_for < life + SLACK, "leaked for {leaked_for:?}");
    fences.push(next.fence());
    drop(next);
    // The victim goes on as if nothing had been.
    let lock = victim.lock(&name);
    let again = in_the_end(|| lock.acquire()).await;
    fences.push(again.fence());
    drop(again);
    // While its line stands.
    let key = format!("tenure:{name}");
    until("it is given back", || server.command(&["EXISTS", &key]).int() == 0).await;
    assert!(fences.is_sorted_by(|a, b| a < b), "{operation:?}: {fences:?}");
}
