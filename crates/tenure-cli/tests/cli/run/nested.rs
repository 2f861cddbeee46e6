//! `run` inside of `run`.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{Finished, Place, eventually};

const TENURE: &str = env!("CARGO_BIN_EXE_tenure");

#[track_caller]
fn assert_told(done: &Finished, name: &str, code: i32) {
    assert_eq!(done.code, code, "{done:?}");
    let fence = done.stdout.trim();
    let expected = format!("tenure: you already hold it: this runs under `tenure run` of `{name}`, ");
    assert!(done.stderr.starts_with(&expected), "{done:?}");
    let first = done.stderr.lines().next().unwrap();
    assert!(!fence.is_empty() && first.ends_with(&format!(", fence {fence}")), "{done:?}");
    assert_eq!(done.stderr.lines().count(), 2, "{done:?}");
}

// R1.1
#[test]
fn a_name_that_is_held_above_is_refused_at_once() {
    for place in [Place::new(), Place::on_redis()] {
        let url = place.url();
        let inner = |line: &str| {
            let line = format!("echo $TENURE_FENCE; {TENURE} run {line} && touch ran");
            place.end(&["run", "--pass-url", "a", "--", "sh", "-c", &line])
        };
        let start = Instant::now();
        assert_told(&inner("a true"), "a", 75);
        assert_told(&inner("-w 1h a true"), "a", 75);
        assert_told(&inner("-n a true"), "a", 75);
        assert_told(&inner("-w .2 -E 9 a true"), "a", 9);
        assert_told(&inner(&format!("-n --url {url} a -c true")), "a", 75);
        // Which domain it is, the inner one is not told; that it is held above, it knows.
        let line = format!("echo $TENURE_FENCE; {TENURE} run a true && touch ran");
        assert_told(&place.end(&["run", "a", "--", "sh", "-c", &line]), "a", 75);
        // It is no conflict that goes away, but the code is the one that was asked for.
        let silenced = inner("-E 0 a true; false");
        assert_told(&silenced, "a", 1);
        assert!(start.elapsed() < Duration::from_secs(60), "nobody waited");
        // With levels in between, and an environment that says nothing.
        assert_told(&inner(&format!("--pass-url b {TENURE} run a true")), "a", 75);
        assert_told(&inner(&format!("--pass-url b {TENURE} run -n a true")), "a", 75);
        assert_told(&inner(&format!("b env -i {TENURE} run --url {url} a true")), "a", 75);
        assert_told(
            &inner(&format!("--pass-url b {TENURE} run --pass-url c {TENURE} run -E 8 a true")),
            "a",
            8,
        );
        place.assert_nothing_left();
    }
}

/// Neither a command that empties its environment nor another user's shows a fence.
// R1.1
#[test]
fn a_name_that_is_held_above_is_refused_without_any_environment() {
    for place in [Place::new(), Place::on_redis()] {
        let url = place.url();
        let inner = ["env", "-i", TENURE, "run", "--url", &url, "-w", "20s", "a", "touch", "ran"];
        let deeper = [&["env", "-i", TENURE, "run", "--url", &url, "b"], &inner[..]].concat();
        for inner in [&inner[..], &deeper] {
            let start = Instant::now();
            let done = place.end(&[&["run", "a"], inner].concat());
            assert!(done.code == 75 && done.stderr.starts_with("tenure: you already hold it: "), "{done:?}");
            assert!(start.elapsed() < Duration::from_secs(15), "nobody waited");
        }
        place.assert_nothing_left();
    }
}

// R1.1
#[test]
fn another_name_or_another_domain_is_not_held_above() {
    let (place, other) = (Place::new(), Place::on_redis());
    let show = |line: &str| {
        let line = format!("exec {TENURE} run {line}");
        place.end(&["run", "--pass-url", "a", "--", "sh", "-c", &line])
    };
    for line in ["b echo ran", &format!("-n --pass-url b {TENURE} run -n c echo ran")] {
        let done = show(line);
        assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (0, "ran\n", ""), "{line}");
    }
    let elsewhere = format!("-n --url {} a echo ran", other.url());
    let done = show(&elsewhere);
    assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (0, "ran\n", ""));

    // Held there by someone else, it is busy as ever.
    let holder = other.start_script(&[], "echo $$ > pid; sleep 600");
    other.pid("pid");
    let line = format!("exec {TENURE} run -n --url {} name true", other.url());
    let done = place.end(&["run", "name", "--", "sh", "-c", &line]);
    assert!(done.code == 75 && done.stderr.contains("tenure: `name` is held by "), "{done:?}");
    holder.signal(Signal::TERM);
    holder.finish();
}

/// The fence of a lease that was handed over is the one that the store shows.
// R1.1
#[test]
fn a_name_that_becomes_held_above_is_refused_while_waiting() {
    for place in [Place::new(), Place::on_redis()] {
        let holder = place.start_script(&[], "echo $$ > pid; sleep 600");
        place.pid("pid");
        let line = format!("echo $TENURE_FENCE; exec {TENURE} run name true");
        let waiting = place.start(&["run", "-q", "--pass-url", "name", "--", "sh", "-c", &line]);
        eventually("it is in the queue", || {
            place.end(&["run", "-n", "name", "true"]).stderr.contains("1 waiting for it")
        });
        holder.signal(Signal::TERM);
        holder.finish();
        assert_told(&waiting.finish(), "name", 75);
    }
}

/// A fence that is in the environment of a process that outlived its lease is that of nobody.
// R1.1
#[test]
fn a_lease_that_has_ended_is_not_held_above() {
    let place = Place::new();
    let url = place.url();
    let line = format!(
        "(while ! test -e go; do sleep .01; done; exec {TENURE} run --url {url} a echo ran > log 2>&1) & true"
    );
    assert_eq!(place.end(&["run", "a", "--", "sh", "-c", &line]).code, 0);
    std::fs::write(place.path("go"), "").unwrap();
    eventually("it ran", || place.read("log") == "ran\n");
}
