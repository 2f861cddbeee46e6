//! Exit codes, and what passes through.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use rustix::process::Signal;

use super::on_both_stores;
use crate::support::{Place, Running, eventually};

on_both_stores!(
    the_code_is_that_of_the_command,
    the_code_says_which_signal_killed_the_command,
    a_held_name_is_busy,
    what_cannot_be_started_gives_the_name_back,
    a_wrong_command_line_takes_no_name,
    who_is_interrupted_while_waiting_leaves_the_queue,
    a_large_input_passes,
    what_the_command_left_in_the_background_is_not_waited_for,
);

/// A holder of `name`, until it is told to end.
fn hold(place: &Place) -> Running {
    let holder = place.start_script(&[], "echo $$ > pid; exec sleep 600");
    place.pid("pid");
    holder
}

fn let_go(holder: Running) {
    holder.signal(Signal::TERM);
    assert_eq!(holder.finish().code, 143);
}

#[track_caller]
fn assert_free(place: &Place) {
    let status = place.inspect("name");
    assert!(status.holder.is_none() && status.waiters.is_empty(), "{status:?}");
    assert_eq!(place.leftovers(), [""; 0]);
    place.assert_nothing_left();
}

// B4
fn the_code_is_that_of_the_command(place: &Place) {
    for code in [0, 3, 255] {
        let done = place.end(&["run", "name", "--", "sh", "-c", &format!("exit {code}")]);
        assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (code, "", ""), "silent");
    }
    assert_free(place);
}

// B4
fn the_code_says_which_signal_killed_the_command(place: &Place) {
    // CHLD, URG and WINCH kill nobody, CONT neither, and STOP, TSTP, TTIN and TTOU stop.
    let deadly = (1..=31).filter(|signal| ![17, 18, 19, 20, 21, 22, 23, 28].contains(signal));
    let started = deadly.chain([34, 64]).map(|signal| {
        let name = format!("name-{signal}");
        let script = format!("ulimit -c 0; kill -{signal} $$");
        (signal, place.start(&["run", &name, "--", "sh", "-c", &script]))
    });
    for (signal, running) in started.collect::<Vec<_>>() {
        let done = running.finish();
        assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (128 + signal, "", ""));
    }
    assert_free(place);
}

// R2.3, R4.1
fn a_held_name_is_busy(place: &Place) {
    let holder = hold(place);
    for (options, code) in
        [(&["-n"][..], 75), (&["-w", "0"], 75), (&["-w", ".1"], 75), (&["-n", "-E", "9"], 9)]
    {
        let done = place.end(&[&["run"], options, &["name", "--", "touch", "ran"]].concat());
        assert_eq!((done.code, done.stdout.as_str()), (code, ""), "{options:?}: {done:?}");
        let pid = format!("pid {}", holder.holder());
        assert!(done.stderr.contains("`name` is held by ") && done.stderr.contains(&pid), "{done:?}");
    }
    for options in [&["-n", "-E", "0"][..], &["-w", ".1", "-E", "0"]] {
        let done = place.end(&[&["run"], options, &["name", "--", "touch", "ran"]].concat());
        assert_eq!(
            (done.code, done.stdout.as_str(), done.stderr.as_str()),
            (0, "", ""),
            "cron would mail it"
        );
    }
    let status = place.inspect("name");
    assert!(status.is_held() && status.waiters.is_empty(), "who gave up has left: {status:?}");
    let_go(holder);
    assert!(!place.path("ran").exists());
    assert_free(place);
}

fn what_cannot_be_started_gives_the_name_back(place: &Place) {
    fs::write(place.path("plain"), "no program").unwrap();
    for (command, code) in [("no-such-command", 127), ("./plain", 126), ("/", 126)] {
        let done = place.end(&["run", "name", "--", command]);
        assert_eq!((done.code, done.stdout.as_str()), (code, ""), "{done:?}");
        assert!(done.stderr.starts_with("tenure: command ") && done.stderr.contains(command), "{done:?}");
        assert_free(place);
    }
}

// R4.4
fn a_wrong_command_line_takes_no_name(place: &Place) {
    let bad_url = format!("{}?tll=3s", place.url());
    for args in [
        &["run", "name"][..],
        &["run", "--bogus", "name", "touch", "ran"],
        &["run", "-n", "-w", "3s", "name", "touch", "ran"],
        &["run", "--ttl", "10ms", "name", "touch", "ran"],
        &["run", "--url", &bad_url, "name", "touch", "ran"],
        &["run", "", "touch", "ran"],
    ] {
        let done = place.end(args);
        assert_eq!((done.code, done.stdout.as_str()), (64, ""), "{args:?}: {done:?}");
        assert!(done.stderr.lines().all(|line| line.starts_with("tenure: ")), "{done:?}");
        assert!(!done.stderr.is_empty(), "{args:?}");
    }
    assert!(!place.path("ran").exists());
    assert_free(place);
}

// R1.4
fn who_is_interrupted_while_waiting_leaves_the_queue(place: &Place) {
    let holder = hold(place);
    let deadly =
        [Signal::HUP, Signal::INT, Signal::QUIT, Signal::USR1, Signal::USR2, Signal::ALARM, Signal::TERM];
    for signal in deadly {
        let waiting = place.start(&["run", "name", "--", "touch", "ran"]);
        place.await_queue(1);
        // These change nothing.
        waiting.signal(Signal::WINCH);
        waiting.signal(Signal::CONT);
        waiting.signal(signal);
        assert_eq!(waiting.finish().code, 128 + signal.as_raw());
        assert_eq!(place.inspect("name").waiters, [], "it has left when it ends");
    }
    // Killed, its holder leaves for it.
    let waiting = place.start(&["run", "name", "--", "touch", "ran"]);
    place.await_queue(1);
    waiting.signal(Signal::KILL);
    waiting.finish();
    place.await_queue(0);
    let_go(holder);
    assert!(!place.path("ran").exists());
    assert_free(place);
}

fn a_large_input_passes(place: &Place) {
    let input: String = (0..1_048_576 / 16).map(|number| format!("{number:15}\n")).collect();
    let mut command = place.tenure(&["run", "name", "sh", "-c", "cat; echo oops >&2; exit 3"]);
    command.stdin(Stdio::piped());
    let mut running = place.spawn(command);
    running.stdin().write_all(input.as_bytes()).unwrap();
    let done = running.finish();
    assert!(done.stdout == input, "{} of {} bytes", done.stdout.len(), input.len());
    assert_eq!((done.code, done.stderr.as_str()), (3, "oops\n"));
    assert_free(place);
}

fn what_the_command_left_in_the_background_is_not_waited_for(place: &Place) {
    // It has all that the command had open.
    let script = "sleep 600 & echo $! > pid; exit 4";
    let done = place.end(&["run", "--ttl", "1h", "name", "--", "sh", "-c", script]);
    assert_eq!((done.code, done.stderr.as_str()), (4, ""));
    let left = place.pid("pid");
    assert!(!place.inspect("name").is_held(), "it keeps no name");
    assert_eq!(place.processes(), [left.as_raw_pid()]);
    rustix::process::kill_process(left, Signal::KILL).unwrap();
    eventually("its session is over", || place.leftovers().is_empty());
    assert_free(place);
}
