//! From one process to the next: how long it takes from before the owner lets go until the next one has it.
//!
//! Each process writes down its turns; sorted by their order, each turn that follows one of another process is a hand-over. Turns that
//! follow one of the same process are not counted. That no turn begins before the one ahead of it has ended is checked on the way.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::{CWD, Mode};

use crate::Scenario;
use crate::report::{Report, max_min_ratio, percentile};
use crate::scratch::Scratch;
use crate::worker::{self, Turn, now};

pub(crate) const SCENARIOS: &[(&str, Scenario)] = &[
    ("file/handover-2", |scenario, report| handover(scenario, report, 2)),
    ("file/handover-8", |scenario, report| handover(scenario, report, 8)),
    ("file/handover-32", |scenario, report| handover(scenario, report, 32)),
];

const ROUNDS: usize = 5;
/// Not counted: the first turns find their files and pipes.
const WARM_UP: Duration = Duration::from_millis(150);
const ROUND: Duration = Duration::from_millis(600);

/// Processes on one name with nothing to do under it, beside two that pass a byte, and beside processes that are blocked in flock(2).
fn handover(scenario: &str, report: &mut Report, processes: usize) {
    let contenders = [("tenure", processes), ("fifo-pingpong", 2), ("flock", processes)];
    let mut rounds = contenders.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for ((kind, processes), rounds) in contenders.iter().zip(&mut rounds) {
            rounds.push(run(kind, *processes));
        }
    }
    for ((kind, _), rounds) in contenders.iter().zip(rounds) {
        let metric = |of: fn(&Round) -> f64| rounds.iter().map(of).collect::<Vec<_>>();
        report.add(scenario, kind, "p50_us", &metric(|round| round.p50_us));
        report.add(scenario, kind, "p99_us", &metric(|round| round.p99_us));
        report.add(scenario, kind, "handovers_per_s", &metric(|round| round.handovers_per_s));
        report.add(scenario, kind, "max_min_ratio", &metric(|round| round.max_min_ratio));
    }
}

/// What one round measured.
struct Round {
    p50_us: f64,
    p99_us: f64,
    handovers_per_s: f64,
    max_min_ratio: f64,
}

fn run(kind: &str, processes: usize) -> Round {
    let scratch = Scratch::new();
    for index in 0..2 {
        let fifo = scratch.path().join(format!("fifo-{index}"));
        rustix::fs::mkfifoat(CWD, fifo, Mode::RUSR | Mode::WUSR).expect("a pipe of our own");
    }
    let counter = File::create_new(scratch.path().join("flock")).expect("a file of our own");
    counter.set_len(16).expect("there is space");
    let mut workers = Workers(Vec::new());
    for index in 0..processes {
        workers.start(kind, &scratch, index);
    }
    let (start, end) = workers.measure();
    Round::new(&workers.turns(), start, end, processes)
}

/// Processes that end when this is dropped, whatever they are doing.
struct Workers(Vec<Child>);

impl Workers {
    fn start(&mut self, kind: &str, scratch: &Scratch, index: usize) {
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        command.args([worker::ARGUMENT, kind]).arg(scratch.path()).arg(index.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        self.0.push(command.spawn().expect("a process can be started"));
    }

    /// Lets all begin together; returns from when to when their turns count.
    fn measure(&mut self) -> (u64, u64) {
        for worker in &mut self.0 {
            let stdout = worker.stdout.as_mut().expect("it is piped");
            stdout.read_exact(&mut [0]).expect("the worker is ready");
        }
        let start = now() + WARM_UP.as_nanos() as u64;
        let end = start + ROUND.as_nanos() as u64;
        for worker in &mut self.0 {
            let stdin = worker.stdin.as_mut().expect("it is piped");
            writeln!(stdin, "{end}").expect("the worker listens");
        }
        (start, end)
    }

    /// All turns of all workers, each with its worker's number, in their order.
    fn turns(&mut self) -> Vec<(usize, Turn)> {
        let mut turns = Vec::new();
        for (index, worker) in self.0.iter_mut().enumerate() {
            let mut bytes = Vec::new();
            let stdout = worker.stdout.as_mut().expect("it is piped");
            stdout.read_to_end(&mut bytes).expect("the worker answers");
            let status = worker.wait().expect("the worker ends");
            assert!(status.success(), "worker {index} failed: {status}");
            turns.extend(bytes.chunks_exact(Turn::BYTES).map(|bytes| (index, Turn::from_bytes(bytes))));
        }
        turns.sort_by_key(|(_, turn)| turn.order);
        turns
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.0 {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

impl Round {
    fn new(turns: &[(usize, Turn)], start: u64, end: u64, processes: usize) -> Self {
        let (mut latencies, mut turns_of) = (Vec::new(), vec![0.0; processes]);
        for pair in turns.windows(2) {
            let [(from, before), (to, after)] = [pair[0], pair[1]];
            assert!(
                before.order < after.order && before.released <= after.acquired,
                "two had it at once: {pair:?}"
            );
            if from != to && (start..end).contains(&after.acquired) {
                latencies.push((after.acquired - before.released) as f64 / 1e3);
                turns_of[to] += 1.0;
            }
        }
        assert!(!latencies.is_empty(), "nothing was handed over in {ROUND:?}");
        Round {
            p50_us: percentile(&mut latencies, 0.5),
            p99_us: percentile(&mut latencies, 0.99),
            handovers_per_s: latencies.len() as f64 / ROUND.as_secs_f64(),
            max_min_ratio: max_min_ratio(&turns_of),
        }
    }
}
