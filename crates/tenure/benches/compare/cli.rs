//! What `tenure run` adds to a command, beside flock(1): whole processes, from their start to their end.

use std::io::Error;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::Scenario;
use crate::report::{Report, percentile, target_dir};
use crate::scratch::Scratch;

pub(crate) const SCENARIOS: &[(&str, Scenario)] = &[("cli/startup", startup)];

const ROUNDS: usize = 7;
const RUNS: usize = 40;

fn startup(scenario: &str, report: &mut Report) {
    let scratch = Scratch::new();
    let program = match build() {
        Ok(tenure) => tenure,
        Err(error) => return eprintln!("{scenario} is left out: tenure could not be built: {error}"),
    };
    let ours = || {
        let mut command = Command::new(&program);
        command.args(["run", "--url", &scratch.url(), "bench", "--", "true"]);
        command
    };
    let theirs = || {
        let mut command = Command::new("flock");
        command.arg(scratch.path().join("flock")).arg("true");
        command
    };
    // One of each to warm up, which shows whether they can be run at all.
    for (name, command) in [("tenure run", &ours as &dyn Fn() -> Command), ("flock", &theirs)] {
        if let Err(error) = time(command()) {
            return eprintln!("{scenario} is left out: {name} failed: {error}");
        }
    }
    let round = |command: &dyn Fn() -> Command| {
        let mut times: Vec<f64> = (0..RUNS).map(|_| time(command()).expect("it ran before")).collect();
        percentile(&mut times, 0.5)
    };
    let (ours, theirs): (Vec<_>, Vec<_>) = (0..ROUNDS).map(|_| (round(&ours), round(&theirs))).unzip();
    report.add(scenario, "tenure", "p50_ms", &ours);
    report.add(scenario, "flock", "p50_ms", &theirs);
}

/// Builds the command as it is released.
fn build() -> Result<PathBuf, Error> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.current_dir(env!("CARGO_MANIFEST_DIR")).env("CARGO_TARGET_DIR", target_dir());
    build.args(["build", "--release", "--locked", "--quiet", "--package", "tenure-cli"]);
    let status = build.status()?;
    if !status.success() {
        return Err(Error::other(format!("cargo: {status}")));
    }
    Ok(target_dir().join("release/tenure"))
}

/// How long a command takes, in ms.
fn time(mut command: Command) -> Result<f64, Error> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let status = command.status()?;
    let elapsed = start.elapsed().as_secs_f64() * 1e3;
    if status.success() { Ok(elapsed) } else { Err(Error::other(status.to_string())) }
}
