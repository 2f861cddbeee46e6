//! The file domain in one process, beside the calls that it can't do without, and beside memory.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use tenure::{Domain, Lock};
use tokio::runtime::Runtime;

use crate::Scenario;
use crate::report::{Report, percentile};
use crate::scratch::Scratch;
use crate::tasks::{self, Contender, ROUND, ROUNDS};

pub(crate) const SCENARIOS: &[(&str, Scenario)] =
    &[("file/uncontended", uncontended), ("file/one-name-64-tasks", one_name_64_tasks)];

/// One task takes a lock and gives it back, beside one thread that locks a file, reads it, writes it and unlocks it.
fn uncontended(scenario: &str, report: &mut Report) {
    let (runtime, scratch) = (tasks::runtime(), Scratch::new());
    let domain = runtime.block_on(Domain::open(&scratch.url())).expect("a directory of our own opens");
    let (lock, raw) = (domain.lock("bench"), Raw::new(&scratch));
    let round = || (lock_round(&runtime, &lock), raw.round());
    round();
    let (ours, theirs): (Vec<_>, Vec<_>) = (0..ROUNDS).map(|_| round()).unzip();
    for (contender, rounds) in [("tenure", ours), ("raw", theirs)] {
        let (rates, medians): (Vec<_>, Vec<_>) =
            rounds.into_iter().map(|round| (round.pairs_per_s, round.p50_us)).unzip();
        report.add(scenario, contender, "pairs_per_s", &rates);
        report.add(scenario, contender, "p50_us", &medians);
    }
}

/// Many tasks of one process want one name all the time, in a directory and in memory.
fn one_name_64_tasks(scenario: &str, report: &mut Report) {
    let (runtime, scratch) = (tasks::runtime(), Scratch::new());
    let open = |url: &str| runtime.block_on(Domain::open(url)).expect("the domain opens").lock("bench");
    let (file, memory) = (open(&scratch.url()), open("memory:"));
    let (ours, theirs) = tasks::rounds(&runtime, &file, &memory, 64);
    tasks::add(report, scenario, "tenure", &ours);
    tasks::add(report, scenario, "memory", &theirs);
}

/// What one round of pairs measured.
struct Pairs {
    pairs_per_s: f64,
    p50_us: f64,
}

impl Pairs {
    /// From how long each pair took, and all of them together, in seconds.
    fn new(mut pairs: Vec<f64>, total: f64) -> Self {
        Pairs { pairs_per_s: pairs.len() as f64 / total, p50_us: percentile(&mut pairs, 0.5) * 1e6 }
    }
}

fn lock_round(runtime: &Runtime, lock: &Lock) -> Pairs {
    let lock = lock.clone();
    let task = runtime.spawn(async move {
        let (start, mut pairs) = (Instant::now(), Vec::new());
        while start.elapsed() < ROUND {
            let begin = Instant::now();
            lock.pair().await;
            pairs.push(begin.elapsed().as_secs_f64());
        }
        Pairs::new(pairs, start.elapsed().as_secs_f64())
    });
    runtime.block_on(task).expect("the task ends")
}

/// A file that is locked, read, written and unlocked.
struct Raw(File);

impl Raw {
    const LEN: usize = 256;

    fn new(scratch: &Scratch) -> Self {
        let options = File::options().read(true).write(true).create_new(true).clone();
        let file = options.open(scratch.path().join("raw")).expect("a file of our own");
        file.write_all_at(&[0; Self::LEN], 0).expect("there is space");
        Raw(file)
    }

    fn pair(&self) -> std::io::Result<()> {
        let mut bytes = [0; Self::LEN];
        self.0.lock()?;
        self.0.read_exact_at(&mut bytes, 0)?;
        bytes[0] = bytes[0].wrapping_add(1);
        self.0.write_all_at(&bytes, 0)?;
        self.0.unlock()
    }

    fn round(&self) -> Pairs {
        let (start, mut pairs) = (Instant::now(), Vec::new());
        while start.elapsed() < ROUND {
            let begin = Instant::now();
            self.pair().expect("the file can be used");
            pairs.push(begin.elapsed().as_secs_f64());
        }
        Pairs::new(pairs, start.elapsed().as_secs_f64())
    }
}
