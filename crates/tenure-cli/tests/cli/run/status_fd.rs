//! `--status-fd`: one line with the true outcome, whoever is left to write it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use super::both::on_both_stores;
use super::stopping::full_pipe;
use crate::support::{Place, Running};

on_both_stores!(
    the_outcome_of_a_command,
    the_outcome_of_a_command_that_was_stopped,
    the_outcome_without_a_command,
    the_outcome_when_a_process_of_tenure_was_killed,
);

const STAY: &str = "trap '' TERM; echo $$ > pid; while :; do sleep .01; done";

/// `tenure run` with these words, and a file as descriptor 3.
fn run(place: &Place, words: &[&str]) -> Command {
    let mut command = place.command("sh");
    let script = r#"exec setsid "$0" run --status-fd 3 "$@" 3>status"#;
    command.args(["-c", script, env!("CARGO_BIN_EXE_tenure")]).args(words);
    command
}

/// A script that runs until it is killed, with these options.
fn stay(place: &Place, options: &[&str]) -> Running {
    let running = place.spawn(run(place, &[options, &["name", "sh", "-c", STAY]].concat()));
    place.pid("pid");
    fs::remove_file(place.path("pid")).unwrap();
    running
}

/// The one line there is, once `running` has ended with this code, and nothing else does any more: outcome, code, exit, signal.
#[track_caller]
fn line(place: &Place, running: Running, code: i32) -> Value {
    let done = running.finish();
    assert_eq!(done.code, code, "{done:?}");
    place.assert_nothing_left();
    let status = place.read("status");
    fs::remove_file(place.path("status")).unwrap();
    assert!(status.ends_with("}\n") && status.lines().count() == 1, "{status:?}");
    assert!(status.starts_with(r#"{"v":1,"name":"name","outcome":""#), "{status}");
    let line: Value = serde_json::from_str(&status).unwrap();
    assert!(line["waited_ms"].is_u64() && line["holder"].is_null(), "{status}");
    let had_lease = !["usage", "unavailable", "denied"].contains(&line["outcome"].as_str().unwrap());
    assert_eq!((line["fence"].is_u64(), line["held_ms"].is_u64()), (had_lease, had_lease), "{status}");
    json!([line["outcome"], line["code"], line["exit"], line["signal"]])
}

fn break_it(place: &Place) {
    place.ask(async |domain| {
        let holder = domain.inspect("name").await?.holder.expect("it is held");
        domain.break_lock("name", &holder).await
    });
}

fn the_outcome_of_a_command(place: &Place) {
    let ended = |words: &[&str], code| line(place, place.spawn(run(place, words)), code);
    assert_eq!(ended(&["name", "true"], 0), json!(["exited", 0, 0, null]));
    for code in [64, 75, 79, 124, 127] {
        let script = format!("exit {code}");
        let expected = json!(["exited", code, code, null]);
        assert_eq!(ended(&["name", "sh", "-c", &script], code), expected, "its own code");
    }
    let killed = ended(&["name", "sh", "-c", "kill -KILL $$"], 137);
    assert_eq!(killed, json!(["signaled", 137, null, 9]));
    let missing = ended(&["name", "no-such-command"], 127);
    assert_eq!(missing, json!(["not_started", 127, null, null]));

    let done = place
        .spawn(run(place, &["--min-hold", "500ms", "name", "sh", "-c", "sleep .1; echo $TENURE_FENCE"]))
        .finish();
    let status: Value = serde_json::from_str(&place.read("status")).unwrap();
    assert_eq!(status["fence"].to_string(), done.stdout.trim(), "{status}");
    assert!(status["held_ms"].as_u64().unwrap() >= 500, "{status}");
}

fn the_outcome_of_a_command_that_was_stopped(place: &Place) {
    let running = stay(place, &["--max-hold", "100ms", "-k", "100ms"]);
    assert_eq!(line(place, running, 124), json!(["max_hold", 124, null, 9]));
    let running = stay(place, &["--ttl", "1h", "-k", "100ms"]);
    break_it(place);
    assert_eq!(line(place, running, 79), json!(["lost", 79, null, 9]));

    let script = "echo $$ > pid; while ! [ -e go ]; do sleep .01; done; exit 3";
    let words = ["--on-lost", "ignore", "name", "sh", "-c", script];
    let running = place.spawn(run(place, &words));
    place.pid("pid");
    break_it(place);
    fs::write(place.path("go"), "").unwrap();
    assert_eq!(line(place, running, 3), json!(["lost", 3, 3, null]));
}

fn the_outcome_without_a_command(place: &Place) {
    let ended = |words: &[&str], code| line(place, place.spawn(run(place, words)), code);
    let holder =
        place.start(&["run", "--label", "night", "name", "sh", "-c", "echo $$ > held; exec sleep 600"]);
    place.pid("held");
    let busy = |words: &[&str], code| {
        // The holder runs as long.
        let done = place.spawn(run(place, words)).finish();
        assert_eq!(done.code, code, "{done:?}");
        let status: Value = serde_json::from_str(&place.read("status")).unwrap();
        assert_eq!((&status["outcome"], &status["code"]), (&json!("busy"), &json!(code)), "{status}");
        assert_eq!(status["holder"]["label"], "night", "{status}");
        assert_eq!(status["holder"]["pid"], holder.holder().as_raw_pid(), "{status}");
        assert_eq!((&status["fence"], &status["held_ms"]), (&Value::Null, &Value::Null), "{status}");
        status["waited_ms"].as_u64().unwrap()
    };
    busy(&["-n", "name", "true"], 75);
    busy(&["-n", "-E", "0", "name", "true"], 0);
    assert!(busy(&["-w", "300ms", "name", "true"], 75) >= 300);

    let waiting = place.spawn(run(place, &["name", "true"]));
    place.await_queue(1);
    waiting.signal(Signal::TERM);
    assert_eq!(waiting.finish().code, 143);
    let status = place.read("status");
    assert!(status.contains(r#""outcome":"interrupted","code":143,"#), "{status}");
    let waiting = place.spawn(run(place, &["name", "true"]));
    place.await_queue(1);
    kill_process(waiting.holder(), Signal::KILL).unwrap();
    assert_eq!(waiting.finish().code, 71);
    let status = place.read("status");
    assert!(status.contains(r#""outcome":"os_error","code":71,"#) && status.lines().count() == 1, "{status}");
    holder.signal(Signal::TERM);
    holder.finish();

    let usage = json!(["usage", 64, null, null]);
    assert_eq!(ended(&["--url", "memory:", "name", "true"], 64), usage);
    assert_eq!(ended(&["--label", &"l".repeat(201), "name", "true"], 64), usage);
    assert_eq!(ended(&["--min-hold", "2", "--max-hold", "1", "name", "true"], 64), usage);
    let away = json!(["unavailable", 69, null, null]);
    assert_eq!(ended(&["--url", "file:///proc/tenure", "name", "true"], 69), away);
    fs::create_dir(place.path("open")).unwrap();
    fs::set_permissions(place.path("open"), fs::Permissions::from_mode(0o777)).unwrap();
    let open = format!("file://{}", place.path("open").display());
    let denied = json!(["denied", 77, null, null]);
    assert_eq!(ended(&["--url", &open, "name", "true"], 77), denied);
}

fn the_outcome_when_a_process_of_tenure_was_killed(place: &Place) {
    let lost = json!(["lost", 79, null, 9]);
    for signal in [Signal::KILL, Signal::STOP] {
        let running = stay(place, &["--ttl", "1s"]);
        kill_process(running.holder(), signal).unwrap();
        assert_eq!(line(place, running, 79), lost, "{signal:?}");
    }
    let running = stay(place, &["--ttl", "1s"]);
    running.signal(Signal::KILL);
    assert_eq!(line(place, running, -1), json!(["interrupted", 137, null, 9]));
}

#[test]
fn the_command_does_not_inherit_the_descriptor() {
    let place = Place::new();
    let script = "[ -e /proc/self/fd/3 ] && readlink /proc/self/fd/3; ls -l /proc/self/fd | grep -c /status";
    let done = place.spawn(run(&place, &["name", "sh", "-c", script])).finish();
    assert_eq!(done.stdout, "0\n");
    let done = place.end(&["run", "--status-fd", "1", "name", "echo", "data"]);
    assert!(done.stdout.starts_with("data\n{\"v\":1,"), "stdout stays the command's: {done:?}");
}

#[test]
fn a_descriptor_that_cannot_be_written_is_refused_before_anything_is_done() {
    let place = Place::new();
    for (number, opened) in [("3", ""), ("3", "3</dev/null"), ("77", ""), ("x", ""), ("-1", "")] {
        let mut command = place.command("sh");
        let script = format!(r#"exec setsid "$0" run --status-fd "$1" name touch ran {opened}"#);
        command.args(["-c", &script, env!("CARGO_BIN_EXE_tenure"), number]);
        let done = place.spawn(command).finish();
        assert_eq!(done.code, 64, "{number} {opened}: {done:?}");
        assert!(done.stderr.contains("status-fd") && done.stderr.contains("descriptor"), "{done:?}");
    }
    assert!(!place.path("ran").exists() && fs::read_dir(place.locks()).unwrap().next().is_none());
}

#[test]
fn a_reader_that_does_not_read_delays_nobody() {
    let place = Place::new();
    let (_reader, writer) = full_pipe();
    let script = "echo $$ > pid; sleep .1; exit 3";
    let command = place.tenure(&["run", "--status-fd", "2", "name", "sh", "-c", script]);
    let running = place.spawn_with(command, Some(writer.into()));
    place.pid("pid");
    assert_eq!(place.end(&["run", "-q", "name", "true"]).code, 0, "it was given back");
    assert_eq!(running.finish().code, 3);
    place.assert_nothing_left();
}

/// Only in the very moment of the write there is none, since nobody can tell whether it was written. That is met by few of many.
#[test]
fn there_is_a_line_whenever_the_holder_is_killed() {
    let place = Place::new();
    let mut without = Vec::new();
    for turn in 0..60 {
        let running = place.spawn(run(&place, &["-q", "name", "sh", "-c", "echo $PPID > holder"]));
        let holder = place.pid("holder");
        fs::remove_file(place.path("holder")).unwrap();
        let start = Instant::now();
        while start.elapsed() < Duration::from_micros(40 * turn) {}
        let _ = kill_process(holder, Signal::KILL);
        running.finish();
        let lines = place.read("status").lines().count();
        assert!(lines < 2, "{turn}");
        without.extend((lines == 0).then_some(turn));
    }
    assert!(without.len() < 5, "{without:?}");
}
