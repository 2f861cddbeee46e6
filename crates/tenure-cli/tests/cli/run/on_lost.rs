//! `--on-lost` and `-k`: what becomes of the command when its lease is lost, and how much time it has.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::both::on_both_stores;
use crate::support::{Place, Running, eventually, lives, state};

on_both_stores!(
    killed_at_once_when_it_is_ended_by_force,
    killed_before_the_expiry_when_the_store_is_away,
    the_wrapper_kills_without_asking_too,
    it_has_the_time_that_was_asked_for_before_the_lease_expires,
    it_has_no_more_than_the_time_that_was_asked_for,
    ignored_the_command_goes_on_when_it_is_ended_by_force,
    ignored_the_command_goes_on_when_the_store_is_away,
    ignored_the_command_goes_on_when_its_holder_is_stopped,
    ignored_the_command_goes_on_when_its_holder_is_killed,
    ignored_the_command_goes_on_when_both_are_killed,
);

/// A command that writes down when it was asked to end, and goes on until it finds `go`.
const STUBBORN: &str = r#"
    trap "date +%s%N >> got" TERM
    echo $$ > pid
    while ! [ -e go ]; do sleep .01; done
    exit 3"#;

fn start(place: &Place, options: &[&str]) -> (Running, Pid) {
    let running = place.start_script(options, STUBBORN);
    let pid = place.pid("pid");
    (running, pid)
}

fn break_it(place: &Place) {
    place.ask(async |domain| {
        let holder = domain.inspect("name").await?.holder.expect("it is held");
        domain.break_lock("name", &holder).await
    });
}

fn take_store_away(place: &Place) {
    if place.is_on_redis() { place.server().kill() } else { fs::remove_dir_all(place.locks()).unwrap() }
}

fn go_on(place: &Place) {
    fs::write(place.path("go"), "").unwrap();
}

#[track_caller]
fn assert_killed(place: &Place, running: Running) {
    let done = running.finish();
    assert_eq!(done.code, 79, "{done:?}");
    assert_eq!(place.read("got"), "", "it was not asked: {done:?}");
    assert!(place.is_lifeless());
    place.assert_nothing_left();
}

// B4
fn killed_at_once_when_it_is_ended_by_force(place: &Place) {
    for options in [["--ttl", "1h", "--on-lost", "kill"].as_slice(), &["--ttl", "1h", "-k", "0"]] {
        let (running, _) = start(place, options);
        break_it(place);
        assert_killed(place, running);
        fs::remove_file(place.path("pid")).unwrap();
    }
}

// B4
fn killed_before_the_expiry_when_the_store_is_away(place: &Place) {
    let (running, pid) = start(place, &["--ttl", "2s", "--on-lost", "kill"]);
    let away = Instant::now();
    take_store_away(place);
    eventually("it is killed", || !lives(pid));
    assert!(away.elapsed() < Duration::from_secs(2), "{:?}", away.elapsed());
    assert_killed(place, running);
}

// B4
fn the_wrapper_kills_without_asking_too(place: &Place) {
    // With time for a busy machine.
    let (running, _) = start(place, &["--ttl", "4s", "--on-lost", "kill"]);
    let next = place.start_script(&["-q"], "echo in > next");
    kill_process(running.holder(), Signal::STOP).unwrap();
    let done = running.finish();
    assert_eq!(done.code, 79, "{done:?}");
    assert_eq!(next.finish().code, 0);
    assert_eq!((place.read("got").as_str(), place.read("overlaps").as_str()), ("", ""));
    place.assert_nothing_left();
}

// B4
fn it_has_the_time_that_was_asked_for_before_the_lease_expires(place: &Place) {
    let (running, pid) = start(place, &["--ttl", "6s", "-k", "2s"]);
    let away = Instant::now();
    take_store_away(place);
    eventually("it is asked to end", || !place.read("got").is_empty());
    let asked = Instant::now();
    eventually("it is killed", || !lives(pid));
    // Without -k it would be 1 s.
    assert!(asked.elapsed() > Duration::from_millis(1_400), "{:?}", asked.elapsed());
    assert!(away.elapsed() < Duration::from_secs(6), "{:?}", away.elapsed());
    let done = running.finish();
    assert_eq!(done.code, 79, "{done:?}");
    place.assert_nothing_left();
}

// B4
fn it_has_no_more_than_the_time_that_was_asked_for(place: &Place) {
    let (running, pid) = start(place, &["--ttl", "1h", "-k", "200ms"]);
    break_it(place);
    eventually("it is asked to end", || !place.read("got").is_empty());
    let asked = Instant::now();
    eventually("it is killed", || !lives(pid));
    assert!(asked.elapsed() < Duration::from_secs(4), "without -k it would be 5 s: {:?}", asked.elapsed());
    assert_eq!(running.finish().code, 79);
    place.assert_nothing_left();
}

#[track_caller]
fn assert_went_on(place: &Place, running: Running, why: &str) {
    go_on(place);
    let done = running.finish();
    assert_eq!((done.code, place.read("got").as_str()), (3, ""), "{done:?}");
    assert!(done.stderr.matches(why).count() == 1, "{done:?}");
    place.assert_nothing_left();
}

const IGNORE: [&str; 4] = ["--ttl", "1s", "--on-lost", "ignore"];

fn ignored_the_command_goes_on_when_it_is_ended_by_force(place: &Place) {
    let (running, pid) = start(place, &IGNORE);
    break_it(place);
    assert_eq!(place.end(&["run", "-q", "name", "true"]).code, 0, "it is another's");
    std::thread::sleep(Duration::from_millis(500));
    assert!(lives(pid));
    assert_went_on(place, running, "; the command goes on\n");
}

fn ignored_the_command_goes_on_when_the_store_is_away(place: &Place) {
    let (running, pid) = start(place, &IGNORE);
    take_store_away(place);
    std::thread::sleep(Duration::from_millis(1_500));
    assert!(lives(pid));
    assert_went_on(place, running, "; the command goes on\n");
}

fn ignored_the_command_goes_on_when_its_holder_is_stopped(place: &Place) {
    let (running, pid) = start(place, &IGNORE);
    let holder = running.holder();
    kill_process(holder, Signal::STOP).unwrap();
    assert_eq!(place.end(&["run", "-q", "name", "true"]).code, 0, "the lease expired");
    assert!(lives(pid));
    kill_process(holder, Signal::CONT).unwrap();
    assert_went_on(place, running, "lease on `name` ");
}

fn ignored_the_command_goes_on_when_its_holder_is_killed(place: &Place) {
    let why = "tenure: lease lost: the process that held the lease was killed; the command goes on\n";
    let (running, pid) = start(place, &IGNORE);
    kill_process(running.holder(), Signal::KILL).unwrap();
    assert_eq!(place.end(&["run", "-q", "name", "true"]).code, 0, "the lease expired");
    assert!(lives(pid));
    running.signal(Signal::TERM);
    eventually("signals are passed on", || !place.read("got").is_empty());
    fs::remove_file(place.path("got")).unwrap();
    assert_went_on(place, running, why);
    for file in ["go", "pid"] {
        fs::remove_file(place.path(file)).unwrap();
    }

    let options = [IGNORE.as_slice(), &["--max-hold", "1s", "-k", "100ms"]].concat();
    let (running, _) = start(place, &options);
    kill_process(running.holder(), Signal::KILL).unwrap();
    let done = running.finish();
    assert_eq!(done.code, 124, "{done:?}");
    assert!(place.is_lifeless() && !place.read("got").is_empty(), "{done:?}");
    place.assert_nothing_left();
}

fn ignored_the_command_goes_on_when_both_are_killed(place: &Place) {
    let (running, pid) = start(place, &IGNORE);
    let holder = running.holder();
    for process in [running.pid(), holder] {
        kill_process(process, Signal::STOP).unwrap();
        eventually("it is stopped", || state(process) == Some('T'));
    }
    for process in [holder, running.pid()] {
        kill_process(process, Signal::KILL).unwrap();
    }
    running.finish();
    assert_eq!(place.end(&["run", "-q", "name", "true"]).code, 0, "the lease expired");
    assert!(lives(pid));
    go_on(place);
    place.assert_nothing_left();
}
