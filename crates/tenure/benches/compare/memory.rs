//! The memory domain beside tokio's own mutex.

use std::sync::Arc;

use tenure::Domain;
use tokio::sync::Mutex;

use crate::Scenario;
use crate::report::Report;
use crate::tasks::{self, Round};

pub(crate) const SCENARIOS: &[(&str, Scenario)] =
    &[("memory/uncontended", uncontended), ("memory/one-name-64-tasks", one_name_64_tasks)];

/// One task takes a lock and gives it back.
fn uncontended(scenario: &str, report: &mut Report) {
    let (ours, theirs) = rounds(1);
    for (contender, rounds) in [("tenure", ours), ("tokio-mutex", theirs)] {
        let rates: Vec<f64> = rounds.iter().map(|round| round.pairs_per_s).collect();
        report.add(scenario, contender, "pairs_per_s", &rates);
    }
}

/// Many tasks want one name all the time.
fn one_name_64_tasks(scenario: &str, report: &mut Report) {
    let (ours, theirs) = rounds(64);
    tasks::add(report, scenario, "tenure", &ours);
    tasks::add(report, scenario, "tokio-mutex", &theirs);
}

fn rounds(tasks: usize) -> (Vec<Round>, Vec<Round>) {
    let runtime = tasks::runtime();
    let domain = runtime.block_on(Domain::open("memory:")).expect("memory opens");
    let (lock, mutex) = (domain.lock("bench"), Arc::new(Mutex::new(())));
    tasks::rounds(&runtime, &vec![lock; tasks], &vec![mutex; tasks])
}
