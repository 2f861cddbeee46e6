//! Tasks of one process that take a lock and give it back.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tenure::Lock;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Mutex;

use crate::report::{Report, max_min_ratio, percentile};

pub(crate) const ROUNDS: usize = 7;
pub(crate) const ROUND: Duration = Duration::from_millis(500);

/// A lock that can be taken and given back.
pub(crate) trait Contender: Clone + Send + Sync + 'static {
    fn pair(&self) -> impl Future<Output = ()> + Send;
}

impl Contender for Lock {
    async fn pair(&self) {
        let guard = self.acquire().await.expect("the store answers");
        guard.release().await.expect("the store answers");
    }
}

impl Contender for Arc<Mutex<()>> {
    async fn pair(&self) {
        drop(self.lock().await);
    }
}

/// What one round measured.
pub(crate) struct Round {
    pub(crate) pairs_per_s: f64,
    pub(crate) max_min_ratio: f64,
}

pub(crate) fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Rounds of both that take turns, after one of each to warm up; with a task for each of the locks.
pub(crate) fn rounds(
    runtime: &Runtime,
    ours: &[impl Contender],
    theirs: &[impl Contender],
) -> (Vec<Round>, Vec<Round>) {
    let round = || (run(runtime, ours), run(runtime, theirs));
    round();
    (0..ROUNDS).map(|_| round()).unzip()
}

/// Rounds of one task on each that take turns, and adds what they measured. Each pair is timed.
pub(crate) fn uncontended(
    runtime: &Runtime,
    scenario: &str,
    report: &mut Report,
    ours: &impl Contender,
    raw: &impl Contender,
) {
    let round = || (time(runtime, ours), time(runtime, raw));
    round();
    let (ours, raw): (Vec<_>, Vec<_>) = (0..ROUNDS).map(|_| round()).unzip();
    for (contender, rounds) in [("tenure", ours), ("raw", raw)] {
        let metric = |of: fn(&Pairs) -> f64| rounds.iter().map(of).collect::<Vec<_>>();
        report.add(scenario, contender, "pairs_per_s", &metric(|pairs| pairs.per_s));
        report.add(scenario, contender, "p50_us", &metric(|pairs| pairs.p50_us));
        report.add(scenario, contender, "p99_us", &metric(|pairs| pairs.p99_us));
    }
}

/// What one round of pairs measured.
struct Pairs {
    per_s: f64,
    p50_us: f64,
    p99_us: f64,
}

fn time(runtime: &Runtime, contender: &impl Contender) -> Pairs {
    let contender = contender.clone();
    let task = runtime.spawn(async move {
        let (start, mut pairs) = (Instant::now(), Vec::new());
        while start.elapsed() < ROUND {
            let begin = Instant::now();
            contender.pair().await;
            pairs.push(begin.elapsed().as_secs_f64() * 1e6);
        }
        Pairs {
            per_s: pairs.len() as f64 / start.elapsed().as_secs_f64(),
            p50_us: percentile(&mut pairs, 0.5),
            p99_us: percentile(&mut pairs, 0.99),
        }
    });
    runtime.block_on(task).expect("the task ends")
}

/// Adds what many tasks on one name measured.
pub(crate) fn add(report: &mut Report, scenario: &str, contender: &str, rounds: &[Round]) {
    let metric = |of: fn(&Round) -> f64| rounds.iter().map(of).collect::<Vec<_>>();
    report.add(scenario, contender, "pairs_per_s", &metric(|round| round.pairs_per_s));
    report.add(scenario, contender, "max_min_ratio", &metric(|round| round.max_min_ratio));
}

fn run(runtime: &Runtime, contenders: &[impl Contender]) -> Round {
    let stop = Arc::new(AtomicBool::new(false));
    runtime.block_on(async {
        let start = Instant::now();
        let workers: Vec<_> = contenders
            .iter()
            .map(|contender| {
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
        Round {
            pairs_per_s: turns.iter().sum::<f64>() / start.elapsed().as_secs_f64(),
            max_min_ratio: max_min_ratio(&turns),
        }
    })
}
