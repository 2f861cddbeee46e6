//! `tenure hold`: a name is held for as long as someone keeps its stdin open.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{Place, Running, eventually};

fn both() -> [Place; 2] {
    [Place::new(), Place::on_redis()]
}

fn is_free(place: &Place) -> bool {
    place.end(&["run", "-n", "-q", "name", "true"]).code == 0
}

fn start(place: &Place, options: &[&str]) -> Running {
    let mut command = place.tenure(&[&["hold"], options, &["name"]].concat());
    command.stdin(Stdio::piped());
    place.spawn(command)
}

/// One that holds.
fn holding(place: &Place, options: &[&str]) -> Running {
    let running = start(place, options);
    eventually("it says that it is held", || running.printed().ends_with('\n'));
    assert!(!is_free(place));
    running
}

// B4
#[test]
fn held_until_stdin_closes() {
    for place in both() {
        let mut hold = holding(&place, &["--label", "script"]);
        let line = hold.printed();
        let fence = line.strip_prefix("held name fence ").and_then(|rest| rest.strip_suffix('\n')).unwrap();
        fence.parse::<u64>().unwrap();
        let mut stdin = hold.stdin();
        stdin.write_all(b"what is written\nchanges nothing\n").unwrap();
        assert!(!is_free(&place));
        drop(stdin);
        let done = hold.finish();
        assert_eq!((done.code, done.stdout, done.stderr.as_str()), (0, line, ""));
        assert!(is_free(&place));

        let mut hold = holding(&place, &["--json"]);
        drop(hold.stdin());
        let done = hold.finish();
        assert!(done.stdout.starts_with(r#"{"v":1,"name":"name","held":true,"fence":"#), "{done:?}");
        assert!(done.stdout.contains(r#","waited_ms":"#), "{done:?}");
        place.assert_nothing_left();
    }
}

// R2.1
#[test]
fn it_is_renewed() {
    for place in both() {
        let start = Instant::now();
        let mut hold = holding(&place, &["--ttl", "1s"]);
        while start.elapsed() < Duration::from_millis(2_500) {
            assert!(!is_free(&place) && !hold.has_ended());
        }
        drop(hold.stdin());
        assert_eq!(hold.finish().code, 0);
    }
}

// B4
#[test]
fn a_signal_gives_it_back() {
    for place in both() {
        for (signal, code) in
            [(Signal::HUP, 129), (Signal::INT, 130), (Signal::QUIT, 131), (Signal::TERM, 143)]
        {
            let hold = holding(&place, &[]);
            hold.signal(signal);
            let done = hold.finish();
            assert_eq!((done.code, done.stderr.as_str()), (code, ""));
            assert!(is_free(&place));
        }
    }
}

// R2.2
#[test]
fn killed_it_holds_no_longer_than_its_ttl() {
    for place in both() {
        let hold = holding(&place, &["--ttl", "1s"]);
        hold.signal(Signal::KILL);
        hold.finish();
        eventually("it is free", || is_free(&place));
    }
    let place = Place::new();
    let hold = holding(&place, &["--ttl", "24h"]);
    hold.signal(Signal::KILL);
    hold.finish();
    eventually("a directory frees it at once", || is_free(&place));
}

// R2.1
#[test]
fn taken_by_force_it_says_so() {
    let place = Place::on_redis();
    let mut hold = holding(&place, &["--ttl", "1h"]);
    place.server().command(&["FLUSHALL"]);
    let _stdin = hold.stdin();
    let done = hold.finish();
    assert_eq!(done.code, 79);
    assert!(done.stderr.starts_with("tenure: lease on `name` is gone from the store"), "{done:?}");
}

// R2.1
#[test]
fn it_ends_before_a_lease_that_is_not_renewed_can_expire() {
    let place = Place::on_redis();
    let mut hold = holding(&place, &["--ttl", "6s"]);
    let _stdin = hold.stdin();
    let start = Instant::now();
    place.server().stop();
    let done = hold.finish();
    let took = start.elapsed();
    place.server().cont();
    assert_eq!(done.code, 79);
    assert!(done.stderr.starts_with("tenure: lease on `name` was not renewed in time"), "{done:?}");
    // Renewed at the latest just before the server stopped.
    assert!(took < Duration::from_secs(6), "{took:?}");
}

// R1.4
#[test]
fn nobody_waits_for_a_script_that_is_gone() {
    for place in both() {
        let mut held = holding(&place, &[]);
        for (options, code) in [(&[][..], 75), (&["-E", "9"], 9)] {
            let mut waiting = start(&place, options);
            drop(waiting.stdin());
            let done = waiting.finish();
            assert_eq!((done.code, done.stdout.as_str()), (code, ""));
            let message = "tenure: stdin was closed before `name` was acquired\n";
            assert!(done.stderr.ends_with(message), "{done:?}");
            let busy = place.end(&["run", "-n", "name", "true"]).stderr;
            assert!(busy.contains("nobody else waits"), "it has left: {busy}");
        }
        for (options, code) in [(&["-n"][..], 75), (&["-w", "1s", "-E", "9"], 9)] {
            let mut refused = start(&place, options);
            let _stdin = refused.stdin();
            let done = refused.finish();
            assert!(done.code == code && done.stderr.contains("`name` is held by "), "{done:?}");
        }
        drop(held.stdin());
        assert_eq!(held.finish().code, 0);
        // Of a name that is free, the end of stdin is the end of the hold.
        let done = place.end(&["hold", "name"]);
        assert!(done.code == 0 && done.stdout.starts_with("held name fence "), "{done:?}");
    }
}

#[test]
fn a_line_that_cannot_be_written_gives_the_name_back() {
    for place in both() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = place.tenure(&["hold", "name"]);
        command.stdin(Stdio::piped()).stdout(full).stderr(Stdio::piped());
        let output = command.spawn().unwrap().wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(74), "{output:?}");
        assert!(is_free(&place));
    }
}

/// Renewals do not wait for the script, nor does a signal.
#[test]
fn a_script_that_does_not_read_holds_up_nothing() {
    for place in both() {
        let full_pipe = || {
            let (reader, mut writer) = std::io::pipe().unwrap();
            writer.write_all(&[b' '; 65_536]).unwrap();
            (reader, writer)
        };
        let (_reader, pipe) = full_pipe();
        let mut command = place.tenure(&["hold", "--ttl", "1s", "name"]);
        command.stdin(Stdio::piped()).stdout(pipe);
        let mut hold = command.spawn().unwrap();
        let _stdin = hold.stdin.take();
        eventually("it is held", || !is_free(&place));
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(2_500) {
            assert!(!is_free(&place));
        }
        let pid = rustix::process::Pid::from_child(&hold);
        rustix::process::kill_process(pid, Signal::TERM).unwrap();
        assert_eq!(hold.wait().unwrap().code(), Some(143));
        assert!(is_free(&place));

        let (_reader, pipe) = full_pipe();
        let mut acquire =
            place.tenure(&["acquire", "name"]).stdout(pipe).stderr(Stdio::null()).spawn().unwrap();
        eventually("it is held", || !is_free(&place));
        rustix::process::kill_process(rustix::process::Pid::from_child(&acquire), Signal::INT).unwrap();
        assert_eq!(acquire.wait().unwrap().code(), Some(130));
        assert!(is_free(&place));
    }
}

/// As the help and the documentation show it.
#[test]
fn beside_a_shell() {
    let coprocess = r#"
        coproc "$T" hold name
        holder=$COPROC_PID
        read -r held <&"${COPROC[0]}" || exit
        echo "${held% *}"
        "$T" run -q -n name true; echo $?
        exec {COPROC[1]}>&-
        wait "$holder"; echo $?"#;
    let named_pipes = r#"
        mkfifo to from
        "$T" hold $OPTIONS name < to > from &
        exec 3> to
        read -r held < from || { wait $!; exit; }
        rm to from
        echo "${held% *}"
        "$T" run -q -n name true; echo $?
        exec 3>&-
        wait $!; echo $?"#;
    for place in both() {
        for (shell, script) in [("bash", coprocess), ("bash", named_pipes), ("sh", named_pipes)] {
            let mut command = place.command(shell);
            command.args(["-c", script]).env("T", env!("CARGO_BIN_EXE_tenure"));
            let done = place.spawn(command).finish();
            assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("held name fence\n75\n0\n", ""));
        }
        // Of a name that is not to be had, the script hears, too.
        let holder = holding(&place, &[]);
        let mut command = place.command("sh");
        command.args(["-c", named_pipes]).env("T", env!("CARGO_BIN_EXE_tenure")).env("OPTIONS", "-q -n");
        let done = place.spawn(command).finish();
        assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (75, "", ""));
        holder.signal(Signal::TERM);
        holder.finish();
        place.assert_nothing_left();
    }
    // A script that is killed closes its end.
    let place = Place::new();
    let mut command = place.command("bash");
    let script = r#"exec 3> >("$T" hold --ttl 24h name > held); echo $$ > pid; exec sleep 600"#;
    command.args(["-c", script]).env("T", env!("CARGO_BIN_EXE_tenure"));
    let running = place.spawn(command);
    eventually("it is held", || place.read("held").ends_with('\n'));
    running.signal(Signal::KILL);
    running.finish();
    eventually("it is free", || is_free(&place));
    place.assert_nothing_left();
}

/// A process that reads from a terminal in the background is stopped, and would renew no longer.
#[test]
fn in_the_background_of_a_terminal_it_goes_on() {
    let place = Place::new();
    let mut script = place.command("script");
    script.args(["-q", "-c", "bash --norc --noprofile -i", "/dev/null"]).stdin(Stdio::piped());
    let mut shell = place.spawn(script);
    let mut keys = shell.stdin();
    let line = format!("{} hold --ttl 1s name > held &\n", env!("CARGO_BIN_EXE_tenure"));
    keys.write_all(line.as_bytes()).unwrap();
    eventually("it is held", || place.read("held").ends_with('\n'));
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(2_500) {
        assert!(!is_free(&place));
    }
    // In the foreground, Ctrl-D is the end of stdin.
    keys.write_all(b"fg; echo $? > code\n").unwrap();
    eventually("it ends", || {
        let _ = keys.write_all(b"\x04");
        std::thread::sleep(Duration::from_millis(20));
        place.read("code") == "0\n"
    });
    assert!(is_free(&place));
    let _ = keys.write_all(b"exit\n");
    drop(keys);
    shell.finish();
}

/// The recipe of docs/cli.md for any POSIX shell, up to where the name is held.
fn recipe(options: &str) -> String {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let (_, recipe) = docs.split_once("In any POSIX shell").expect("the recipe");
    let block = recipe.split("```").nth(1).unwrap();
    let mut lines: Vec<&str> = block.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    let held = lines.iter().position(|line| line.starts_with("read ")).expect("a line that waits");
    lines.truncate(held + 1);
    lines.join("\n").replace("tenure hold deploy", &format!("\"$T\" hold {options} name"))
}

fn shell(place: &Place, shell: &str, script: &str) -> Running {
    let mut command = place.command(shell);
    command.args(["-c", script]).env("T", env!("CARGO_BIN_EXE_tenure")).env("TMPDIR", place.path("tmp"));
    place.spawn(command)
}

#[test]
fn copies_of_the_posix_recipe_take_turns_and_leave_nothing_behind() {
    for place in both() {
        std::fs::create_dir(place.path("tmp")).unwrap();
        let work = "mkdir busy || echo met >> overlaps; sleep 0.1; rmdir busy; exec 3>&-; wait $!";
        let script = format!("{}\n{work}", recipe("-q"));
        let copies = ["sh", "sh", "dash", "bash", "bash"].map(|name| shell(&place, name, &script));
        for copy in copies {
            let done = copy.finish();
            assert_eq!((done.code, done.stderr.as_str()), (0, ""));
        }
        assert_eq!(place.read("overlaps"), "");

        // It exits as `hold` does.
        let mut hold = holding(&place, &[]);
        for name in ["sh", "dash", "bash"] {
            let done = shell(&place, name, &format!("{}\necho held", recipe("-n -q"))).finish();
            assert_eq!((done.code, done.stdout.as_str()), (75, ""), "{name}: {done:?}");
        }
        drop(hold.stdin());
        assert_eq!(hold.finish().code, 0);
        assert_eq!(std::fs::read_dir(place.path("tmp")).unwrap().count(), 0, "no pipe is left");
        place.assert_nothing_left();
    }
}
