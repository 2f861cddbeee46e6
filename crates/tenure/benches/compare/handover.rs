//! From one process to the next: how long it takes from before the owner lets go until the next one has it.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{CWD, Mode};

use crate::Scenario;
use crate::report::Report;
use crate::scratch::{self, Scratch};
use crate::turns::{Round, Window};
use crate::worker;
use crate::workers::Workers;

pub(crate) const SCENARIOS: &[(&str, Scenario)] = &[
    ("file/handover-2", |scenario, report| in_directory(scenario, report, 2)),
    ("file/handover-8", |scenario, report| in_directory(scenario, report, 8)),
    ("file/handover-32", |scenario, report| in_directory(scenario, report, 32)),
    ("file/handover-1000", thousand),
];

const ROUNDS: usize = 5;
/// A thousand clients are in so many processes.
const PROCESSES: usize = 1_000 / worker::CROWD;
pub(crate) const ROUND: Duration = Duration::from_millis(600);

/// Processes on one name with nothing to do under it, beside two that pass a byte, and beside processes that are blocked in flock(2).
fn in_directory(scenario: &str, report: &mut Report, processes: usize) {
    let contenders = [("tenure", processes), ("fifo-pingpong", 2), ("flock", processes)];
    let mut rounds = contenders.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for ((kind, processes), rounds) in contenders.iter().zip(&mut rounds) {
            let scratch = Scratch::new();
            let place = if *kind == "tenure" { scratch.url() } else { scratch::text(scratch.path()) };
            prepare(scratch.path());
            let crowd = Crowd { kind, place: &place, processes: *processes, hold: Duration::ZERO };
            rounds.push(crowd.handovers().0);
        }
    }
    for ((kind, _), rounds) in contenders.iter().zip(rounds) {
        add(report, scenario, kind, &rounds);
    }
}

/// A thousand clients on one name, in eight processes, beside eight clients in as many processes.
fn thousand(scenario: &str, report: &mut Report) {
    /// Until all of them wait.
    const GATHER: Duration = Duration::from_secs(2);
    let contenders = [("tenure", "crowd", GATHER), ("tenure-8", "tenure", Duration::from_millis(200))];
    let mut rounds = contenders.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for ((_, kind, warm_up), rounds) in contenders.iter().zip(&mut rounds) {
            let scratch = Scratch::new();
            let place = scratch.url();
            let commands = (0..PROCESSES).map(|index| worker::command(kind, &place, index, Duration::ZERO));
            let mut workers = Workers::start(commands);
            let window = workers.measure_after(*warm_up, ROUND).expect("workers that get ready");
            let round = Round::handovers(&workers.turns().expect("workers that end"), window, PROCESSES);
            rounds.push(round.expect("something was handed over"));
        }
    }
    for ((contender, ..), rounds) in contenders.iter().zip(rounds) {
        add(report, scenario, contender, &rounds);
    }
}

/// What `fifo-pingpong` and `flock` use.
fn prepare(dir: &Path) {
    for index in 0..2 {
        let fifo = dir.join(format!("fifo-{index}"));
        rustix::fs::mkfifoat(CWD, fifo, Mode::RUSR | Mode::WUSR).expect("a pipe of our own");
    }
    let counter = File::create_new(dir.join("flock")).expect("a file of our own");
    counter.set_len(16).expect("there is space");
}

/// Processes of one kind that take turns.
pub(crate) struct Crowd<'a> {
    pub(crate) kind: &'a str,
    /// A directory, or the URL of a domain.
    pub(crate) place: &'a str,
    pub(crate) processes: usize,
    /// For how long each keeps what it got.
    pub(crate) hold: Duration,
}

impl Crowd<'_> {
    /// One round of them.
    pub(crate) fn handovers(&self) -> (Round, Window) {
        let (mut workers, window) = self.measure();
        let round = Round::handovers(&workers.turns().expect("workers that end"), window, self.processes);
        (round.expect("something was handed over"), window)
    }

    /// One round of a single process that needs nobody.
    pub(crate) fn cycles(&self) -> Round {
        let (mut workers, window) = self.measure();
        Round::cycles(&workers.turns().expect("workers that end"), window).expect("it had a turn")
    }

    fn measure(&self) -> (Workers, Window) {
        let commands =
            (0..self.processes).map(|index| worker::command(self.kind, self.place, index, self.hold));
        let mut workers = Workers::start(commands);
        let window = workers.measure(ROUND).expect("workers that get ready");
        (workers, window)
    }
}

/// Adds what hand-overs measured.
pub(crate) fn add(report: &mut Report, scenario: &str, contender: &str, rounds: &[Round]) {
    let metric = |of: fn(&Round) -> f64| rounds.iter().map(of).collect::<Vec<_>>();
    report.add(scenario, contender, "p50_us", &metric(|round| round.p50_us));
    report.add(scenario, contender, "p99_us", &metric(|round| round.p99_us));
    report.add(scenario, contender, "handovers_per_s", &metric(|round| round.per_s));
    report.add(scenario, contender, "max_min_ratio", &metric(|round| round.max_min_ratio));
    let longest_wait = rounds.iter().map(|round| round.longest_wait_ms).fold(0.0, f64::max);
    report.add(scenario, contender, "longest_wait_ms", &[longest_wait]);
}
