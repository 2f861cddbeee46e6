//! `tenure doctor`: each thing that makes a store unfit is done to a real one, is found, and is no longer found once the remedy was applied.

mod directory;
mod permissions;
mod server;

use serde_json::Value;

use crate::support::Place;

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
    let done = place.end(&["doctor", "--json", "--url", url]);
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

#[test]
fn what_is_no_store_is_a_usage_error() {
    let place = Place::new();
    for args in [&["doctor", "--url", "memory:"][..], &["doctor", "--url", "nowhere://"], &["doctor", "word"]]
    {
        let done = place.end(args);
        assert_eq!((done.code, done.stdout.as_str()), (64, ""), "{args:?}");
        assert!(done.stderr.starts_with("tenure: "), "{}", done.stderr);
    }
}
