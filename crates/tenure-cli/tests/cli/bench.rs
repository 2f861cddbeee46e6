//! `tenure bench`: that it measures, and that nothing is left of it, however it ends. Never how fast anything is.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Place, Running, eventually};

/// A directory, and a server.
fn places() -> [Place; 2] {
    [Place::new(), Place::on_redis()]
}

#[track_caller]
fn assert_nothing_left(place: &Place) {
    place.assert_nothing_left();
    match place.is_on_redis() {
        true => {
            let keys = place.server().command(&["KEYS", "*"]);
            assert!(keys.items().is_empty(), "left behind: {keys:?}");
        }
        false => {
            assert_eq!(place.leftovers(), [""; 0]);
            assert_eq!(place.ask(async |domain| domain.list("").await).len(), 0);
        }
    }
}

#[test]
fn acquires_and_hand_overs_are_measured() {
    for place in places() {
        let done = place.end(&["bench", "--seconds", ".6", "--json"]);
        assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
        let lines: Vec<Value> = done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let measures: Vec<&str> = lines.iter().map(|line| line["measure"].as_str().unwrap()).collect();
        assert_eq!(measures, ["acquire", "hand-over"]);
        for line in &lines {
            let number =
                |field: &str| line[field].as_u64().unwrap_or_else(|| panic!("no `{field}` in {line}"));
            assert_eq!(number("v"), 1);
            assert!(number("count") > 0, "{line}");
            assert!(
                number("p50_us") <= number("p99_us") && number("p99_us") <= number("longest_us"),
                "{line}"
            );
            let histogram = line["histogram"].as_array().unwrap();
            let counted: u64 = histogram.iter().map(|class| class["count"].as_u64().unwrap()).sum();
            assert_eq!(counted, number("count"), "everything is in some class");
            assert!(histogram.windows(2).all(|pair| pair[0]["to_us"] == pair[1]["from_us"]), "{line}");
        }
        assert_nothing_left(&place);
    }
}

#[test]
fn it_is_readable_in_every_locale() {
    let place = Place::new();
    for (locale, bar) in [("C.UTF-8", '█'), ("C", '#')] {
        let mut command = place.tenure(&["bench", "--seconds", ".4"]);
        command.env("LC_ALL", locale);
        let done = place.spawn(command).finish();
        assert_eq!((done.code, done.stderr.as_str()), (0, ""), "no progress without a terminal");
        assert!(
            done.stdout.starts_with("acquire: ") && done.stdout.contains("\nhand-over: "),
            "{}",
            done.stdout
        );
        assert!(done.stdout.contains(bar) && done.stdout.contains("docs/performance.md"), "{}", done.stdout);
        assert_eq!(done.stdout.is_ascii(), locale == "C", "{}", done.stdout);
    }
}

#[test]
fn progress_is_shown_on_a_terminal_and_erased() {
    let place = Place::new();
    let mut script = place.command("script");
    let program = format!("{} bench --seconds 1 >/dev/null", env!("CARGO_BIN_EXE_tenure"));
    script.args(["-q", "-e", "-c", &program, "/dev/null"]).env("LC_ALL", "C").env("TERM", "xterm");
    let done = place.spawn(script).finish();
    assert_eq!(done.code, 0, "{done:?}");
    assert!(
        done.stdout.contains("acquire   [#") && done.stdout.contains("hand-over [#"),
        "{:?}",
        done.stdout
    );
    assert!(done.stdout.ends_with("\r\u{1b}[K"), "{:?}", done.stdout);
}

/// Starts a measurement that lasts longer than anyone waits; returns when it has begun with its first half.
fn started(place: &Place) -> Running {
    let running = place.start(&["bench", "--seconds", "120", "--json"]);
    eventually("it has begun", || place.processes().len() == 1 && is_in_use(place));
    running
}

fn is_in_use(place: &Place) -> bool {
    !place.ask(async |domain| domain.list("tenure/bench/").await).is_empty()
}

#[test]
fn a_signal_ends_it_and_leaves_nothing_behind() {
    for place in places() {
        for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
            let bench = started(&place);
            bench.signal(signal);
            let done = bench.finish();
            assert_eq!((done.code, done.stdout.as_str()), (code, ""), "{done:?}");
            assert_nothing_left(&place);
        }
    }
}

/// Who looks up a host's name does so in a thread, which a signal may go to.
#[test]
fn a_signal_where_the_server_has_a_name() {
    let place = Place::on_redis();
    let url = place.url().replace("127.0.0.1", "localhost");
    let bench = place.start(&["bench", "--seconds", "120", "--url", &url]);
    eventually("it has begun", || is_in_use(&place));
    bench.signal(Signal::INT);
    assert_eq!(bench.finish().code, 130);
    assert_nothing_left(&place);
}

/// The number of the process that takes turns with it, once it does.
fn partner(place: &Place, bench: &Running) -> i32 {
    let mut partner = None;
    eventually("there are two", || {
        partner = place.processes().into_iter().find(|pid| *pid != bench.pid().as_raw_pid());
        partner.is_some_and(|_| {
            place
                .ask(async |domain| domain.list("tenure/bench/").await)
                .iter()
                .any(|status| !status.waiters.is_empty())
        })
    });
    partner.unwrap()
}

#[test]
fn a_signal_while_two_take_turns() {
    for place in places() {
        let mut command = place.tenure(&["bench", "--seconds", "8", "--json", "--url", &place.url()]);
        command.env("TENURE_URL", "file:///nowhere/at/all");
        let bench = place.spawn(command);
        let partner = partner(&place, &bench);
        let arguments = fs::read_to_string(format!("/proc/{partner}/cmdline")).unwrap();
        assert!(!arguments.contains("--url"), "ps shows it: {arguments:?}");
        // As Ctrl-C on a terminal does, to both; and the other one gives back what it has before it ends.
        kill_process(Pid::from_raw(partner).unwrap(), Signal::INT).unwrap();
        bench.signal(Signal::INT);
        let done = bench.finish();
        assert_eq!((done.code, done.stderr.as_str()), (130, ""));
        assert_nothing_left(&place);
    }
}

#[test]
fn killed_it_leaves_no_process() {
    let place = Place::new();
    let bench = place.start(&["bench", "--seconds", "8"]);
    partner(&place, &bench);
    bench.signal(Signal::KILL);
    bench.finish();
    place.assert_nothing_left();
}

#[test]
fn a_store_that_is_away_and_wrong_options() {
    let place = Place::on_redis();
    place.server().kill();
    let done = place.end(&["bench"]);
    assert_eq!((done.code, done.stdout.as_str()), (69, ""));
    assert!(done.stderr.contains("cannot reach"), "{}", done.stderr);
    for length in ["0", "-1", "2h", "soon"] {
        let done = place.end(&["bench", "--seconds", length]);
        assert_eq!((done.code, done.stdout.as_str()), (64, ""), "{length}");
    }
}
