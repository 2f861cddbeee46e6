//! Processes that are killed or stopped: nobody else gets the name while anything of the command lives, as far as docs/cli.md promises.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::on_both_stores;
use crate::support::{Place, eventually, lives, state};

on_both_stores!(
    the_wrapper_killed_all_is_gone_before_the_next_begins,
    the_holder_killed_all_is_gone_before_the_next_begins,
    both_killed_the_command_is_gone_before_the_next_begins,
    the_command_killed_the_name_is_given_back,
    a_tree_stopped_past_its_lease_is_killed_when_it_goes_on,
    a_holder_stopped_past_its_lease_all_is_gone_before_the_next_begins,
    a_wrapper_stopped_past_its_lease_changes_nothing,
);

/// A command that ends with nothing less than KILL, and neither do its children: one in its group, one in a session of its own that
/// lost its parent.
const STUBBORN: &str = r#"
trap "" TERM HUP INT
sleep 600 &
(setsid sh -c 'echo $$ > daemon; exec sleep 600' &)
while ! [ -s daemon ]; do sleep .01; done
echo $$ > pid
wait; sleep 600"#;

/// For a lease whose holder died: a directory sees that at once, a server when the ttl is over.
fn ttl_of_the_dead(place: &Place) -> &'static str {
    if place.is_on_redis() { "1s" } else { "1h" }
}

/// The next one's command: it finds out whether anything of the first lives.
const NEXT: &str = "echo in > next";

#[track_caller]
fn assert_no_overlap(place: &Place) {
    assert_eq!((place.read("overlaps").as_str(), place.read("next").as_str()), ("", "in\n"));
    place.assert_nothing_left();
    // Whoever comes next sweeps what the killed left in a directory.
    assert!(!place.inspect("name").is_held());
    assert_eq!(place.leftovers(), [""; 0]);
}

// B4
fn the_wrapper_killed_all_is_gone_before_the_next_begins(place: &Place) {
    let running = place.start_script(&["--ttl", "1h"], STUBBORN);
    place.pid("pid");
    let next = place.start_script(&[], NEXT);
    place.await_queue(1);
    running.signal(Signal::KILL);
    assert_eq!(running.finish().code, -1);
    assert_eq!(next.finish().code, 0);
    assert_no_overlap(place);
}

// B4
fn the_holder_killed_all_is_gone_before_the_next_begins(place: &Place) {
    let running = place.start_script(&["--ttl", ttl_of_the_dead(place)], STUBBORN);
    place.pid("pid");
    let next = place.start_script(&[], NEXT);
    place.await_queue(1);
    kill_process(running.holder(), Signal::KILL).unwrap();
    let done = running.finish();
    assert_eq!(done.code, 79, "{done:?}");
    let why = "tenure: lease lost: the process that held the lease was killed";
    assert!(done.stderr.contains(why), "{done:?}");
    assert_eq!(next.finish().code, 0);
    assert_no_overlap(place);
}

// B4
fn both_killed_the_command_is_gone_before_the_next_begins(place: &Place) {
    let running = place.start_script(&["--ttl", ttl_of_the_dead(place)], "echo $$ > pid; exec sleep 600");
    let (command, holder) = (place.pid("pid"), running.holder());
    let next = place.start_script(&[], NEXT);
    place.await_queue(1);
    // Stopped, so that it does not see the holder die.
    running.signal(Signal::STOP);
    eventually("it is stopped", || state(running.pid()) == Some('T'));
    kill_process(holder, Signal::KILL).unwrap();
    running.signal(Signal::KILL);
    assert_eq!(running.finish().code, -1);
    eventually("the command dies with its holder", || !lives(command));
    assert_eq!(next.finish().code, 0);
    assert_no_overlap(place);
}

// B4
fn the_command_killed_the_name_is_given_back(place: &Place) {
    let running = place.start_script(&["--ttl", "1h"], "echo $$ > pid; exec sleep 600");
    let command = place.pid("pid");
    let next = place.start_script(&[], NEXT);
    place.await_queue(1);
    kill_process(command, Signal::KILL).unwrap();
    let done = running.finish();
    assert_eq!((done.code, done.stderr.as_str()), (137, ""));
    assert_eq!(next.finish().code, 0);
    assert_no_overlap(place);
}

// B4
fn a_tree_stopped_past_its_lease_is_killed_when_it_goes_on(place: &Place) {
    let running = place.start_script(&["--ttl", "1s"], "echo $$ > pid; trap '' TERM; sleep 600");
    let command = place.pid("pid");
    let all = place.processes();
    let each = |signal| {
        for pid in &all {
            // The sleep may not have begun when they were counted, and goes with its group.
            let _ = kill_process(Pid::from_raw(*pid).unwrap(), signal);
        }
    };
    each(Signal::STOP);
    let first = place.inspect("name").holder.expect("it is held").fence;
    let next = place.end(&["run", "name", "--", "sh", "-c", "echo $TENURE_FENCE"]);
    assert_eq!(next.code, 0, "the lease expired: {next:?}");
    assert!(next.stdout.trim().parse::<u64>().unwrap() > first.get(), "what is late has a lower fence");
    assert!(lives(command));
    each(Signal::CONT);
    let done = running.finish();
    assert_eq!(done.code, 79, "{done:?}");
    let why = "tenure: lease on `name` was not renewed in time, because `tenure` was stopped";
    assert_eq!(done.stderr.matches(why).count(), 1, "once, whoever is the first to go on: {done:?}");
    assert!(!lives(command));
    place.assert_nothing_left();
}

// B4
fn a_holder_stopped_past_its_lease_all_is_gone_before_the_next_begins(place: &Place) {
    let running = place.start_script(&["--ttl", "4s"], STUBBORN);
    place.pid("pid");
    let next = place.start_script(&[], NEXT);
    kill_process(running.holder(), Signal::STOP).unwrap();
    let done = running.finish();
    assert_eq!(done.code, 79, "{done:?}");
    assert!(done.stderr.contains("tenure: lease lost: the process that holds the lease hangs"), "{done:?}");
    assert_eq!(next.finish().code, 0);
    assert_no_overlap(place);
}

// B4
fn a_wrapper_stopped_past_its_lease_changes_nothing(place: &Place) {
    let running =
        place.start_script(&["--ttl", "1s"], "echo $$ > pid; while ! [ -e go ]; do sleep .01; done");
    place.pid("pid");
    running.signal(Signal::STOP);
    eventually("it is stopped", || state(running.pid()) == Some('T'));
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(place.end(&["run", "-n", "name", "true"]).code, 75, "the holder renews");
    std::fs::write(place.path("go"), "").unwrap();
    eventually("the command ends", || place.is_lifeless());
    running.signal(Signal::CONT);
    let done = running.finish();
    assert_eq!((done.code, done.stderr.as_str()), (0, ""));
    place.assert_nothing_left();
    assert_eq!(place.leftovers(), [""; 0]);
}
