//! How fast the lock is, beside the limit of what it is built on, in the same run.
//!
//! A machine's absolute figures say little, and on a busy one they change by the minute. So each scenario runs all its contenders in
//! short rounds that take turns, and reports the median round of each: ratios between them hold from machine to machine.
//!
//! `make bench` prints the table and writes `target/bench/results.json`; arguments choose scenarios by a part of their names.

mod memory;
mod report;

use report::Report;

fn main() {
    // Cargo adds `--bench`.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let mut report = Report::default();
    for (name, scenario) in memory::SCENARIOS {
        if wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str())) {
            scenario(name, &mut report);
        }
    }
    if report.is_empty() {
        let names: Vec<_> = memory::SCENARIOS.iter().map(|(name, _)| *name).collect();
        eprintln!("no scenario is called like {}; there are {}", wanted.join(" or "), names.join(", "));
        std::process::exit(1);
    }
    report.print();
    match report.write() {
        Ok(path) => println!("\nwritten to {}", path.display()),
        Err(error) => {
            eprintln!("could not write the results: {error}");
            std::process::exit(1);
        }
    }
}
