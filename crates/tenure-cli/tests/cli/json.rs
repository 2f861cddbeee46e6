//! Every object that a program gets has the fields that docs/cli.md describes, all of them and no other.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::ls_status::{acquire, holder, waiter};
use crate::support::{Place, eventually};

/// The fields that the documentation has in the table below a comment.
fn documented(object: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, below) = text.split_once(&format!("<!-- json: {object} -->")).expect(object);
    let rows = below.lines().skip_while(|line| !line.starts_with("| field |")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    rows.flat_map(|row| {
        let fields = row.split('|').nth(1).unwrap().trim().to_owned();
        fields.split(", ").map(|field| field.trim_matches('`').to_owned()).collect::<Vec<_>>()
    })
    .collect()
}

fn fields(object: &Value) -> BTreeSet<String> {
    object.as_object().unwrap_or_else(|| panic!("an object: {object}")).keys().cloned().collect()
}

/// What was printed, line by line; each with the version before all else.
#[track_caller]
fn objects(text: &str) -> Vec<Value> {
    assert!(!text.is_empty() && text.ends_with('\n'), "{text:?}");
    let object = |line: &str| {
        assert!(line.starts_with("{\"v\":1,"), "{line}");
        serde_json::from_str(line).unwrap()
    };
    text.lines().map(object).collect()
}

/// These fields, but for those that it need not have, and its version.
#[track_caller]
fn assert_has(object: &Value, documented: &BTreeSet<String>, without: &[&str]) {
    let mut expected: BTreeSet<String> =
        documented.iter().filter(|field| !without.contains(&field.as_str())).cloned().collect();
    expected.insert("v".to_owned());
    assert_eq!(fields(object), expected, "{object}");
}

#[track_caller]
fn assert_status(object: &Value, without: &[&str]) {
    assert_has(object, &documented("status, ls, break"), without);
    let who = documented("who");
    assert_eq!(fields(&object["holder"]), who);
    for waiter in object["waiters"].as_array().unwrap() {
        let more = ["position", "waited_ms"].map(str::to_owned);
        assert_eq!(fields(waiter), who.iter().cloned().chain(more).collect());
    }
}

// R4.2
#[test]
fn of_those_that_look_and_break() {
    let place = Place::new();
    let _holder = holder(&place, &[], "name");
    let _waiter = waiter(&place, &[], "name");
    place.await_queue(1);
    for args in [&["status", "--json", "name"][..], &["ls", "--json"], &["ls", "--json", "name"]] {
        for object in objects(&place.end(args).stdout) {
            assert_eq!(object["waiters"].as_array().unwrap().len(), 1);
            assert_status(&object, &["outcome"]);
        }
    }
    let watcher = place.start(&["watch", "--json"]);
    eventually("what is there", || watcher.printed().matches('\n').count() == 2);
    for event in objects(&watcher.printed()) {
        assert_has(&event, &documented("watch"), &[]);
    }
    let done = place.end(&["break", "--json", "--yes", "--fence", "1", "name"]);
    assert_status(&objects(&done.stdout)[0], &[]);
}

// R2.4
#[test]
fn of_those_that_hold() {
    let place = Place::new();
    let acquired = objects(&place.end(&["acquire", "--json", "name"]).stdout).remove(0);
    assert_has(&acquired, &documented("acquire"), &[]);
    let ticket = acquired["ticket"].as_str().unwrap();
    for verb in ["renew", "release", "release"] {
        let object = objects(&place.end(&[verb, "--json", ticket]).stdout).remove(0);
        assert_has(&object, &documented(verb), &[]);
        assert!(object["by"].is_null());
    }
    acquire(&place, &[], "name");
    for verb in ["renew", "release"] {
        let object = objects(&place.end(&[verb, "--json", ticket]).stdout).remove(0);
        assert_eq!(fields(&object["by"]), documented("who"));
    }
    let mut command = place.tenure(&["hold", "--json", "other"]);
    command.stdin(Stdio::null());
    assert_has(&objects(&place.spawn(command).finish().stdout)[0], &documented("hold"), &[]);
}

// B5
#[test]
fn of_those_that_examine() {
    let place = Place::new();
    let mut findings = objects(&place.end(&["doctor", "--json"]).stdout);
    assert_has(&findings.pop().unwrap(), &documented("conclusion"), &[]);
    for finding in findings {
        let is_timed = finding["check"] == "round trip";
        let without: &[&str] = if is_timed { &[] } else { &["count", "p50_us", "p99_us"] };
        assert_has(&finding, &documented("doctor"), without);
    }
    for measure in objects(&place.end(&["bench", "--json", "--seconds", ".3"]).stdout) {
        assert_has(&measure, &documented("bench"), &[]);
        for class in measure["histogram"].as_array().unwrap() {
            assert_eq!(fields(class), ["from_us", "to_us", "count"].map(str::to_owned).into());
        }
    }
}
