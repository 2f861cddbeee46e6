//! Other locks on Redis beside ours, and beside the least that a lock can do, in one run on one server.
//!
//! Each contender is a program of its own that takes turns (this one, started again, or a script of its language) and writes down when.
//! The settings are those that each comes with, but for giving up: all of them wait until they have it. Rounds take turns, as in
//! `make bench`, from which the measuring is taken. Arguments choose contenders.

#![expect(dead_code, reason = "`make bench` uses more of what both share")]

#[path = "../../crates/tenure/benches/compare/monitor.rs"]
mod monitor;
#[path = "../../crates/tenure/benches/compare/raw.rs"]
mod raw;
#[path = "../../crates/tenure/benches/compare/report.rs"]
mod report;
#[path = "../../crates/tenure/benches/compare/takers.rs"]
mod takers;
#[path = "../../crates/tenure/benches/compare/targets.rs"]
mod targets;
#[path = "../../crates/tenure/benches/compare/tasks.rs"]
mod tasks;
#[path = "../../crates/tenure/benches/compare/turns.rs"]
mod turns;
#[path = "../../crates/tenure/benches/compare/workers.rs"]
mod workers;

mod rust;
mod table;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use monitor::Monitor;
use report::Report;
use tenure_testkit::redis::RedisServer;
use turns::{Round, Window};
use workers::Workers;

/// The first argument of a worker.
const WORKER: &str = "--worker";

const CONTENDERS: &[&str] =
    &["tenure", "raw", "rslock", "distributed-lock", "redis-py", "redlock", "redis-semaphore"];
const PROCESSES: usize = 8;
const ROUNDS: usize = 3;
/// Those that poll do so every 10 to 300 ms: a round is some of that.
const ROUND: Duration = Duration::from_secs(2);

fn main() {
    let mut arguments = std::env::args().skip(1);
    if let Some(kind) = arguments.next().filter(|argument| argument == WORKER).and(arguments.next()) {
        return rust::work(&kind, arguments);
    }
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |kind: &&str| wanted.is_empty() || wanted.iter().any(|name| name == kind);
    let contenders: Vec<&str> = CONTENDERS.iter().copied().filter(is_wanted).collect();
    if contenders.is_empty() {
        eprintln!("no contender is called {}; there are {}", wanted.join(" or "), CONTENDERS.join(", "));
        std::process::exit(1);
    }
    let server = RedisServer::start();
    let mut report = Report::default();
    uncontended(&server, &mut report, &contenders);
    // Waiting is what raw has no way to do.
    let contenders: Vec<&str> = contenders.into_iter().filter(|kind| *kind != "raw").collect();
    handovers("peers/handover-8", &server, &mut report, &contenders, Duration::ZERO);
    handovers("peers/handover-8-held-1ms", &server, &mut report, &contenders, Duration::from_millis(1));
    table::print(&report);
    match report.write(&installed()) {
        Ok(path) => println!("\nwritten to {}", path.display()),
        Err(error) => {
            eprintln!("could not write the results: {error}");
            std::process::exit(1);
        }
    }
}

/// One process takes the name and gives it back.
fn uncontended(server: &RedisServer, report: &mut Report, contenders: &[&str]) {
    let round = |kind: &&str| {
        let (mut workers, window) = measure(server, kind, 1, Duration::ZERO);
        Round::cycles(&workers.turns(), window).expect("nobody else wants it")
    };
    for (kind, rounds) in take_turns(contenders, round) {
        let metric = |of: fn(&Round) -> f64| rounds.iter().map(of).collect::<Vec<_>>();
        report.add("peers/uncontended", kind, "pairs_per_s", &metric(|round| round.per_s));
        report.add("peers/uncontended", kind, "p50_us", &metric(|round| round.p50_us));
        report.add("peers/uncontended", kind, "p99_us", &metric(|round| round.p99_us));
    }
}

/// Processes that want one name all the time. What counts is that the name changes hands.
fn handovers(scenario: &str, server: &RedisServer, report: &mut Report, contenders: &[&str], hold: Duration) {
    let round = |kind: &&str| {
        let (mut workers, window) = measure(server, kind, PROCESSES, hold);
        Round::handovers(&workers.turns(), window, PROCESSES)
    };
    for (kind, rounds) in take_turns(contenders, round) {
        let monitor = Monitor::start(server);
        let (mut workers, window) = measure(server, kind, PROCESSES, hold);
        let watched = Round::handovers(&workers.turns(), window, PROCESSES);
        let commands =
            monitor.count(server, window) as f64 / watched.map_or(f64::NAN, |round| round.count as f64);

        let rates: Vec<f64> =
            rounds.iter().map(|round| round.as_ref().map_or(0.0, |round| round.per_s)).collect();
        report.add(scenario, kind, "handovers_per_s", &rates);
        let happened: Vec<&Round> = rounds.iter().flatten().collect();
        let metric = |of: fn(&Round) -> f64| happened.iter().map(|round| of(round)).collect::<Vec<_>>();
        if !happened.is_empty() {
            report.add(scenario, kind, "p50_us", &metric(|round| round.p50_us));
            report.add(scenario, kind, "p99_us", &metric(|round| round.p99_us));
            report.add(scenario, kind, "max_min_ratio", &metric(|round| round.max_min_ratio));
            let longest_wait = happened.iter().map(|round| round.longest_wait_ms).fold(0.0, f64::max);
            report.add(scenario, kind, "longest_wait_ms", &[longest_wait]);
        }
        if commands.is_finite() {
            report.add(scenario, kind, "commands_per_handover", &[commands]);
        }
    }
}

fn take_turns<'a, T>(contenders: &[&'a str], round: impl Fn(&&'a str) -> T) -> Vec<(&'a str, Vec<T>)> {
    let mut all: Vec<(&str, Vec<T>)> = contenders.iter().map(|kind| (*kind, Vec::new())).collect();
    for _ in 0..ROUNDS {
        for (kind, rounds) in &mut all {
            rounds.push(round(kind));
        }
    }
    all
}

fn measure(server: &RedisServer, kind: &str, processes: usize, hold: Duration) -> (Workers, Window) {
    let commands = (0..processes).map(|_| {
        let mut command = program(kind);
        command.args([&server.url(), &hold.as_micros().to_string()]);
        command
    });
    let mut workers = Workers::start(commands);
    let window = workers.measure(ROUND);
    (workers, window)
}

/// The program that takes turns with this lock. Its arguments are the server's URL and for how many µs it keeps what it got.
fn program(kind: &str) -> Command {
    let script = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("workers").join(name);
    let mut command;
    match kind {
        "redis-py" => {
            command = Command::new(installed().join("python/bin/python"));
            command.arg(script("redis_py.py"));
        }
        "redlock" | "redis-semaphore" => {
            command = Command::new("node");
            command.env("NODE_PATH", installed().join("node/node_modules"));
            command.arg(script("node.cjs")).arg(kind);
        }
        _ => {
            command = Command::new(std::env::current_exe().expect("this program has a path"));
            command.args([WORKER, kind]);
        }
    }
    command
}

/// Where the make target puts the locks of other languages.
fn installed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench-peers")
}
