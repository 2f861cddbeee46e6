//! Other locks on Redis beside ours, and beside the least that a lock can do, in one run on one server.
//!
//! Each contender is a program of its own that takes turns (this one, started again, or a script of its language) and writes down when.
//! The settings are those that each comes with, but for giving up: all of them wait until they have it. Rounds take turns, as in
//! `make bench`, from which the measuring is taken. Arguments choose contenders. A contender that stalls or fails has a row that says so: it
//! says nothing about the others.

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
use table::Table;
use tenure_testkit::redis::RedisServer;
use turns::{NO_TURN, Outcome, Round, Turn, Window};
use workers::{Failure, Workers};

/// The first argument of a worker.
const WORKER: &str = "--worker";

const CONTENDERS: &[&str] =
    &["tenure", "raw", "rslock", "distributed-lock", "redis-py", "redlock", "redis-semaphore"];
const PROCESSES: usize = 8;
const ROUNDS: usize = 3;
/// Those that poll do so every 10 to 300 ms: a round is some of that.
const ROUND: Duration = Duration::from_secs(2);

/// A lock that nobody ever gets, to see what is said of one. It is measured only if it is named.
const STALLING: &str = "stalling";

fn main() {
    let mut arguments = std::env::args().skip(1);
    if let Some(kind) = arguments.next().filter(|argument| argument == WORKER).and(arguments.next()) {
        return rust::work(&kind, arguments);
    }
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |kind: &&str| match wanted.is_empty() {
        true => *kind != STALLING,
        false => wanted.iter().any(|name| name == kind),
    };
    let contenders: Vec<&str> = CONTENDERS.iter().copied().chain([STALLING]).filter(is_wanted).collect();
    if contenders.is_empty() {
        eprintln!("no contender is called {}; there are {}", wanted.join(" or "), CONTENDERS.join(", "));
        std::process::exit(1);
    }
    let server = RedisServer::start();
    let mut report = Report::default();
    let mut table = Table::default();
    uncontended(&server, &mut report, &mut table, &contenders);
    // Waiting is what raw has no way to do.
    let contenders: Vec<&str> = contenders.into_iter().filter(|kind| *kind != "raw").collect();
    handovers("peers/handover-8", &server, &mut report, &mut table, &contenders, Duration::ZERO);
    handovers(
        "peers/handover-8-held-1ms",
        &server,
        &mut report,
        &mut table,
        &contenders,
        Duration::from_millis(1),
    );
    table.print(&report);
    match report.write(&installed()) {
        Ok(path) => println!("\nwritten to {}", path.display()),
        Err(error) => {
            eprintln!("could not write the results: {error}");
            std::process::exit(1);
        }
    }
}

/// One process takes the name and gives it back.
fn uncontended(server: &RedisServer, report: &mut Report, table: &mut Table, contenders: &[&str]) {
    let round = |kind: &&str| {
        measure(server, kind, 1, Duration::ZERO)
            .and_then(|(turns, window)| Round::cycles(&turns, window).ok_or(NO_TURN))
    };
    for (kind, rounds) in take_turns(contenders, round) {
        let happened = table.note("peers/uncontended", kind, &rounds);
        if happened.is_empty() {
            continue;
        }
        let metric = |of: fn(&Round) -> f64| happened.iter().map(|round| of(round)).collect::<Vec<_>>();
        report.add("peers/uncontended", kind, "pairs_per_s", &metric(|round| round.per_s));
        report.add("peers/uncontended", kind, "p50_us", &metric(|round| round.p50_us));
        report.add("peers/uncontended", kind, "p99_us", &metric(|round| round.p99_us));
    }
}

/// Processes that want one name all the time. What counts is that the name changes hands.
fn handovers(
    scenario: &str,
    server: &RedisServer,
    report: &mut Report,
    table: &mut Table,
    contenders: &[&str],
    hold: Duration,
) {
    let round = |kind: &&str| contend(server, kind, hold).map(|(round, _)| round);
    for (kind, rounds) in take_turns(contenders, round) {
        let happened = table.note(scenario, kind, &rounds);
        if happened.is_empty() {
            continue;
        }
        let metric = |of: fn(&Round) -> f64| happened.iter().map(|round| of(round)).collect::<Vec<_>>();
        report.add(scenario, kind, "handovers_per_s", &metric(|round| round.per_s));
        report.add(scenario, kind, "p50_us", &metric(|round| round.p50_us));
        report.add(scenario, kind, "p99_us", &metric(|round| round.p99_us));
        report.add(scenario, kind, "max_min_ratio", &metric(|round| round.max_min_ratio));
        let longest_wait = happened.iter().map(|round| round.longest_wait_ms).fold(0.0, f64::max);
        report.add(scenario, kind, "longest_wait_ms", &[longest_wait]);
        let monitor = Monitor::start(server);
        if let Ok((watched, window)) = contend(server, kind, hold) {
            let commands = monitor.count(server, window) as f64 / watched.count as f64;
            report.add(scenario, kind, "commands_per_handover", &[commands]);
        }
    }
}

fn contend(server: &RedisServer, kind: &str, hold: Duration) -> Result<(Round, Window), &'static str> {
    let (turns, window) = measure(server, kind, PROCESSES, hold)?;
    Round::contested(&turns, window, PROCESSES).map(|round| (round, window))
}

fn take_turns<'a>(
    contenders: &[&'a str],
    round: impl Fn(&&'a str) -> Outcome,
) -> Vec<(&'a str, Vec<Outcome>)> {
    let mut all: Vec<(&str, Vec<Outcome>)> = contenders.iter().map(|kind| (*kind, Vec::new())).collect();
    for _ in 0..ROUNDS {
        for (kind, rounds) in &mut all {
            rounds.push(round(kind));
        }
    }
    all
}

/// The turns of the processes, or why there are none.
fn measure(
    server: &RedisServer,
    kind: &str,
    processes: usize,
    hold: Duration,
) -> Result<(Vec<(usize, Turn)>, Window), &'static str> {
    // A worker that gave up at the end of its round may have been granted the lock after that: nobody else gets it until it expires, which
    // may be in a later round.
    server.command(&["FLUSHALL"]);
    let commands = (0..processes).map(|_| {
        let mut command = program(kind);
        command.args([&server.url(), &hold.as_micros().to_string()]);
        command
    });
    let mut workers = Workers::start(commands);
    let measured = workers.measure(ROUND).and_then(|window| Ok((workers.turns()?, window)));
    measured.map_err(Failure::why)
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
