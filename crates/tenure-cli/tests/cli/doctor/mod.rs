//! `tenure doctor`: each thing that makes a store unfit is done to a real one, is found, and is no longer found once the remedy was applied.

mod directory;
mod layered;
mod permissions;
mod quorum;
mod sentinel;
mod server;

use rustix::process::Signal;
use serde_json::Value;
use tenure_testkit::redis::RedisServer;

use crate::support::{Place, eventually};

/// What `tenure doctor` found.
struct Report {
    code: i32,
    findings: Vec<Value>,
    conclusion: Value,
}

/// Examines the store of the place.
fn doctor(place: &Place) -> Report {
    doctor_at(place, &place.url())
}

/// Examines this store.
#[track_caller]
fn doctor_at(place: &Place, url: &str) -> Report {
    let mut command = place.tenure(&["doctor", "--json"]);
    command.env("TENURE_URL", url);
    let done = place.spawn(command).finish();
    assert_eq!(done.stderr, "", "all is said on stdout");
    let mut findings: Vec<Value> =
        done.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(findings.iter().all(|finding| finding["v"] == 1), "{}", done.stdout);
    let conclusion = findings.pop().expect("a conclusion");
    Report { code: done.code, findings, conclusion }
}

impl Report {
    #[track_caller]
    fn finding(&self, check: &str) -> &Value {
        let mut found = self.findings.iter().filter(|finding| finding["check"] == check);
        found.next().unwrap_or_else(|| panic!("no `{check}` in {:#?}", self.findings))
    }

    #[track_caller]
    fn verdict(&self, check: &str) -> &str {
        self.finding(check)["verdict"].as_str().unwrap()
    }

    #[track_caller]
    fn reason(&self, check: &str) -> &str {
        self.finding(check)["reason"].as_str().unwrap()
    }

    /// Does what the remedy says.
    #[track_caller]
    fn apply(&self, place: &Place, check: &str) {
        let remedy = self.finding(check)["remedy"].as_str().expect("a remedy");
        let done = place.command("sh").args(["-ec", remedy]).output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.lines().all(|line| line == "OK"), "{remedy}: {said}");
    }

    /// What is not fit.
    fn troubles(&self) -> Vec<(&str, &str)> {
        let both = |finding: &'_ Value| finding["verdict"] != "fit";
        let troubles = self.findings.iter().filter(|finding| both(finding));
        troubles
            .map(|finding| (finding["check"].as_str().unwrap(), finding["verdict"].as_str().unwrap()))
            .collect()
    }
}

// B5
#[test]
fn it_is_readable_in_every_locale_and_in_colour_only_where_it_is_wanted() {
    let place = Place::new();
    let run = |variables: &[(&str, &str)]| {
        let mut command = place.tenure(&["doctor"]);
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").env("LC_ALL", "C.UTF-8");
        command.envs(variables.iter().copied());
        let done = place.spawn(command).finish();
        assert_eq!((done.code, done.stderr.as_str()), (0, ""));
        done.stdout
    };
    let plain = run(&[]);
    let marks = ["✔ ", "! ", "  "];
    let (conclusion, findings) = plain.trim_end().rsplit_once('\n').map(|(rest, last)| (last, rest)).unwrap();
    assert!(findings.lines().all(|line| marks.iter().any(|mark| line.starts_with(mark))), "{plain}");
    assert!(conclusion.starts_with("fit to hold locks"), "{conclusion}");
    assert!(plain.contains("✔ round trip   p50 "), "{plain}");
    assert!(!plain.contains('\u{1b}'), "no colour without a terminal");

    let ascii = run(&[("LC_ALL", "C")]);
    assert!(ascii.is_ascii() && ascii.contains("ok lease ") && ascii.contains(" us"), "{ascii}");

    let coloured = run(&[("CLICOLOR_FORCE", "1")]);
    assert!(coloured.contains("\u{1b}[33m!\u{1b}[0m store"), "{coloured:?}");
    assert!(!run(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]).contains('\u{1b}'));
}

/// No terminal has to break a line, and so none breaks one inside of a word; what can be typed can be typed from any of them.
// B5
#[test]
fn on_a_terminal_it_is_as_wide_as_that() {
    let server =
        RedisServer::builder().config("maxmemory-policy", "allkeys-lru").config("maxmemory", "100mb");
    let place = Place::on(server.start());
    let shown = |columns: usize, line: &str| {
        let mut command = place.command("script");
        let line = format!("stty cols {columns}; {} {line} 2>/dev/null", env!("CARGO_BIN_EXE_tenure"));
        command.args(["-qec", &line, "/dev/null"]).env("NO_COLOR", "1").env("LC_ALL", "C.UTF-8");
        place.spawn(command).finish().stdout.replace('\r', "")
    };
    for columns in [40, 80, 120, 200] {
        for line in ["doctor", "bench --seconds .1"] {
            let shown = shown(columns, line);
            assert!(shown.lines().all(|line| line.chars().count() <= columns), "{columns}: {shown}");
            assert!(shown.contains(if line == "doctor" { "eviction" } else { "hand-over: " }), "{shown}");
        }
    }
    let shown = shown(40, "doctor");
    let remedy: Vec<&str> = shown.lines().skip_while(|line| !line.contains("redis-cli ")).collect();
    let end = remedy.iter().position(|line| !line.ends_with('\\')).unwrap();
    let typed = place.command("sh").args(["-ec", &remedy[..=end].join("\n")]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&typed.stdout), "OK\n", "{shown}");
    assert_eq!(doctor(&place).verdict("eviction"), "fit");
}

#[test]
fn a_url_of_no_store_is_a_usage_error() {
    let place = Place::new();
    for args in [&["doctor", "--url", "memory:"][..], &["doctor", "--url", "nowhere://"], &["doctor", "word"]]
    {
        let done = place.end(args);
        assert_eq!((done.code, done.stdout.as_str()), (64, ""), "{args:?}");
        assert!(done.stderr.starts_with("tenure: "), "{}", done.stderr);
    }
}

/// Whoever is interrupted leaves no key behind, also where a host's name was looked up, which takes a thread that a signal may go to.
#[test]
fn a_signal_waits_until_the_lock_is_played_through() {
    let place = Place::on_redis();
    // Who may not listen waits for what it is not told, so that there is time to interrupt it.
    let rules = ["ACL", "SETUSER", "bob", "on", "nopass", "allkeys", "allchannels", "+@all", "-subscribe"];
    assert_eq!(place.server().command(&rules).text(), "OK");
    let url = format!("redis://bob:any@localhost:{}", place.server().port());
    let mut command = place.tenure(&["doctor"]);
    command.env("TENURE_URL", url);
    let doctor = place.spawn(command);
    eventually("a lock is played through", || !place.server().command(&["KEYS", "*"]).items().is_empty());
    doctor.signal(Signal::INT);
    let done = doctor.finish();
    assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (130, "", ""));
    assert!(place.server().command(&["KEYS", "*"]).items().is_empty(), "nothing is left");
}

/// The same for every command that prints what it found: a reader who has what it wants is no failure, what can't be written is.
#[test]
fn findings_that_are_not_read_or_not_written() {
    let place = Place::new();
    let ticket = place.end(&["acquire", "--ttl", "10m", "name"]).stdout;
    let ticket = ticket.trim();
    for args in [
        &["doctor"][..],
        &["doctor", "--json"],
        &["bench", "--seconds", ".2"],
        &["bench", "--seconds", ".2", "--json"],
        &["renew", "--json", ticket],
        &["break", "--json", "--yes", "--fence", "1", "free"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = place.tenure(args).stdout(writer).output().unwrap();
        assert_eq!(ended.status.code(), Some(0), "{args:?}");
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let ended = place.tenure(args).stdout(full).output().unwrap();
        assert_eq!(ended.status.code(), Some(74), "{args:?}");
        let said = String::from_utf8(ended.stderr).unwrap();
        assert!(said.contains("could not be written to stdout: No space left"), "{args:?}: {said}");
        let mut closed = place.command("sh");
        closed.args(["-c", "exec \"$0\" \"$@\" >&-", env!("CARGO_BIN_EXE_tenure")]).args(args);
        let done = place.spawn(closed).finish();
        assert_eq!(done.code, 74, "{args:?}: {done:?}");
        assert!(done.stderr.contains("stdout is closed"), "{args:?}: {done:?}");
    }
}
