//! Whoever starts `tenure` may have blocked signals, have children, or be short of processes.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::process::{Signal, kill_process};

use super::stopping::full_pipe;
use crate::support::{Place, eventually, lives, parent, state};

const TENURE: &str = env!("CARGO_BIN_EXE_tenure");

/// The end of the command is heard of, and signals are passed on; the command has them blocked, as it should.
#[test]
fn signals_that_were_blocked_do_not_keep_it_from_hearing() {
    let place = Place::new();
    let mut command = place.command("env");
    command.args(["--block-signal", "setsid", TENURE, "run", "--ttl", "1h", "name", "grep", "SigBlk"]);
    command.arg("/proc/self/status");
    // A renewal after a third of an hour would be the next time to look.
    let done = place.spawn(command).finish();
    assert_eq!((done.code, done.stderr.as_str()), (0, ""));
    assert!(done.stdout.trim_end().ends_with("fffffffe7ffbfeff"), "all that can be: {done:?}");
    place.assert_nothing_left();
}

/// Where this runs as root, as a user who has no other process, so that the limit is met at each of the processes in turn.
#[test]
fn a_limit_of_processes_is_reported() {
    let place = Place::new();
    fs::set_permissions(place.path("."), fs::Permissions::from_mode(0o777)).unwrap();
    // It is to be that user's.
    fs::remove_dir(place.locks()).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    let user = (300_000_000 + std::process::id()).to_string();
    for limit in 1..8 {
        let become_user = format!(
            "setpriv --reuid {user} --clear-groups --inh-caps +dac_read_search --ambient-caps +dac_read_search"
        );
        let become_user = if is_root { become_user.as_str() } else { "" };
        let script = format!("ulimit -u {limit}; exec {TENURE} run name -- touch ran-{limit}");
        let mut command = place.command("sh");
        command.args(["-c", &format!("exec setsid {become_user} bash -c '{script}'")]);
        let done = place.spawn(command).finish();
        let ran = place.path(&format!("ran-{limit}")).exists();
        match done.code {
            0 => assert!(ran && done.stderr.is_empty(), "{limit}: {done:?}"),
            code => assert!(
                code == 71 && !ran && done.stderr.contains("ulimit -u") && done.stderr.lines().count() == 1,
                "{limit}: {done:?}"
            ),
        }
        assert!(
            !is_root || (done.code == 0) == (limit > 2),
            "wrapper, holder and command are three: {limit}, {done:?}"
        );
    }
}

/// A name that nothing runs under is not kept for a message.
#[test]
fn an_unread_message_does_not_keep_the_name_of_a_command_that_cannot_start() {
    let place = Place::new();
    let (reader, writer) = full_pipe();
    let holder = place.start_script(&[], "echo $$ > pid; sleep 600");
    place.pid("pid");
    let run = place.tenure(&["run", "--ttl", "1h", "name", "no-such-command"]);
    let running = place.spawn_with(run, Some(writer.into()));
    place.await_queue(1);
    let next = place.start(&["run", "-q", "name", "true"]);
    place.await_queue(2);
    holder.signal(Signal::TERM);
    holder.finish();
    assert_eq!(next.finish().code, 0);
    drop(reader);
    assert_eq!(running.finish().code, 127);
    place.assert_nothing_left();
}

/// A shell that becomes `tenure` leaves it its children, and what they leave behind.
// B4
#[test]
fn children_that_it_was_started_with_are_left_alone() {
    let place = Place::new();
    for (name, signal) in [("killed", Signal::KILL), ("stopped", Signal::STOP)] {
        let script = format!(
            "sleep 600 & echo $! > one-{name}
             (sh -c 'echo $PPID' > shell-{name}; while ! [ -e go-{name} ]; do sleep .01; done; sleep 600 & echo $! > two-{name}) &
             exec {TENURE} run --ttl 3s name -- sh -c 'trap \"\" TERM; trap \"echo $$ > heard-{name}\" USR1; sleep 600 & echo $! > part-{name}; echo $$ > pid-{name}; wait; sleep 600'"
        );
        let mut command = place.command("setsid");
        command.args(["sh", "-c", &script]);
        let running = place.spawn(command);
        let (wrapper, one) = (running.pid(), place.pid(&format!("one-{name}")));
        let (pid, part) = (place.pid(&format!("pid-{name}")), place.pid(&format!("part-{name}")));
        fs::write(place.path(&format!("go-{name}")), "").unwrap();
        let two = place.pid(&format!("two-{name}"));
        let shell = place.pid(&format!("shell-{name}"));
        eventually("the wrapper has reaped its parent", || {
            parent(two) == Some(wrapper) && state(shell).is_none()
        });
        // The wrapper passes on what it hears after it has looked at what the shell left behind.
        kill_process(wrapper, Signal::USR1).unwrap();
        place.pid(&format!("heard-{name}"));
        kill_process(parent(pid).unwrap(), signal).unwrap();
        assert_eq!(running.finish().code, 79, "{name}");
        assert_eq!([pid, part, one, two].map(lives), [false, false, true, true], "{name}");
        for stranger in [one, two] {
            kill_process(stranger, Signal::KILL).unwrap();
        }
    }
    place.assert_nothing_left();
}
