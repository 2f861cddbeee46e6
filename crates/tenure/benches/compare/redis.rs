//! The Redis domain on a server of the benchmark's own, beside the same client crate with the least that a lock can do.

pub(crate) mod handover;
pub(crate) mod held;
mod loss;
pub(crate) mod waiting;

use std::io::Write;
use std::time::Duration;

use tenure::Domain;
use tenure_testkit::redis::RedisServer;
use tokio::runtime::Runtime;

use crate::raw::{Raw, RawLock};
use crate::report::Report;
use crate::{Scenario, tasks};

pub(crate) const SCENARIOS: &[(&str, Scenario)] = &[
    ("redis/uncontended", uncontended),
    ("redis/own-names-64", |scenario, report| own_names(scenario, report, 64)),
    ("redis/own-names-512", |scenario, report| own_names(scenario, report, 512)),
    ("redis/one-name-64-tasks", one_name_64_tasks),
    ("redis/handover-2", |scenario, report| handover::empty(scenario, report, 2)),
    ("redis/handover-8", |scenario, report| handover::empty(scenario, report, 8)),
    ("redis/handover-32", |scenario, report| handover::empty(scenario, report, 32)),
    ("redis/handover-128", |scenario, report| handover::empty(scenario, report, 128)),
    ("redis/handover-8-held-1ms", handover::held_1ms),
    ("redis/dead-holder", loss::dead_holder),
    ("redis/loss-push", loss::loss_push),
    ("redis/held-100k", held::held_100k),
    ("redis/waiting-1k", |scenario, report| waiting::cost(scenario, report, 1_000)),
    ("redis/waiting-10k", |scenario, report| waiting::cost(scenario, report, 10_000)),
    ("redis/handover-among-1k", |scenario, report| waiting::handover(scenario, report, 1_000)),
    ("redis/dead-waiter-1k", |scenario, report| waiting::dead_waiter(scenario, report, 1_000)),
];

/// The key of a name.
fn key_of(name: &str) -> String {
    format!("tenure:{name}")
}

/// One task takes a lock and gives it back.
fn uncontended(scenario: &str, report: &mut Report) {
    let stage = Stage::new();
    tasks::uncontended(&stage.runtime, scenario, report, &stage.domain.lock("bench"), &stage.raw("raw"));
}

/// Tasks of one process, on one connection, each with a name of its own.
fn own_names(scenario: &str, report: &mut Report, names: usize) {
    let stage = Stage::new();
    let ours: Vec<_> = (0..names).map(|name| stage.domain.lock(format!("bench-{name}"))).collect();
    let theirs: Vec<_> = (0..names).map(|name| stage.raw(&format!("raw-{name}"))).collect();
    let (ours, theirs) = tasks::rounds(&stage.runtime, &ours, &theirs);
    for (contender, rounds) in [("tenure", ours), ("raw", theirs)] {
        let rates: Vec<f64> = rounds.iter().map(|round| round.pairs_per_s).collect();
        report.add(scenario, contender, "pairs_per_s", &rates);
    }
}

/// Many tasks of one process want one name all the time, beside one task that asks the server for each turn.
fn one_name_64_tasks(scenario: &str, report: &mut Report) {
    let stage = Stage::new();
    let ours = vec![stage.domain.lock("bench"); 64];
    let (ours, theirs) = tasks::rounds(&stage.runtime, &ours, &[stage.raw("raw")]);
    tasks::add(report, scenario, "tenure", &ours);
    let rates: Vec<f64> = theirs.iter().map(|round| round.pairs_per_s).collect();
    report.add(scenario, "raw", "pairs_per_s", &rates);
}

/// A server, and a client of each kind in this process.
struct Stage {
    domain: Domain,
    raw: Raw,
    runtime: Runtime,
    _server: RedisServer,
}

impl Stage {
    fn new() -> Self {
        let (server, runtime) = (RedisServer::start(), tasks::runtime());
        let domain = runtime.block_on(Domain::open(server.url())).expect("the domain opens");
        let raw = runtime.block_on(Raw::connect(&server.url()));
        Stage { domain, raw, runtime, _server: server }
    }

    fn raw(&self, key: &str) -> RawLock {
        RawLock::new(self.raw.clone(), key)
    }
}

/// The process that holds a name of this number until it is killed.
pub(crate) async fn hold(url: &str, number: u64) {
    let domain = Domain::open(url).await.expect("the domain opens");
    let guard = domain.lock(loss::name_of(number)).ttl(loss::TTL).acquire().await.expect("the store answers");
    let mut stdout = std::io::stdout();
    stdout.write_all(b"r").and_then(|()| stdout.flush()).expect("the parent listens");
    // Whoever started it kills it long before; without them it ends by itself.
    tokio::time::sleep(Duration::from_secs(30)).await;
    drop(guard);
}
