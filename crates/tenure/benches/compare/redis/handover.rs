//! Processes that take turns on one name, beside the round trip of one script call: less than that no hand-over can take.

use std::time::Duration;

use tenure_testkit::redis::RedisServer;

use crate::handover::{Crowd, add};
use crate::monitor::Monitor;
use crate::report::Report;
use crate::turns::Round;

const ROUNDS: usize = 5;
/// Rounds that are watched and not timed.
const WATCHED: usize = 3;

/// With nothing to do under the name.
pub(crate) fn empty(scenario: &str, report: &mut Report, processes: usize) {
    compare(scenario, report, processes, Duration::ZERO);
}

/// With 1 ms of work under the name.
pub(crate) fn held_1ms(scenario: &str, report: &mut Report) {
    compare(scenario, report, 8, Duration::from_millis(1));
}

fn compare(scenario: &str, report: &mut Report, processes: usize, hold: Duration) {
    let server = RedisServer::start();
    let place = server.url();
    let ours = Crowd { kind: "tenure", place: &place, processes, hold };
    let raw = Crowd { kind: "raw-script", place: &place, processes: 1, hold: Duration::ZERO };
    let round = || (raw.cycles(), ours.handovers().0);
    let (trips, rounds): (Vec<_>, Vec<_>) = (0..ROUNDS).map(|_| round()).unzip();
    let commands: Vec<f64> = (0..WATCHED).map(|_| commands_per_handover(&server, &ours)).collect();
    add(report, scenario, "tenure", &rounds);
    report.add(scenario, "tenure", "commands_per_handover", &commands);
    let metric = |of: fn(&Round) -> f64| trips.iter().map(of).collect::<Vec<_>>();
    report.add(scenario, "raw-script", "p50_us", &metric(|trip| trip.p50_us));
    report.add(scenario, "raw-script", "p99_us", &metric(|trip| trip.p99_us));
}

/// What clients sent in one round, for each hand-over in it: beats and renewals too.
fn commands_per_handover(server: &RedisServer, crowd: &Crowd) -> f64 {
    let monitor = Monitor::start(server);
    let (round, window) = crowd.handovers();
    let commands = monitor.count(server, window);
    assert!(commands > 0, "clients sent nothing, or MONITOR did not show it");
    commands as f64 / round.count as f64
}
