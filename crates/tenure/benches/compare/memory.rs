//! The memory domain beside tokio's own mutex.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tenure::{Domain, Lock};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Mutex;

use crate::report::Report;

type Scenario = fn(&str, &mut Report);

pub(crate) const SCENARIOS: &[(&str, Scenario)] =
    &[("memory/uncontended", uncontended), ("memory/one-name-64-tasks", one_name_64_tasks)];

const TASKS: usize = 64;
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(500);

/// A lock that can be taken and given back.
trait Contender: Clone + Send + Sync + 'static {
    fn pair(&self) -> impl Future<Output = ()> + Send;
}

impl Contender for Lock {
    async fn pair(&self) {
        let guard = self.acquire().await.expect("memory answers");
        guard.release().await.expect("memory answers");
    }
}

impl Contender for Arc<Mutex<()>> {
    async fn pair(&self) {
        drop(self.lock().await);
    }
}

/// What one round measured.
struct Round {
    pairs_per_s: f64,
    max_min_ratio: f64,
}

/// One task takes a lock and gives it back.
fn uncontended(scenario: &str, report: &mut Report) {
    let (ours, theirs) = rounds(1);
    report.add(
        scenario,
        "tenure",
        "pairs_per_s",
        &ours.iter().map(|round| round.pairs_per_s).collect::<Vec<_>>(),
    );
    report.add(
        scenario,
        "tokio-mutex",
        "pairs_per_s",
        &theirs.iter().map(|round| round.pairs_per_s).collect::<Vec<_>>(),
    );
}

/// Many tasks want one name all the time.
fn one_name_64_tasks(scenario: &str, report: &mut Report) {
    let (ours, theirs) = rounds(TASKS);
    for (contender, rounds) in [("tenure", ours), ("tokio-mutex", theirs)] {
        let metric = |of: fn(&Round) -> f64| rounds.iter().map(of).collect::<Vec<_>>();
        report.add(scenario, contender, "pairs_per_s", &metric(|round| round.pairs_per_s));
        report.add(scenario, contender, "max_min_ratio", &metric(|round| round.max_min_ratio));
    }
}

/// Rounds that take turns, after one of each to warm up.
fn rounds(tasks: usize) -> (Vec<Round>, Vec<Round>) {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let domain = runtime.block_on(Domain::open("memory:")).expect("memory opens");
    let (lock, mutex) = (domain.lock("bench"), Arc::new(Mutex::new(())));
    let round = || (run(&runtime, &lock, tasks), run(&runtime, &mutex, tasks));
    round();
    (0..ROUNDS).map(|_| round()).unzip()
}

fn run(runtime: &Runtime, contender: &impl Contender, tasks: usize) -> Round {
    let stop = Arc::new(AtomicBool::new(false));
    runtime.block_on(async {
        let start = Instant::now();
        let workers: Vec<_> = (0..tasks)
            .map(|_| {
                let (contender, stop) = (contender.clone(), Arc::clone(&stop));
                tokio::spawn(async move {
                    let mut pairs = 0u32;
                    while !stop.load(Ordering::Relaxed) {
                        contender.pair().await;
                        pairs += 1;
                    }
                    f64::from(pairs)
                })
            })
            .collect();
        tokio::time::sleep(ROUND).await;
        stop.store(true, Ordering::Relaxed);
        let mut turns = Vec::new();
        for worker in workers {
            turns.push(worker.await.expect("the worker ends"));
        }
        let (most, fewest) =
            turns.iter().fold((0f64, f64::MAX), |(most, fewest), &n| (most.max(n), fewest.min(n)));
        Round {
            pairs_per_s: turns.iter().sum::<f64>() / start.elapsed().as_secs_f64(),
            max_min_ratio: most / fewest.max(1.0),
        }
    })
}
