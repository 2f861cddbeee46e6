//! Job control, on a terminal of script(1) with a shell in it.

use std::io::Write;
use std::process::{ChildStdin, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Place, Running, eventually, eventually_or, lives, parent, state};

/// A shell on a terminal of its own.
pub(super) struct Terminal {
    shell: Running,
    keys: ChildStdin,
}

impl Terminal {
    /// With a shell that has jobs, and reads what is typed.
    pub(super) fn open(place: &Place) -> Self {
        let mut terminal = Terminal::run(place, "exec bash --norc --noprofile -i");
        terminal.type_keys(&format!("T={}\n", env!("CARGO_BIN_EXE_tenure")));
        terminal
    }

    /// With a shell that runs this. `$T` is `tenure`.
    pub(super) fn run(place: &Place, line: &str) -> Self {
        let mut script = place.command("script");
        script.args(["-q", "-c", line, "/dev/null"]).stdin(Stdio::piped());
        script.env("T", env!("CARGO_BIN_EXE_tenure")).env("TERM", "xterm").env("SHELL", "/bin/sh");
        let mut shell = place.spawn(script);
        let keys = shell.stdin();
        Terminal { shell, keys }
    }

    pub(super) fn type_keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// All that was written to it.
    pub(super) fn shown(&self) -> String {
        String::from_utf8(self.shell.shown()).unwrap()
    }

    /// Waits until that is written to it.
    #[track_caller]
    pub(super) fn shows(&self, what: &str) {
        eventually_or(|| self.shown().contains(what), || format!("{what:?} in {:?}", self.shown()));
    }

    /// When what it runs has ended.
    pub(super) fn finish(self) -> String {
        self.shell.finish().stdout
    }

    pub(super) fn close(mut self) {
        self.type_keys("exit\n");
        drop(self.keys);
        self.shell.finish();
    }
}

// B4
#[test]
fn control_c_reaches_the_command_once() {
    let place = Place::new();
    let mut terminal = Terminal::open(&place);
    // In Perl, which runs a handler for every signal; a shell takes two that come together for one.
    std::fs::write(
        place.path("count.pl"),
        r#"$SIG{INT} = sub { open my $got, ">>", "got"; print $got "INT\n" };
           open my $pid, ">", "pid"; print $pid "$$\n"; close $pid;
           select undef, undef, undef, .01 until -e "go";
           exit 4"#,
    )
    .unwrap();
    terminal.type_keys("$T run name -- perl count.pl; echo $? > code\n");
    place.pid("pid");
    terminal.type_keys("\u{3}");
    eventually("the command gets it", || place.read("got") == "INT\n");
    std::fs::write(place.path("go"), "").unwrap();
    eventually("the command goes on and ends as it likes", || place.read("code") == "4\n");
    assert_eq!(place.read("got"), "INT\n", "once");
    terminal.close();
    place.assert_nothing_left();
}

// B4
#[test]
fn control_z_stops_it_and_fg_continues_it_and_the_lease_is_kept() {
    let place = Place::new();
    let mut terminal = Terminal::open(&place);
    terminal.type_keys(
        "$T run --ttl 1s name -- sh -c 'echo $$ > pid; read line; echo $line > line'; echo $? > code\n",
    );
    let pid = place.pid("pid");
    terminal.type_keys("\u{1a}");
    eventually("the command is stopped", || state(pid) == Some('T'));
    eventually("the shell sees it stopped", || place.read("code") == "147\n");
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(place.end(&["run", "-n", "name", "true"]).code, 75, "the lease is renewed all the while");
    terminal.type_keys("fg; echo $? > code\n");
    terminal.type_keys("typed\n");
    eventually("it ends", || place.read("code") == "0\n");
    assert_eq!(place.read("line"), "typed\n", "it reads from the terminal");
    terminal.close();
    place.assert_nothing_left();
}

#[test]
fn control_c_and_control_z_while_waiting() {
    let place = Place::new();
    let holder = place.start_script(&[], "echo $$ > pid; sleep 600");
    place.pid("pid");
    let is_queued = || place.end(&["run", "-n", "name", "true"]).stderr.contains("1 waiting for it");
    let mut terminal = Terminal::open(&place);
    terminal.type_keys("$T run name -- touch ran; echo $? > code\n");
    eventually("it waits", is_queued);
    terminal.type_keys("\u{1a}");
    eventually("the shell sees it stopped", || place.read("code") == "147\n");
    terminal.type_keys("fg; echo $? > code\n");
    let is_stopped = |pid: &i32| state(Pid::from_raw(*pid).unwrap()) == Some('T');
    eventually("it goes on", || !place.processes().iter().any(is_stopped));
    terminal.type_keys("\u{3}");
    eventually("it is interrupted", || place.read("code") == "130\n");
    assert!(!is_queued(), "it left the queue");
    terminal.close();
    holder.signal(Signal::TERM);
    holder.finish();
    assert!(!place.path("ran").exists());
    place.assert_nothing_left();
}

// B4
#[test]
fn a_terminal_that_is_gone_ends_the_command_of_its_first_process() {
    let place = Place::new();
    let mut script = place.command("script");
    let run = "run name -- sh -c 'echo $$ > pid; exec sleep 600'";
    script.args(["-q", "-c", &format!("exec {} {run}", env!("CARGO_BIN_EXE_tenure")), "/dev/null"]);
    let terminal = place.spawn(script);
    let pid = place.pid("pid");
    // As when a connection breaks: the kernel sends SIGHUP to the leader of the session alone.
    terminal.signal(Signal::KILL);
    eventually("the command is gone", || !lives(pid));
    terminal.finish();
    eventually("so is all else", || place.processes().is_empty());
    place.assert_nothing_left();
}

#[test]
fn control_z_and_control_c_while_a_name_is_kept() {
    let place = Place::new();
    let mut terminal = Terminal::open(&place);
    terminal.type_keys("$T run --min-hold 1h name -- sh -c 'echo $$ > pid; exit 4'; echo $? > code\n");
    let pid = place.pid("pid");
    eventually("its end is seen", || state(pid).is_none());
    terminal.type_keys("\u{1a}");
    eventually("the shell sees it stopped", || place.read("code") == "147\n");
    assert_eq!(place.end(&["run", "-n", "name", "true"]).code, 75, "it is kept");
    terminal.type_keys("fg; echo $? > code\n");
    let is_stopped = |pid: &i32| state(Pid::from_raw(*pid).unwrap()) == Some('T');
    eventually("it goes on", || !place.processes().iter().any(is_stopped));
    terminal.type_keys("\u{3}");
    eventually("it ends as the command did", || place.read("code") == "4\n");
    assert_eq!(place.end(&["run", "-n", "name", "true"]).code, 0, "it was given back");
    terminal.close();
    place.assert_nothing_left();
}

/// Its job is not to stay in the shell as a stopped one.
#[test]
fn a_command_that_is_killed_while_it_is_stopped_ends() {
    let place = Place::new();
    let mut terminal = Terminal::open(&place);
    terminal.type_keys(
        "$T run --max-hold 1s -k 0 name -- sh -c 'echo $PPID > holder; echo $$ > pid; read line'; echo $? > code\n",
    );
    let (pid, holder) = (place.pid("pid"), place.pid("holder"));
    let wrapper = parent(holder).unwrap();
    terminal.type_keys("\u{1a}");
    eventually("the shell sees it stopped", || place.read("code") == "147\n");
    eventually("all of it ends", || ![pid, holder, wrapper].into_iter().any(lives));
    terminal.close();
    place.assert_nothing_left();
}

/// The wrapper is stopped after the command, and continued after it; the two must not change places.
#[test]
fn a_command_that_is_continued_at_once_leaves_no_wrapper_stopped() {
    let place = Place::new();
    let mut terminal = Terminal::open(&place);
    terminal.type_keys("$T run name -- sh -c 'echo $PPID > holder; echo $$ > pid; exec sleep 600'\n");
    let (pid, wrapper) = (place.pid("pid"), parent(place.pid("holder")).unwrap());
    for turn in 0..400 {
        kill_process(pid, Signal::STOP).unwrap();
        let start = Instant::now();
        while start.elapsed() < Duration::from_micros(turn) {}
        kill_process(pid, Signal::CONT).unwrap();
        // Whether it is still to be stopped can't be seen.
        std::thread::sleep(Duration::from_millis(5));
        eventually("the wrapper goes on", || state(wrapper) != Some('T'));
    }
    kill_process(pid, Signal::TERM).unwrap();
    eventually("it ends", || !lives(wrapper));
    terminal.close();
    place.assert_nothing_left();
}
