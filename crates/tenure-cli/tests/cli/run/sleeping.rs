//! A machine that sleeps (suspend): CLOCK_BOOTTIME goes on, CLOCK_MONOTONIC and the timers of a runtime stand still.
//!
//! The tests move CLOCK_BOOTTIME of both processes of `tenure`. The kernel's timers can't be moved: where `tenure` relies on one that goes on
//! while the machine sleeps, a signal wakes it in place of the timer.

use std::fs;
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use tenure_testkit::redis::Clock;

use crate::support::{Place, Running, eventually, state};

/// In µs.
const MINUTE: i64 = 60_000_000;
const HOUR: i64 = 60 * MINUTE;

/// A command that writes down that it was asked to end, and ends with nothing less than KILL.
const STUBBORN: &str = r#"
    trap "echo TERM >> got" TERM
    echo $$ > pid
    while :; do sleep .02; done"#;

fn start(place: &Place, clock: &Clock, options: &[&str]) -> Running {
    let mut command = place.script(options, STUBBORN);
    command.envs(clock.environment().iter().cloned());
    let running = place.spawn(command);
    place.pid("pid");
    running
}

#[track_caller]
fn assert_killed(place: &Place, running: Running) {
    let done = running.finish();
    assert_eq!((done.code, done.stdout.as_str()), (79, ""), "{done:?}");
    assert!(done.stderr.contains("the machine slept"), "{done:?}");
    assert!(done.stderr.contains("; the command is killed\n"), "{done:?}");
    assert!(place.is_lifeless());
    place.assert_nothing_left();
}

// B4
#[test]
fn a_lease_that_ended_in_its_sleep_leaves_the_command_no_time() {
    let place = Place::on_redis();
    let clock = Clock::new(&place.path("."));
    let running = start(&place, &clock, &["--ttl", "1h"]);
    clock.sleep(2 * HOUR);
    assert_killed(&place, running);
    assert_eq!(place.read("got"), "", "another may hold the name: there is no time to ask");
}

// B4
#[test]
fn a_lease_that_ended_in_its_sleep_is_seen_by_the_wrapper_too() {
    let place = Place::on_redis();
    let clock = Clock::new(&place.path("."));
    let running = start(&place, &clock, &["--ttl", "1h"]);
    kill_process(running.holder(), Signal::STOP).unwrap();
    eventually("the holder is stopped", || state(running.holder()) == Some('T'));
    clock.sleep(2 * HOUR);
    running.signal(Signal::WINCH);
    assert_killed(&place, running);
    assert_eq!(place.read("got"), "", "another may hold the name: there is no time to ask");
}

// B4
#[test]
fn a_sleep_counts_from_term_to_kill() {
    let place = Place::on_redis();
    let clock = Clock::new(&place.path("."));
    let running = start(&place, &clock, &["--ttl", "1h", "-k", "29m"]);
    // It is not renewed any more. TERM is due after half an hour.
    place.server().stop();
    clock.sleep(40 * MINUTE);
    eventually("it is asked to end", || place.read("got") == "TERM\n");
    clock.sleep(2 * HOUR);
    let done = running.finish();
    assert_eq!(done.code, 79, "{done:?}");
    assert!(done.stderr.contains("tenure: command did not end in time and is killed\n"), "{done:?}");
    assert!(place.is_lifeless());
    place.assert_nothing_left();
}

/// Here the command goes on.
fn assert_goes_on(place: &Place, asleep: i64) {
    let clock = Clock::new(&place.path("."));
    let script = "echo $$ > pid; while ! [ -e go ]; do sleep .02; done";
    let mut command = place.script(&["--ttl", "1h"], script);
    command.envs(clock.environment().iter().cloned());
    let running = place.spawn(command);
    place.pid("pid");
    clock.sleep(asleep);
    running.signal(Signal::WINCH);
    // Longer than each of the two processes takes to look at the clock.
    std::thread::sleep(Duration::from_secs(1));
    fs::write(place.path("go"), "").unwrap();
    let done = running.finish();
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
}

// B4
#[test]
fn a_lease_that_outlasts_the_sleep_is_renewed() {
    assert_goes_on(&Place::on_redis(), 20 * MINUTE);
}

// B4
#[test]
fn on_one_machine_everyone_sleeps_and_the_lease_outlasts_it() {
    assert_goes_on(&Place::new(), 2 * HOUR);
}
