//! Names of all kinds: what a shell, a file system or Redis would take for something else is a name like any other.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use rustix::process::Signal;

use super::both::on_both_stores;
use crate::support::Place;

on_both_stores!(
    any_text_is_a_name,
    names_that_look_alike_are_different,
    a_name_that_is_none_is_refused,
    a_name_does_not_reach_the_terminal_as_it_is,
);

const NAMES: [&str; 20] = [
    "two words",
    " ",
    "ünïcode",
    "锁/ロック",
    "🔒👩‍👩‍👧",
    "e\u{301}",
    "new\nline",
    "tab\tand\rreturn",
    "a/b/c",
    "/",
    "../../etc/passwd",
    ".",
    "-n",
    "--help",
    "*",
    "a?[b-c]*",
    "{braces}",
    "%7Bpercent%25",
    "'\"`$(touch ran)\\",
    "tenure:name}:queue",
];

fn longest() -> [String; 2] {
    [format!("{}x", "x".repeat(999)), "ü".repeat(500)]
}

fn all() -> impl Iterator<Item = String> {
    NAMES.into_iter().map(str::to_owned).chain(longest())
}

// B1
fn any_text_is_a_name(place: &Place) {
    let script = r#"printf %s "$TENURE_NAME"; echo > "started-$0"; while ! [ -e go ]; do sleep .05; done"#;
    let started = all().enumerate().map(|(number, name)| {
        let running = place.start(&["run", "--", &name, "--", "sh", "-c", script, &number.to_string()]);
        (name, running)
    });
    let started: Vec<_> = started.collect();
    for number in 0..started.len() {
        crate::support::eventually("it holds its name", || place.path(&format!("started-{number}")).exists());
    }
    let mut listed: Vec<_> = place.ask(async |domain| domain.list("").await);
    listed.retain(|status| status.is_held());
    assert_eq!(listed.len(), started.len(), "each is held by itself: {listed:?}");
    for (name, _) in &started {
        assert!(listed.iter().any(|status| status.name == *name), "{name:?} in {listed:?}");
        let done = place.end(&["run", "-n", "--", name, "--", "touch", "ran"]);
        assert_eq!((done.code, done.stdout.as_str()), (75, ""), "{name:?}: {done:?}");
    }
    std::fs::write(place.path("go"), "").unwrap();
    for (name, running) in started {
        let done = running.finish();
        assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (0, name.as_str(), ""));
    }
    assert!(!place.path("ran").exists());
    assert_eq!(place.leftovers(), [""; 0]);
}

// B1
fn names_that_look_alike_are_different(place: &Place) {
    let alike = [
        "a", "A", "a ", " a", "a/", "/a", "a//b", "a/b", "a%2Fb", "{a}", "%7Ba%7D", "é", "e\u{301}", "a*",
        "tenure:a",
    ];
    // Each inside of the one before: none is held already.
    let mut args = Vec::new();
    for name in alike {
        let url = ["--url", "URL"];
        args.extend([&[env!("CARGO_BIN_EXE_tenure"), "run", "-n"], &url[..], &["--", name, "--"]].concat());
    }
    let url = place.url();
    let args: Vec<&str> =
        args.into_iter().map(|word| if word == "URL" { url.as_str() } else { word }).collect();
    let done = place.end(&[&args[1..], &["echo", "all"]].concat());
    assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (0, "all\n", ""));
}

// R4.4, R0.6
fn a_name_that_is_none_is_refused(place: &Place) {
    let too_long = ["x".repeat(1_001), "ü".repeat(501)];
    for (name, message) in [("", "name is empty"), (&too_long[0], "1001 bytes"), (&too_long[1], "1002 bytes")]
    {
        let done = place.end(&["run", name, "touch", "ran"]);
        assert_eq!((done.code, done.stdout.as_str()), (64, ""), "{done:?}");
        assert!(done.stderr.starts_with("tenure: ") && done.stderr.contains(message), "{done:?}");
    }
    let mut command = place.tenure(&["run"]);
    command.args([OsStr::from_bytes(b"no\xfftext"), OsStr::new("touch"), OsStr::new("ran")]);
    let done = place.spawn(command).finish();
    assert_eq!(done.code, 64, "{done:?}");
    assert!(done.stderr.contains("UTF-8"), "{done:?}");
    assert!(!place.path("ran").exists());
}

// R2.3
fn a_name_does_not_reach_the_terminal_as_it_is(place: &Place) {
    let name = "a\nb\u{1b}[31m\u{202e}c";
    let holder = place.start(&["run", "--", name, "sh", "-c", "echo $$ > pid; exec sleep 600"]);
    place.pid("pid");
    let done = place.end(&["run", "-n", "--", name, "true"]);
    assert_eq!(done.code, 75);
    assert!(done.stderr.lines().all(|line| line.starts_with("tenure: ")), "{done:?}");
    assert!(!done.stderr.contains(['\u{1b}', '\u{202e}']) && done.stderr.contains("a\\nb"), "{done:?}");
    holder.signal(Signal::TERM);
    holder.finish();
}
