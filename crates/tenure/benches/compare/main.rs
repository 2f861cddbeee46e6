//! How fast the lock is, beside the limit of what it is built on, in the same run.
//!
//! A machine's absolute figures say little, and on a busy one they change by the minute. So each scenario runs all its contenders in
//! short rounds that take turns, and reports the median round of each: ratios between them hold from machine to machine.
//!
//! `make bench` prints the table and writes `target/bench/results.json`; arguments choose scenarios by a part of their names. What
//! several processes do together is done by this program, started again as a [`worker`].

mod cli;
mod file;
mod handover;
mod memory;
mod monitor;
mod quorum;
mod raw;
mod redis;
mod report;
mod scratch;
mod takers;
mod targets;
mod tasks;
mod turns;
mod worker;
mod workers;

use std::panic::{AssertUnwindSafe, catch_unwind};

use report::Report;

/// Measures, and adds what it measured to the report.
type Scenario = fn(&str, &mut Report);

fn main() {
    let mut arguments = std::env::args().skip(1);
    if let Some(kind) = arguments.next().filter(|argument| argument == worker::ARGUMENT).and(arguments.next())
    {
        return worker::work(&kind, arguments);
    }
    // Cargo adds `--bench`.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let scenarios = [
        memory::SCENARIOS,
        file::SCENARIOS,
        handover::SCENARIOS,
        cli::SCENARIOS,
        redis::SCENARIOS,
        quorum::SCENARIOS,
    ]
    .concat();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    if !scenarios.iter().any(|(name, _)| is_wanted(name)) {
        let names: Vec<_> = scenarios.iter().map(|(name, _)| *name).collect();
        eprintln!("no scenario is called like {}; there are {}", wanted.join(" or "), names.join(", "));
        std::process::exit(1);
    }
    let mut report = Report::default();
    let mut failed = Vec::new();
    for (name, scenario) in scenarios.iter().filter(|(name, _)| is_wanted(name)) {
        // What the others measured is not lost with it.
        if catch_unwind(AssertUnwindSafe(|| scenario(name, &mut report))).is_err() {
            failed.push(*name);
        }
    }
    report.print();
    match report.write(&report::target_dir().join("bench")) {
        Ok(path) => println!("\nwritten to {}", path.display()),
        Err(error) => {
            eprintln!("could not write the results: {error}");
            std::process::exit(1);
        }
    }
    if !failed.is_empty() {
        eprintln!("failed: {}", failed.join(", "));
        std::process::exit(1);
    }
}
