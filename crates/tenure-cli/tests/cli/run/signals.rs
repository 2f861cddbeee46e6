//! Signals, without a terminal.

use rustix::process::{Signal, kill_process};

use crate::support::{Place, eventually, parent, state};

#[test]
fn without_a_terminal_the_whole_tree_is_signalled() {
    let place = Place::new();
    let running = place.start_script(&[], "sleep 600 & echo $! > grandchild; wait; wait");
    place.pid("grandchild");
    running.signal(Signal::TERM);
    assert_eq!(running.finish().code, 143);
    assert!(place.is_lifeless(), "the grandchild has ended as well");
    place.assert_nothing_left();
}

// B4
#[test]
fn after_a_signal_the_name_is_kept_until_the_whole_group_has_ended() {
    let place = Place::new();
    let slow = "trap 'while ! [ -e go ]; do sleep .01; done; exit' TERM; echo \\$\\$ > pid; while :; do sleep .01; done";
    let running = place.start_script(&[], &format!("sh -c \"{slow}\" & wait"));
    let slow = place.pid("pid");
    running.signal(Signal::TERM);
    eventually("the command is gone", || parent(slow) == Some(running.holder()));
    assert_eq!(place.end(&["run", "-w", ".1", "name", "true"]).code, 75);
    std::fs::write(place.path("go"), "").unwrap();
    assert_eq!(running.finish().code, 143);
    assert!(place.is_lifeless());
    place.assert_nothing_left();
}

#[test]
fn a_command_that_is_stopped_goes_on() {
    let place = Place::new();
    let running = place.start_script(&["--ttl", "1s"], "echo $$ > pid; sleep .2; echo done > done");
    let pid = place.pid("pid");
    kill_process(pid, Signal::STOP).unwrap();
    eventually("it is stopped", || state(pid) == Some('T'));
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    assert_eq!(place.end(&["run", "-n", "name", "true"]).code, 75, "the lease is renewed all the while");
    running.signal(Signal::CONT);
    assert_eq!(running.finish().code, 0);
    assert_eq!(place.read("done"), "done\n");
}

/// What the command left running in the background is not waited for, and keeps no name.
#[test]
fn background_processes_are_left_alone() {
    let place = Place::new();
    let done = place.start(&["run", "name", "--", "sh", "-c", "sleep 600 >&- 2>&- & echo $! > pid"]).finish();
    assert_eq!(done.code, 0);
    assert_eq!(place.end(&["run", "-n", "name", "true"]).code, 0);
    let left = place.pid("pid");
    assert_eq!(place.processes(), [left.as_raw_pid()]);
}
