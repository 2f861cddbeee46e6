//! Lost leases, and processes that are killed or stopped: nobody else gets the name before the command and all that came of it is gone.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use crate::support::{Finished, Place, Running, eventually, lives, state};

/// A command that ends with nothing less than KILL, and neither do its children: one in its group, one in a session of its own that
/// lost its parent.
const STUBBORN: &str = r#"
trap "" TERM HUP INT
sleep 600 &
echo $! > grandchild
(setsid sh -c 'echo $$ > daemon; exec sleep 600' &)
while ! [ -s daemon ]; do sleep .01; done
echo $$ > pid
wait; sleep 600"#;

/// The next one's command: it finds out whether anything of the first lives.
const NEXT: &str = "echo in > next";

#[track_caller]
fn assert_no_overlap(place: &Place) {
    assert_eq!((place.read("overlaps").as_str(), place.read("next").as_str()), ("", "in\n"));
    place.assert_nothing_left();
}

#[test]
fn its_holder_killed_before_it_had_a_lease_none_is_lost() {
    let place = Place::new();
    let holder = place.start_script(&[], "echo $$ > pid; sleep 600");
    place.pid("pid");
    let waiting = place.start(&["run", "name", "--", "touch", "ran"]);
    eventually("it is in the queue", || {
        place.end(&["run", "-n", "name", "true"]).stderr.contains("1 waiting")
    });
    kill_process(waiting.holder(), Signal::KILL).unwrap();
    let done = waiting.finish();
    assert_eq!(done.code, 71, "{done:?}");
    assert!(done.stderr.contains("killed before it had one; the command was not started"), "{done:?}");
    holder.signal(Signal::TERM);
    holder.finish();
    assert!(!place.path("ran").exists());
    place.assert_nothing_left();
}

/// What the command starts may close all descriptors: then the wrapper keeps the name, until it has killed it.
// B4
#[test]
fn after_the_holder_is_killed_the_wrapper_keeps_the_name_for_processes_without_a_lifeline() {
    let place = Place::new();
    let script = r#"exec bash -c '
        for fd in /proc/$$/fd/*; do
            case $(readlink $fd) in */lifeline-*) eval "exec ${fd##*/}>&-"; touch closed ;; esac
        done
        sleep 600 & echo $! > grandchild
        wait'"#;
    let running = place.start_script(&["--ttl", "1h"], script);
    let (grandchild, holder) = (place.pid("grandchild"), running.holder());
    assert!(place.path("closed").exists());
    let next = place.start_script(&[], NEXT);
    running.signal(Signal::STOP);
    eventually("it is stopped", || state(running.pid()) == Some('T'));
    kill_process(holder, Signal::KILL).unwrap();
    assert_eq!(place.end(&["run", "-w", ".3", "name", "true"]).code, 75);
    assert!(lives(grandchild));
    running.signal(Signal::CONT);
    assert_eq!(running.finish().code, 79);
    assert_eq!(next.finish().code, 0);
    assert_no_overlap(&place);
}

// B4
#[test]
fn wrapper_and_holder_killed_the_name_is_free_when_all_is_gone() {
    let place = Place::new();
    // Nobody renews: it is the ttl that a name is kept for at the longest.
    let running = place.start_script(
        &["--ttl", "1h"],
        "sleep 600 & echo $! > grandchild; sleep 600 & echo $! > other; echo $$ > pid; wait",
    );
    let (child, holder) = (place.pid("pid"), running.holder());
    let next = place.start_script(&[], NEXT);
    // Stopped first, so that neither sees the other die.
    for pid in [running.pid(), holder] {
        kill_process(pid, Signal::STOP).unwrap();
        eventually("it is stopped", || state(pid) == Some('T'));
    }
    // The holder first: one that is stopped is continued when its parent dies.
    for pid in [holder, running.pid()] {
        kill_process(pid, Signal::KILL).unwrap();
    }
    assert_eq!(running.finish().code, -1);
    eventually("the command dies with its holder", || !lives(child));
    let grandchild = place.pid("grandchild");
    assert_eq!(place.end(&["run", "-w", ".3", "name", "true"]).code, 75, "the grandchild keeps the name");
    assert!(lives(grandchild));
    for pid in [grandchild, place.pid("other")] {
        assert_eq!(place.read("next"), "");
        kill_process(pid, Signal::KILL).unwrap();
    }
    assert_eq!(next.finish().code, 0);
    assert_no_overlap(&place);
}

// B4
#[test]
fn done_after_the_loss_is_lost() {
    let place = Place::new();
    let script = "echo $$ > pid; while ! [ -e go ]; do sleep .01; done";
    let running = place.start_script(&["--ttl", "1s"], script);
    let pid = place.pid("pid");
    let both = [running.pid(), running.holder()];
    both.iter().for_each(|pid| kill_process(*pid, Signal::STOP).unwrap());
    assert_eq!(place.start(&["run", "name", "true"]).finish().code, 0, "the lease expired");
    fs::write(place.path("go"), "").unwrap();
    eventually("the command ends by itself", || !lives(pid));
    // The holder first: a wrapper that goes on kills one that hangs.
    both.iter().rev().for_each(|pid| kill_process(*pid, Signal::CONT).unwrap());
    let done = running.finish();
    assert_eq!(done.code, 79, "{done:?}");
    place.assert_nothing_left();
}

/// The directory is removed under the command, which is gone before its lease could have expired.
#[track_caller]
fn lose_directory(place: &Place, running: Running, ttl: Duration) -> Finished {
    place.pid("pid");
    let removed = Instant::now();
    fs::remove_dir_all(place.locks()).unwrap();
    let done = running.finish();
    assert!(removed.elapsed() < ttl, "gone before the lease could have expired: {:?}", removed.elapsed());
    assert_eq!(done.code, 79, "{done:?}");
    done
}

// B4, R1.5
#[test]
fn a_lost_lease_stops_the_command_in_time() {
    let place = Place::new();
    let ttl = Duration::from_secs(8);
    let script = r#"
        sh -c 'trap "echo TERM >> got; exit" TERM; echo > ready; while :; do sleep .01; done' &
        trap "echo TERM >> got; exit 3" TERM
        while ! [ -e ready ]; do sleep .01; done
        echo $$ > pid
        while :; do sleep .01; done"#;
    let running = place.start_script(&["--ttl", "8s"], script);
    let done = lose_directory(&place, running, ttl);
    assert!(done.stderr.contains("tenure: lease on `name` "), "{done:?}");
    assert!(done.stderr.contains("locks could not be opened: no such file"), "what is wrong: {done:?}");
    assert_eq!(place.read("got"), "TERM\nTERM\n", "the command and its child were asked to end");
    assert!(place.is_lifeless());
    place.assert_nothing_left();
}

// B4
#[test]
fn a_command_that_ignores_term_is_killed_in_time() {
    let place = Place::new();
    let ttl = Duration::from_secs(4);
    let running = place.start_script(&["--ttl", "4s"], STUBBORN);
    let done = lose_directory(&place, running, ttl);
    assert!(done.stderr.contains("tenure: command did not end in time and is killed"), "{done:?}");
    assert!(place.is_lifeless());
    place.assert_nothing_left();
}

// B4
#[test]
fn a_short_lease_is_renewed_for_long() {
    let place = Place::new();
    let done = place.start_script(&["--ttl", "1s"], "sleep 4").finish();
    assert_eq!((done.code, done.stderr.as_str()), (0, ""));
}

/// A pipe that nobody reads, and that is full.
pub(super) fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    for piece in [4_096, 1] {
        while rustix::io::write(&writer, &vec![b'x'; piece]).is_ok() {}
    }
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    (reader, writer)
}

// B4
#[test]
fn an_unread_message_does_not_delay_stopping_the_command() {
    let (_reader, writer) = full_pipe();
    for signal in [Signal::KILL, Signal::STOP] {
        let place = Place::new();
        let command = place.script(&["--ttl", "4s"], STUBBORN);
        let running = place.spawn_with(command, Some(writer.try_clone().unwrap().into()));
        place.pid("pid");
        let next = place.start_script(&[], NEXT);
        kill_process(running.holder(), signal).unwrap();
        assert_eq!(next.finish().code, 0);
        assert_eq!(
            (place.read("overlaps").as_str(), place.read("next").as_str()),
            ("", "in\n"),
            "{signal:?}"
        );
        running.signal(Signal::KILL);
        running.finish();
        place.assert_nothing_left();
    }
}
