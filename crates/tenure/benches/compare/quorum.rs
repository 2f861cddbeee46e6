//! A majority of five servers, beside rslock on the same five: eight processes that take turns on one name.
//!
//! rslock is no dependency of this program: its worker is one of `peers/`, a workspace of its own, which is built for it. Both wait until
//! they have the name, with the settings that they come with. If rslock stalls, its row says so. `TENURE_BENCH_PEER=stalling` measures a peer
//! that always does.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tenure_testkit::redis::RedisServer;

use crate::Scenario;
use crate::handover::add;
use crate::monitor::Monitor;
use crate::report::{Report, target_dir};
use crate::turns::{Outcome, Round, Window, failures};
use crate::worker;
use crate::workers::{Failure, Workers};

pub(crate) const SCENARIOS: &[(&str, Scenario)] = &[("quorum/handover-8", handover_8)];

const SERVERS: usize = 5;
const PROCESSES: usize = 8;
const ROUNDS: usize = 3;
/// rslock waits up to 200 ms between two attempts: a round is some of that.
const ROUND: Duration = Duration::from_secs(2);

fn handover_8(scenario: &str, report: &mut Report) {
    let peers = build_peers();
    let servers: Vec<_> = (0..SERVERS).map(|_| RedisServer::start()).collect();
    servers.iter().for_each(wait_until_it_counts);
    let hosts: Vec<_> = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    let url = format!("redis+quorum://{}", hosts.join(","));
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let ours =
        || (0..PROCESSES).map(|index| worker::command("tenure", &url, index, Duration::ZERO)).collect();
    let peer = std::env::var("TENURE_BENCH_PEER").unwrap_or_else(|_| "rslock".to_owned());
    let theirs = || (0..PROCESSES).map(|_| peer_worker(&peers, &peer, &urls.join(","))).collect();
    // One that ends in the middle of an attempt leaves keys behind.
    let clean = || servers.iter().for_each(|server| drop(server.command(&["FLUSHALL"])));
    let round = || {
        clean();
        let ours = measure_ours(ours()).0;
        clean();
        (ours, measure(theirs()).map(|(round, _)| round))
    };
    let (ours_rounds, their_rounds): (Vec<_>, Vec<Outcome>) = (0..ROUNDS).map(|_| round()).unzip();
    clean();
    let monitors: Vec<_> = servers.iter().map(Monitor::start).collect();
    let (watched, window) = measure_ours(ours());
    let commands: usize =
        monitors.into_iter().zip(&servers).map(|(it, server)| it.count(server, window)).sum();
    add(report, scenario, "tenure", &ours_rounds);
    let each = commands as f64 / watched.count as f64;
    report.add(scenario, "tenure", "commands_per_handover", &[each]);
    let failures = failures(&their_rounds);
    if !failures.is_empty() {
        report.note(scenario, &peer, &failures);
    }
    let measured: Vec<Round> = their_rounds.into_iter().flatten().collect();
    if !measured.is_empty() {
        add(report, scenario, &peer, &measured);
    }
}

/// A server counts when it is older than the default ttl. One whose clock was moved would be slower.
fn wait_until_it_counts(server: &RedisServer) {
    let is_old = |info: String| {
        let uptime = info.lines().find_map(|line| line.strip_prefix("uptime_in_seconds:"));
        uptime.and_then(|uptime| uptime.trim().parse().ok()).is_some_and(|uptime: u64| uptime > 11)
    };
    while !is_old(server.command(&["INFO", "server"]).text()) {
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn measure_ours(commands: Vec<Command>) -> (Round, Window) {
    measure(commands).expect("our workers take turns")
}

/// A round, or why nothing was measured.
fn measure(commands: Vec<Command>) -> Result<(Round, Window), &'static str> {
    let mut workers = Workers::start(commands.into_iter());
    let window = workers.measure(ROUND).map_err(Failure::why)?;
    let turns = workers.turns().map_err(Failure::why)?;
    Round::contested(&turns, window, PROCESSES).map(|round| (round, window))
}

fn peer_worker(peers: &Path, peer: &str, urls: &str) -> Command {
    let mut command = Command::new(peers);
    command.args(["--worker", peer, urls, "0"]);
    command
}

/// The program whose worker it is.
fn build_peers() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../peers/Cargo.toml");
    let target = target_dir().join("bench-peers/rust");
    let status = Command::new("cargo")
        .args(["build", "--release", "--quiet", "--manifest-path"])
        .arg(&manifest)
        .arg("--target-dir")
        .arg(&target)
        .status()
        .expect("cargo runs");
    assert!(status.success(), "{} can't be built", manifest.display());
    target.join("release/tenure-peers")
}
