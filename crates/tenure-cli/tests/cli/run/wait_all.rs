//! `--wait-all`: the name is held until all that the command started has ended.

use std::time::Duration;

use rustix::process::{Signal, kill_process};

use crate::support::{Place, Running, eventually, lives};

/// A command that ends with 3, and leaves a child in its group and a daemon: in a session of its own, without a parent, and with every descriptor closed.
const LEAVES: &str = r#"
    sleep 600 & echo $! > child
    (setsid bash -c 'for fd in /proc/$$/fd/*; do eval "exec ${fd##*/}>&-"; done
        echo $$ > daemon; exec sleep 600' &)
    while ! [ -s daemon ]; do sleep .01; done
    exit 3"#;

fn both() -> [Place; 2] {
    [Place::new(), Place::on_redis()]
}

fn is_free(place: &Place) -> bool {
    place.end(&["run", "-n", "-q", "name", "true"]).code == 0
}

/// Before the next one writes its numbers.
fn forget(place: &Place) {
    for pid in ["child", "daemon"] {
        std::fs::remove_file(place.path(pid)).unwrap();
    }
}

/// One whose command has ended, and says so.
fn started(place: &Place, options: &[&str]) -> Running {
    let running = place.start_script(&[&["--wait-all", "-v"], options].concat(), LEAVES);
    eventually("the command has ended", || {
        running.said().contains("command has ended; `name` is held until")
    });
    running
}

#[test]
fn the_name_is_held_until_the_last_has_ended() {
    for place in both() {
        // Without it, a command that leaves something behind is done.
        let done = place.start_script(&[], LEAVES).finish();
        assert_eq!((done.code, is_free(&place)), (3, true));
        for pid in ["child", "daemon"] {
            kill_process(place.pid(pid), Signal::KILL).unwrap();
        }
        forget(&place);
        eventually("all has ended", || place.is_lifeless());

        let running = started(&place, &["--ttl", "5s"]);
        let (child, daemon) = (place.pid("child"), place.pid("daemon"));
        let pids = [child, daemon].map(|pid| pid.as_raw_pid().to_string());
        assert!(pids.iter().all(|pid| running.said().contains(pid)), "{}", running.said());
        let fence = place.inspect("name").holder.unwrap().fence;
        let mut least = Duration::MAX;
        eventually("it is renewed", || {
            let left = place.inspect("name").holder.map_or(Duration::ZERO, |holder| holder.remaining);
            least = least.min(left);
            left > least + Duration::from_secs(1)
        });
        assert!(!is_free(&place), "{}", running.said());
        kill_process(child, Signal::KILL).unwrap();
        eventually("it has ended", || !lives(child));
        assert!(!is_free(&place), "the daemon lives");
        assert_eq!(place.inspect("name").holder.unwrap().fence, fence);
        kill_process(daemon, Signal::KILL).unwrap();
        let done = running.finish();
        assert_eq!(done.code, 3, "{done:?}");
        assert!(done.stderr.contains("gave `name` back"), "{done:?}");
        assert!(is_free(&place));
        place.assert_nothing_left();
    }
}

#[test]
fn a_signal_ends_all_of_it() {
    let place = Place::new();
    // What a shell starts in the background ignores INT.
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let running = started(&place, &[]);
        let pids = [place.pid("child"), place.pid("daemon")];
        running.signal(signal);
        let done = running.finish();
        assert_eq!(done.code, 3, "that of the command, which had ended: {done:?}");
        assert!(pids.iter().all(|pid| !lives(*pid)));
        assert!(is_free(&place));
        forget(&place);
    }
    // While the command runs: once for each of them.
    let script = r#"
        count='trap "echo x >> $1; exit" TERM; echo $$ > $1.pid; while :; do sleep .01; done'
        sh -c "$count" sh child & (setsid sh -c "$count" sh daemon &)
        trap "echo x >> command; exit 5" TERM
        while ! [ -s child.pid ] || ! [ -s daemon.pid ]; do sleep .01; done
        echo $$ > pid; while :; do sleep .01; done"#;
    let running = place.start_script(&["--wait-all"], script);
    place.pid("pid");
    running.signal(Signal::TERM);
    assert_eq!(running.finish().code, 5);
    for file in ["child", "daemon", "command"] {
        assert_eq!(place.read(file), "x\n", "{file}");
        if file != "command" {
            assert!(!lives(place.pid(&format!("{file}.pid"))));
        }
    }
    // While the command runs, and its child ignores the signal.
    let ignoring = r#"sleep 600 & echo $! > background; trap "exit 6" INT; echo $$ > other; while :; do sleep .01; done"#;
    let interrupted = place.start_script(&["--wait-all"], ignoring);
    place.pid("other");
    interrupted.signal(Signal::INT);
    assert_eq!(interrupted.finish().code, 6);
    assert!(!lives(place.pid("background")) && place.is_lifeless());
    place.assert_nothing_left();
}

#[test]
fn a_loss_and_max_hold_stop_all_of_it() {
    for place in both() {
        let running = started(&place, &[]);
        let fence = place.inspect("name").holder.unwrap().fence.to_string();
        assert_eq!(place.end(&["break", "--yes", "--fence", &fence, "name"]).code, 0);
        let done = running.finish();
        assert_eq!(done.code, 79, "{done:?}");
        assert!(place.is_lifeless());
        place.assert_nothing_left();
        forget(&place);

        let done = place.start_script(&["--wait-all", "--max-hold", "1s"], LEAVES).finish();
        assert_eq!(done.code, 124, "{done:?}");
        assert!(place.is_lifeless() && is_free(&place));
        place.assert_nothing_left();
    }
}

#[test]
fn a_process_of_tenure_killed_nothing_is_left() {
    let place = Place::new();
    let running = started(&place, &[]);
    kill_process(running.holder(), Signal::KILL).unwrap();
    let done = running.finish();
    assert_eq!(done.code, 79, "{done:?}");
    assert!(place.is_lifeless());
    place.assert_nothing_left();
    forget(&place);

    let running = started(&place, &[]);
    running.signal(Signal::KILL);
    running.finish();
    eventually("the holder kills all of it", || place.is_lifeless());
    place.assert_nothing_left();
    forget(&place);

    // The wrapper stands for all of it, too.
    let mut running = started(&place, &["--on-lost", "ignore"]);
    let (child, daemon) = (place.pid("child"), place.pid("daemon"));
    kill_process(running.holder(), Signal::KILL).unwrap();
    eventually("it says so", || running.said().contains("the command goes on"));
    kill_process(child, Signal::KILL).unwrap();
    eventually("it has ended", || !lives(child));
    assert!(!running.has_ended() && lives(daemon));
    running.signal(Signal::TERM);
    assert_eq!(running.finish().code, 3);
    assert!(!lives(daemon));
    place.assert_nothing_left();
}
