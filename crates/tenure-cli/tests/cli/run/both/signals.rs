//! Signals on their way to the command, with a process group of its own and without.

use rustix::process::{Pid, Signal, kill_process};

use super::on_both_stores;
use crate::support::{Place, Running, eventually, parent};

on_both_stores!(
    each_reaches_a_group_of_its_own_once,
    the_holder_passes_them_as_well,
    each_reaches_the_command_on_a_terminal_once,
    what_tenure_was_started_to_ignore_is_not_passed,
);

/// Writes down the signals that it gets, and ends with QUIT. In Perl, which runs a handler for every signal; a shell takes two that come
/// together for one.
const LISTEN: &str = r#"
    for my $name (qw(HUP INT USR1 USR2 ALRM TERM CONT TSTP WINCH)) {
        $SIG{$name} = sub { open my $got, ">>", "got"; syswrite $got, "$name\n" };
    }
    $SIG{QUIT} = sub { exit 5 };
    open my $pid, ">", "pid.new"; print $pid "$$\n"; close $pid; rename "pid.new", "pid";
    select undef, undef, undef, .01 while 1;"#;

/// All that are passed on, but for QUIT.
const NAMES: [(Signal, &str); 9] = [
    (Signal::HUP, "HUP"),
    (Signal::INT, "INT"),
    (Signal::USR1, "USR1"),
    (Signal::USR2, "USR2"),
    (Signal::ALARM, "ALRM"),
    (Signal::TERM, "TERM"),
    (Signal::CONT, "CONT"),
    (Signal::TSTP, "TSTP"),
    (Signal::WINCH, "WINCH"),
];

fn wrapper_of(command: Pid) -> Pid {
    parent(holder_of(command)).unwrap()
}

fn holder_of(command: Pid) -> Pid {
    parent(command).unwrap()
}

#[track_caller]
fn assert_each_passes_once(place: &Place, running: Running, whom: fn(Pid) -> Pid) {
    let told = whom(place.pid("pid"));
    let mut expected = String::new();
    for (signal, name) in NAMES {
        expected = format!("{expected}{name}\n");
        kill_process(told, signal).unwrap();
        eventually(name, || place.read("got").len() >= expected.len());
    }
    kill_process(told, Signal::QUIT).unwrap();
    assert_eq!(running.finish().code, 5, "it goes on until the command ends");
    assert_eq!(place.read("got"), expected, "each once");
    place.assert_nothing_left();
}

// B4
fn each_reaches_a_group_of_its_own_once(place: &Place) {
    assert_each_passes_once(place, place.start(&["run", "name", "--", "perl", "-e", LISTEN]), wrapper_of);
}

/// The process that others are told when they ask who holds the name is the holder.
fn the_holder_passes_them_as_well(place: &Place) {
    assert_each_passes_once(place, place.start(&["run", "name", "--", "perl", "-e", LISTEN]), holder_of);
}

// B4
fn each_reaches_the_command_on_a_terminal_once(place: &Place) {
    std::fs::write(place.path("listen.pl"), LISTEN).unwrap();
    let mut terminal = place.command("script");
    let run = format!("exec {} run name -- perl listen.pl", env!("CARGO_BIN_EXE_tenure"));
    terminal.args(["-q", "-e", "-c", &run, "/dev/null"]);
    assert_each_passes_once(place, place.spawn(terminal), wrapper_of);
}

/// As nohup(1) does. The command itself listens to them, so that it would hear of them.
fn what_tenure_was_started_to_ignore_is_not_passed(place: &Place) {
    let mut command = place.command("sh");
    let names = NAMES.map(|(_, name)| name).join(" ");
    let script =
        format!("trap '' {names}; exec setsid {} run name -- perl -e \"$1\"", env!("CARGO_BIN_EXE_tenure"));
    command.args(["-c", &script, "sh", LISTEN]);
    let running = place.spawn(command);
    place.pid("pid");
    for (signal, _) in NAMES {
        running.signal(signal);
        kill_process(running.holder(), signal).unwrap();
    }
    running.signal(Signal::QUIT);
    assert_eq!(running.finish().code, 5);
    assert_eq!(place.read("got"), "");
}
