//! `--min-hold` and `--max-hold`: how long the name is kept, and how long the command may run.

use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use super::both::on_both_stores;
use crate::support::{Place, Running, eventually, lives, state};

on_both_stores!(
    a_name_is_kept_for_the_least_time_and_given_back,
    a_signal_ends_the_keeping,
    what_was_told_to_end_is_not_kept,
    a_lease_that_is_broken_while_it_is_kept_leaves_the_code,
    the_holder_killed_while_it_keeps_the_code_stays,
    a_command_that_runs_too_long_is_stopped_with_all_of_it,
    the_name_is_kept_until_a_stubborn_command_is_gone,
    a_loss_goes_before_the_limit,
);

/// A command that ends with nothing less than KILL, and neither does its child in a session of its own.
const STUBBORN: &str = r#"
    trap "echo TERM >> got" TERM
    (setsid sh -c 'trap "" TERM; echo $$ > daemon; while :; do sleep .01; done' &)
    while ! [ -s daemon ]; do sleep .01; done
    echo $$ > pid
    while :; do sleep .01; done"#;

/// A name that is kept after its command ended with 3.
fn kept(place: &Place) -> Running {
    let running = place.start_script(&["--ttl", "1s", "--min-hold", "1h"], "echo $$ > pid; exit 3");
    let command = place.pid("pid");
    eventually("its end is seen", || state(command).is_none());
    running
}

#[track_caller]
fn assert_free(place: &Place) {
    let done = place.end(&["run", "-n", "name", "true"]);
    assert_eq!(done.code, 0, "{done:?}");
}

fn break_it(place: &Place) {
    place.ask(async |domain| {
        let holder = domain.inspect("name").await?.holder.expect("it is held");
        domain.break_lock("name", &holder).await
    });
}

fn a_name_is_kept_for_the_least_time_and_given_back(place: &Place) {
    let least = Duration::from_millis(2_500);
    let start = Instant::now();
    let running = place.start_script(&["--ttl", "1s", "--min-hold", "2500ms"], "echo $$ > pid; exit 3");
    let command = place.pid("pid");
    eventually("its end is seen", || state(command).is_none());
    assert_eq!(place.end(&["run", "-n", "name", "true"]).code, 75);
    let next = place.start_script(&["-q"], "echo in > next");
    let done = running.finish();
    assert!(start.elapsed() >= least, "{:?}", start.elapsed());
    assert_eq!((done.code, done.stderr.as_str()), (3, ""));
    assert_eq!(next.finish().code, 0);
    assert!(start.elapsed() >= least, "longer than the lease lasts without renewals");

    let start = Instant::now();
    let done = place.end(&["run", "--min-hold", "1ms", "name", "sleep", ".1"]);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "after {:?}", start.elapsed());
    assert_eq!(place.end(&["run", "--min-hold", "1h", "name", "no-such-command"]).code, 127, "not kept");
    assert_free(place);
}

fn a_signal_ends_the_keeping(place: &Place) {
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM] {
        let running = kept(place);
        running.signal(signal);
        let done = running.finish();
        assert_eq!((done.code, done.stderr.as_str()), (3, ""), "{signal:?}");
        assert_free(place);
        std::fs::remove_file(place.path("pid")).unwrap();
    }
    let mut running = kept(place);
    running.signal(Signal::USR1);
    std::thread::sleep(Duration::from_millis(100));
    assert!(!running.has_ended(), "it is not for the keeping");
    running.signal(Signal::KILL);
    assert_eq!(running.finish().code, -1);
    assert_eq!(place.end(&["run", "-q", "name", "true"]).code, 0, "at once, not after an hour");
    place.assert_nothing_left();
}

fn what_was_told_to_end_is_not_kept(place: &Place) {
    let running = place.start_script(&["--min-hold", "1h"], "echo $$ > pid; sleep 600");
    place.pid("pid");
    running.signal(Signal::TERM);
    assert_eq!(running.finish().code, 143);
    assert_free(place);
}

fn a_lease_that_is_broken_while_it_is_kept_leaves_the_code(place: &Place) {
    let running = kept(place);
    // By then it was seen that the lease outlived the command.
    std::thread::sleep(Duration::from_millis(500));
    break_it(place);
    let done = running.finish();
    assert_eq!(done.code, 3, "{done:?}");
    assert!(done.stderr.contains("lease on `name` was lost before --min-hold was over"), "{done:?}");
    assert_free(place);
}

fn the_holder_killed_while_it_keeps_the_code_stays(place: &Place) {
    let script = "sleep 600 & echo $! > left; echo $$ > pid; exit 3";
    let running = place.start_script(&["--ttl", "1s", "--min-hold", "1h"], script);
    let (command, left) = (place.pid("pid"), place.pid("left"));
    eventually("its end is seen", || state(command).is_none());
    kill_process(running.holder(), Signal::KILL).unwrap();
    let done = running.finish();
    assert_eq!(done.code, 3, "{done:?}");
    assert!(done.stderr.contains("was killed before it gave `name` back"), "{done:?}");
    assert!(lives(left), "what the command left behind is left alone");
}

fn a_command_that_runs_too_long_is_stopped_with_all_of_it(place: &Place) {
    let polite = r#"
        (setsid sh -c 'trap "echo TERM >> got; exit" TERM; echo > ready; while :; do sleep .01; done' &)
        trap "echo TERM >> got; exit 0" TERM
        while :; do sleep .01; done"#;
    let start = Instant::now();
    let done = place.start_script(&["--max-hold", "1s"], polite).finish();
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert_eq!(done.code, 124, "{done:?}");
    let why = "tenure: command ran for longer than --max-hold 1s; it is stopped\n";
    assert!(done.stderr.starts_with(why) && !done.stderr.contains("in time"), "{done:?}");
    assert_eq!(place.read("got"), "TERM\nTERM\n");
    assert!(place.is_lifeless());
    assert_free(place);

    let done = place.start_script(&["--max-hold", "300ms", "-k", "0"], STUBBORN).finish();
    assert_eq!(done.code, 124, "{done:?}");
    let why = "tenure: command ran for longer than --max-hold 300ms; it is killed\n";
    assert!(done.stderr.starts_with(why), "{done:?}");
    assert_eq!(place.read("got"), "TERM\nTERM\n", "nobody was asked");
    assert!(place.is_lifeless());

    let done = place.end(&["run", "--max-hold", "1h", "name", "sh", "-c", "exit 3"]);
    assert_eq!((done.code, done.stderr.as_str()), (3, ""));
    place.assert_nothing_left();
}

/// For longer than a lease lasts that nobody renews.
fn the_name_is_kept_until_a_stubborn_command_is_gone(place: &Place) {
    let (start, options) = (Instant::now(), ["--ttl", "1s", "--max-hold", "500ms", "-k", "2s"]);
    let running = place.start_script(&options, STUBBORN);
    place.pid("pid");
    let next = place.start_script(&["-q"], "echo in > next");
    let done = running.finish();
    assert!(start.elapsed() >= Duration::from_millis(2_500), "{:?}", start.elapsed());
    assert_eq!(done.code, 124, "{done:?}");
    assert!(done.stderr.contains("tenure: command did not end in time and is killed\n"), "{done:?}");
    assert_eq!((next.finish().code, place.read("next").as_str()), (0, "in\n"));
    assert_eq!((place.read("got").as_str(), place.read("overlaps").as_str()), ("TERM\n", ""));
    place.assert_nothing_left();
}

// B4
fn a_loss_goes_before_the_limit(place: &Place) {
    let running = place.start_script(&["--ttl", "1h", "--max-hold", "500ms", "-k", "500s"], STUBBORN);
    eventually("it is asked to end", || place.read("got") == "TERM\n");
    break_it(place);
    let done = running.finish();
    assert_eq!(done.code, 79, "{done:?}");
    assert!(place.is_lifeless());
    place.assert_nothing_left();
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    let place = Place::new();
    let cases: &[(&[&str], &str)] = &[
        (&["--min-hold", "2s", "--max-hold", "1s"], "--min-hold is longer than --max-hold"),
        (&["--max-hold", "0"], "--max-hold of 0"),
        (&["--min-hold", "soon"], "duration `soon`"),
        (&["-k", "-1"], "duration `-1` is negative"),
        (&["--on-lost", "panic"], "panic"),
    ];
    for (options, message) in cases {
        let done = place.end(&[&["run"], *options, &["name", "touch", "ran"]].concat());
        assert_eq!(done.code, 64, "{done:?}");
        assert!(done.stderr.contains(message) && done.stderr.starts_with("tenure: "), "{done:?}");
    }
    assert!(!place.path("ran").exists());
}
