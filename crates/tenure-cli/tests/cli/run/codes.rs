//! Exit codes, messages, and what passes through.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use crate::support::Place;

// B4
#[test]
fn the_exit_code_of_the_command_passes() {
    let place = Place::new();
    for code in [0, 1, 64, 75, 79, 255] {
        let done = place.end(&["run", "name", "--", "sh", "-c", &format!("exit {code}")]);
        assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (code, "", ""), "silent");
    }
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("INT", 130)] {
        let done = place.end(&["run", "name", "--", "sh", "-c", &format!("kill -{signal} $$")]);
        assert_eq!((done.code, done.stderr.as_str()), (code, ""));
    }
    assert_eq!(place.leftovers(), [""; 0]);
    place.assert_nothing_left();
}

#[test]
fn stdin_stdout_and_stderr_pass() {
    let place = Place::new();
    let mut command = place.tenure(&["run", "name", "sh", "-c", "cat; echo oops >&2"]);
    command.stdin(Stdio::piped());
    let mut running = place.spawn(command);
    running.stdin().write_all(b"one\ntwo\n").unwrap();
    let done = running.finish();
    assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (0, "one\ntwo\n", "oops\n"));
}

// B1
#[test]
fn the_command_gets_name_and_fence() {
    let place = Place::new();
    let show = ["run", "a name", "--", "sh", "-c", r#"echo "$TENURE_NAME $TENURE_FENCE""#];
    let fence = |line: &str| line.trim_end().strip_prefix("a name ").unwrap().parse::<u64>().unwrap();
    let (first, second) = (place.end(&show), place.end(&show));
    assert!(fence(&first.stdout) < fence(&second.stdout), "{first:?} {second:?}");
}

/// What a shell gets from `sh -c` alone, it gets under `tenure run`, and the lifeline.
#[test]
fn the_command_inherits_only_its_own_descriptors() {
    let place = Place::new();
    let script = "ls -l /proc/self/fd | grep -o '[0-9]* -> .*' | grep -v ' -> /proc/'; grep ^Sig[BI] /proc/self/status";
    let plain = place.command("sh").args(["-c", script]).output().unwrap();
    let under = place.end(&["run", "name", "--", "sh", "-c", script]);
    let count = |text: &str, what: &str| text.lines().filter(|line| line.contains(what)).count();
    let plain = String::from_utf8(plain.stdout).unwrap();
    assert_eq!(count(&under.stdout, "/lifeline-"), 1, "{}", under.stdout);
    assert_eq!(count(&under.stdout, " -> "), count(&plain, " -> ") + 1, "{}\n{plain}", under.stdout);
    let signals = |text: &str| text.lines().filter(|line| line.starts_with("Sig")).collect::<String>();
    assert_eq!(signals(&under.stdout), signals(&plain));
}

#[test]
fn a_command_that_cannot_be_started_gives_the_name_back() {
    let place = Place::new();
    fs::write(place.path("data"), "no program").unwrap();
    let cases = [
        ("no-such-command", 127, "`no-such-command` not found"),
        ("./data", 126, "`./data` is not executable"),
        ("/tmp", 126, "`/tmp` is a directory"),
        ("", 127, "is empty"),
    ];
    for (command, code, message) in cases {
        let done = place.end(&["run", "name", command]);
        assert_eq!(done.code, code, "{done:?}");
        assert!(done.stderr.starts_with("tenure: command ") && done.stderr.contains(message), "{done:?}");
        assert_eq!(place.end(&["run", "-n", "name", "true"]).code, 0, "free again");
    }
}

// R4.4, R0.6
#[test]
fn a_wrong_command_line_is_named() {
    let place = Place::new();
    let long = "n".repeat(1_001);
    let cases: &[(&[&str], &str)] = &[
        (&[], "Usage: tenure"),
        (&["rum"], "tenure: unknown command `rum`; did you mean `run`?\n"),
        (&["rnu"], "tenure: unknown command `rnu`; did you mean `run`?\n"),
        (&["nightly", "--", "true"], "unknown command `nightly`; expected one of run, ls, status, "),
        (&["help", "rnu"], "did you mean `run`?"),
        (&["backup", "--", "ls", "-l"], "while `backup` is held: tenure run backup -- ls -l\n"),
        (&["backup", "ls", "a b"], "while `backup` is held: tenure run backup -- ls 'a b'\n"),
        (&["backup", "-n", "--", "ls"], "while `backup` is held: tenure run backup -n -- ls\n"),
        (&["statuses", "--", "ls"], "while `statuses` is held: tenure run statuses -- ls\n"),
        (&["backup"], "while `backup` is held: tenure run backup -- COMMAND\n"),
        (&["backup", "--url", "redis://:secret@h", "ls"], "tenure run backup -- COMMAND\n"),
        (&["run"], "tenure: NAME and COMMAND are missing\n"),
        (&["run", "name"], "tenure: COMMAND is missing\n"),
        (&["run", "-n", "-w", "3s", "name", "true"], "-n does not wait, and -w says how long to wait"),
        (&["run", "name", "-c", " "], "LINE of -c is empty"),
        (&["--verbose", "run", "name", "true"], "options come after the command"),
        (&["run", "-w", "soon", "name", "true"], "duration `soon`"),
        (&["run", "-w", "-3s", "name", "true"], "duration `-3s` is negative"),
        (&["run", "-w", "-1", "name", "true"], "duration `-1` is negative"),
        (&["run", "-w", "-E", "1", "name", "true"], "the value is missing"),
        (&["run", "-E", "-1", "name", "true"], "write a number from 0 to 255"),
        (&["run", "-E", "abc", "name", "true"], "write a number from 0 to 255"),
        (&["run", "--", "name", "--"], "COMMAND is missing"),
        (&["run", "--ttl", "1m30", "name", "true"], "without a unit"),
        (
            &["run", "--ttl", "10ms", "name", "true"],
            "for '--ttl <DURATION>': it is out of range; write 100ms to 24h",
        ),
        (&["run", "-E", "300", "name", "true"], "write a number from 0 to 255"),
        (&["brek", "name"], "unknown command `brek`; expected one of run, "),
        (&["run", "--bogus", "name", "true"], "--bogus"),
        (&["run", "name", "-c", "true", "true"], "cannot be used with"),
        (&["run", "-v", "-q", "name", "true"], "cannot be used with"),
        (&["run", "", "true"], "name is empty"),
        (&["run", &long, "true"], "1001 bytes"),
        (&["run", "--label", &long, "name", "true"], " bytes; shorten it to at most 200"),
        (&["run", "--url", "memcached://h", "name", "true"], "tenure: --url: unknown scheme `memcached`"),
        (&["run", "--url", "file:?tll=3s", "name", "true"], "tenure: --url: unknown option `tll`"),
        (&["run", "--url", "memory:", "name", "true"], "tenure: --url: `memory:` is private to one process"),
        (&["run", "--url", "memory:jobs?ttl=3s", "name", "true"], "use `file:`"),
    ];
    for (args, message) in cases {
        let done = place.end(args);
        assert_eq!((done.code, done.stdout.as_str()), (64, ""), "{args:?}: {done:?}");
        assert!(done.stderr.contains(message), "{args:?}: {done:?}");
        assert!(!done.stderr.contains("mean `break`"), "nothing that ends the lease of another: {done:?}");
        assert!(!done.stderr.contains("secret"), "{done:?}");
        assert!(!done.stderr.contains("as a value"), "no advice to name a lock after an option: {done:?}");
        let is_prefixed = done.stderr.lines().all(|line| line.starts_with("tenure: "));
        assert!(is_prefixed || args.is_empty(), "{done:?}");
    }
}

#[test]
fn help_and_version_go_to_stdout() {
    let place = Place::new();
    for (args, text) in [
        (&["--version"][..], "tenure 0."),
        (&["--help"], "Usage: tenure <COMMAND>"),
        (&["run", "--help"], "-E, --conflict-exit-code <CODE>"),
        (&["help"], "Usage: tenure <COMMAND>"),
        (&["help", "run"], "-E, --conflict-exit-code <CODE>"),
    ] {
        let done = place.end(args);
        assert!(done.code == 0 && done.stderr.is_empty() && done.stdout.contains(text), "{done:?}");
    }
}

#[test]
fn a_limit_of_descriptors_is_reported() {
    let place = Place::new();
    let tenure = env!("CARGO_BIN_EXE_tenure");
    let mut codes = Vec::new();
    for limit in 4..40 {
        let mut command = place.command("sh");
        let script = format!("ulimit -n {limit}; exec setsid {tenure} run name -- touch ran-{limit}");
        command.args(["-c", &script]);
        let done = place.spawn(command).finish();
        let ran = place.path(&format!("ran-{limit}")).exists();
        match done.code {
            0 => assert!(ran && done.stderr.is_empty(), "{limit}: {done:?}"),
            code => assert!(
                code == 71 && !ran && done.stderr.contains("ulimit -n") && done.stderr.lines().count() == 1,
                "{limit}: {done:?}"
            ),
        }
        codes.push(done.code);
    }
    assert!(codes.starts_with(&[71]) && codes.ends_with(&[0]), "{codes:?}");
}

// R0.5
#[test]
fn an_unusable_store_is_reported() {
    let place = Place::new();
    let done = place.end(&["run", "--url", "file:///proc/tenure", "name", "touch", "ran"]);
    assert_eq!(done.code, 69, "{done:?}");
    let done = place.end(&["run", "--url", "redis://localhost", "name", "touch", "ran"]);
    assert_eq!(done.code, 69, "{done:?}");

    fs::create_dir(place.path("open")).unwrap();
    fs::set_permissions(place.path("open"), fs::Permissions::from_mode(0o777)).unwrap();
    let url = format!("file://{}", place.path("open").display());
    let done = place.end(&["run", "--url", &url, "name", "touch", "ran"]);
    assert_eq!(done.code, 77, "{done:?}");
    assert!(!place.path("ran").exists());
}

/// The variable may come from a profile that nobody thinks of.
// R0.6
#[test]
fn a_wrong_variable_is_named() {
    let place = Place::new();
    let run = |url: &OsStr, args: &[&str]| {
        let mut command = place.tenure(args);
        command.env("TENURE_URL", url);
        place.spawn(command).finish()
    };
    for (url, code, message) in [
        ("memcached://h", 64, "tenure: TENURE_URL: unknown scheme `memcached`"),
        ("memory:", 64, "tenure: TENURE_URL: `memory:` is private to one process"),
        ("redis+cluster://127.0.0.1:1", 69, "tenure: "),
    ] {
        let done = run(OsStr::new(url), &["run", "name", "touch", "ran"]);
        assert!(done.code == code && done.stderr.starts_with(message), "{url}: {done:?}");
    }
    let done = run(OsStr::from_bytes(b"file:///tmp/\xff"), &["run", "name", "touch", "ran"]);
    assert!(done.code == 64 && done.stderr.contains("TENURE_URL: URL is not UTF-8"), "{done:?}");
    assert!(!place.path("ran").exists());

    let url = format!("file://{}", place.locks().display());
    let done = run(OsStr::new("memcached://h"), &["run", "--url", &url, "name", "true"]);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "--url goes first");
}

// R0.6
#[test]
fn the_url_is_not_shown() {
    let place = Place::new();
    let help = place.tenure(&["run", "--help"]).env("TENURE_URL", "redis://:secret@h").output().unwrap();
    assert!(!String::from_utf8_lossy(&help.stdout).contains("secret"));
    let done = place.end(&["run", "--url", "redis://:secret@h:x", "name", "true"]);
    assert!(done.code == 64 && !done.stderr.contains("secret"), "{done:?}");
}

#[test]
fn names_of_any_characters() {
    let place = Place::new();
    let long = "ü".repeat(500);
    for name in ["a b", "../../etc", "ünïcode/🔒", "new\nline", "-n", long.as_str()] {
        let done = place.end(&["run", "-E", "9", "--", name, "sh", "-c", r#"printf %s "$TENURE_NAME""#]);
        assert_eq!((done.code, done.stdout.as_str()), (0, name));
        let done = place.end(&["run", "--", name, "--", "sh", "-c", r#"printf %s "$TENURE_NAME""#]);
        assert_eq!((done.code, done.stdout.as_str()), (0, name));
    }
    let mut command = place.tenure(&["run"]);
    command.arg(OsStr::from_bytes(b"na\xffme")).arg("true");
    let done = place.spawn(command).finish();
    assert!(done.code == 64 && done.stderr.contains("UTF-8"), "{done:?}");
}
