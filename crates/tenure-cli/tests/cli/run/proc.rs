//! `/proc`, which `tenure run` finds the processes in that it has to stop: missing, of another pid namespace, gone while a command runs.

use std::process::Command;

use rustix::process::{Signal, kill_process};

use crate::support::{Place, Running, eventually, lives};

const TENURE: &str = env!("CARGO_BIN_EXE_tenure");

/// A command that holds `life`, and so does a child of it. Neither ends with anything less than KILL.
const STUBBORN: &str =
    r#"exec 9>life; trap "" TERM; sleep 600 & echo $! > part; echo $$ > pid; wait; sleep 600"#;

/// A shell script in namespaces of its own, by a user who may mount there.
fn unshare(place: &Place, options: &[&str], script: &str) -> Command {
    let mut command = place.command("setsid");
    command.arg("unshare").args(options);
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["sh", "-c", script]).env("TENURE", TENURE);
    command
}

// B4
#[test]
fn without_it_nothing_is_started_and_nothing_is_locked() {
    let cases: [(&str, &[&str], &str); 3] = [
        ("an empty one", &["--mount"], "mount -t tmpfs none /proc && exec $TENURE run name touch ran"),
        ("another's", &["--pid", "--fork"], "$TENURE run name touch ran"),
        (
            "none in a chroot",
            &["--mount"],
            "mkdir root && mount --bind / root && exec chroot root sh -c 'cd $PLACE && exec $TENURE run name touch ran'",
        ),
    ];
    for (case, options, script) in cases {
        let place = Place::on_redis();
        let done = place.spawn(unshare(&place, options, script)).finish();
        assert_eq!((done.code, done.stdout.as_str()), (71, ""), "{case}: {done:?}");
        assert!(
            done.stderr.starts_with("tenure: /proc ") && done.stderr.contains("mount"),
            "{case}: {done:?}"
        );
        assert!(!place.path("ran").exists(), "{case}");
        let used = place.server().command(&["INFO", "commandstats"]).text();
        assert!(!used.contains("cmdstat_eval"), "{case}: nothing was asked of the server: {used}");
    }
}

#[test]
fn in_a_pid_namespace_with_its_own_it_works() {
    let place = Place::on_redis();
    let script = format!("$TENURE run --ttl 1h name -- sh -c '{STUBBORN}'");
    let running = place.spawn(unshare(&place, &["--pid", "--fork", "--mount-proc"], &script));
    place.pid("pid");
    place.server().command(&["DEL", "tenure:name"]);
    assert_eq!(running.finish().code, 79);
    assert!(place.is_lifeless());
}

/// Runs the command, and then takes /proc away from all of its processes.
fn start_and_take_it_away(place: &Place, ttl: &str) -> Running {
    let script =
        format!("exec $TENURE run --ttl {ttl} name -- sh -c 'mount -t tmpfs none /proc || exit; {STUBBORN}'");
    let running = place.spawn(unshare(place, &["--mount"], &script));
    place.pid("pid");
    running
}

// B4
#[test]
fn gone_while_the_command_runs_it_and_its_group_are_stopped_all_the_same() {
    let place = Place::on_redis();
    let running = start_and_take_it_away(&place, "1h");
    assert_eq!(place.server().command(&["DEL", "tenure:name"]).int(), 1);
    let done = running.finish();
    assert_eq!(done.code, 79, "{done:?}");
    assert!(place.is_lifeless(), "{done:?}");
    place.assert_nothing_left();
}

// B4
#[test]
fn gone_while_the_command_runs_the_wrapper_stops_it_for_a_holder_that_hangs() {
    let place = Place::on_redis();
    let running = start_and_take_it_away(&place, "2s");
    let (holder, pid) = (running.holder(), place.pid("pid"));
    kill_process(holder, Signal::STOP).unwrap();
    let done = running.finish();
    assert_eq!(done.code, 79, "{done:?}");
    eventually("they are gone", || !lives(pid) && !lives(holder));
    assert!(place.is_lifeless(), "{done:?}");
    place.assert_nothing_left();
}
