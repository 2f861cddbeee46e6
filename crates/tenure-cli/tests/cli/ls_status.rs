//! `tenure ls` and `tenure status`, with real holders and waiters.

use std::process::Stdio;

use serde_json::Value;

use crate::support::{Place, Running, eventually};

pub(crate) fn both() -> [Place; 2] {
    [Place::new(), Place::on_redis()]
}

/// Someone who holds a name until the process is killed.
pub(crate) fn holder(place: &Place, options: &[&str], name: &str) -> Running {
    let running = waiter(place, options, name);
    eventually("it is held", || place.inspect(name).is_held());
    running
}

/// Someone who waits for a name that is held, and holds it then.
pub(crate) fn waiter(place: &Place, options: &[&str], name: &str) -> Running {
    place.start(&[&["run", "-q"], options, &["--", name, "--", "sleep", "1000"]].concat())
}

/// Takes a name for longer than a test lasts; nobody renews it.
pub(crate) fn acquire(place: &Place, options: &[&str], name: &str) {
    assert_eq!(place.end(&[&["acquire"], options, &["--", name]].concat()).code, 0);
}

pub(crate) fn objects(lines: &str) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn fence(place: &Place, name: &str) -> u64 {
    place.inspect(name).holder.unwrap().fence.get()
}

/// What follows a key in a block of facts.
fn fact<'a>(block: &'a str, key: &str) -> Option<&'a str> {
    block.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).map(str::trim)
}

// R4.2
#[test]
fn ls_shows_who_holds_and_how_many_wait() {
    for place in both() {
        let _holder = holder(&place, &["--label", "by hand"], "orders/42");
        let _waiter = waiter(&place, &[], "orders/42");
        eventually("it waits", || place.inspect("orders/42").waiters.len() == 1);
        acquire(&place, &["--ttl", "10m"], "a name with spaces\n\u{1b}[31m");
        let done = place.end(&["ls"]);
        assert_eq!((done.code, done.stderr.as_str()), (0, ""));
        let lines: Vec<_> = done.stdout.lines().collect();
        assert_eq!(lines.len(), 3, "{}", done.stdout);
        let words: Vec<_> = lines[0].split_whitespace().collect();
        assert_eq!(words, ["NAME", "HOLDER", "PID", "FOR", "LEFT", "QUEUE", "LABEL"]);
        assert!(lines[1].starts_with("a name with spaces\\n\\u{1b}[31m  "), "{}", done.stdout);
        let status = place.inspect("orders/42");
        let owner = &status.holder.unwrap().owner;
        let (who, pid) = (format!("{}@{}", owner.user(), owner.host()), owner.pid().unwrap().to_string());
        let words: Vec<_> = lines[2].split_whitespace().collect();
        assert_eq!(
            [words[0], words[1], words[2], words[5], words[6], words[7]],
            ["orders/42", &who, &pid, "1", "by", "hand"]
        );
        let columns = ["QUEUE", "LABEL"].map(|title| lines[0].find(title).unwrap());
        assert_eq!(&lines[2][columns[0] + 4..columns[1]], "1  ", "numbers are below the end of their title");
    }
}

// R4.2
#[test]
fn ls_of_a_pattern_and_for_programs() {
    for place in both() {
        for name in ["orders/1", "orders/2", "other", "orders*", "x\n\u{7f}\u{9b}31m"] {
            acquire(&place, &["--ttl", "10m"], name);
        }
        let names = |args: &[&str]| {
            let done = place.end(&[&["ls", "--json"], args].concat());
            assert_eq!((done.code, done.stderr.as_str()), (0, ""));
            let names = objects(&done.stdout).into_iter();
            names.map(|object| object["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(&["o*"]), ["orders*", "orders/1", "orders/2", "other"], "in order");
        assert_eq!(names(&[])[4..], ["x\n\u{7f}\u{9b}31m"], "as it is");
        assert_eq!(names(&["orders/*"]), ["orders/1", "orders/2"]);
        assert_eq!(names(&["o*[2r]"]), ["orders/2", "other"]);
        assert_eq!(names(&["orders\\*"]), ["orders*"]);
        assert_eq!(names(&["nothing*"]), [""; 0]);
        let nothing = place.end(&["ls", "nothing"]);
        assert_eq!(
            (nothing.code, nothing.stdout.as_str(), nothing.stderr.as_str()),
            (0, "", ""),
            "no header either"
        );
        let wrong = place.end(&["ls", "a["]);
        assert_eq!(wrong.code, 64);
        assert!(wrong.stderr.contains("write `\\[` for the character"), "{}", wrong.stderr);
    }
}

#[test]
fn ls_fits_its_terminal_and_is_whole_in_a_pipe() {
    let place = Place::new();
    let name = "漢字 ".repeat(40);
    acquire(&place, &["--ttl", "10m", "--label", &"label ".repeat(20)], &name);
    let whole = place.end(&["ls"]).stdout;
    assert!(whole.contains(&name) && !whole.contains('…'), "{whole}");
    assert!(!whole.contains('\u{1b}'), "no colour without a terminal");
    let mut script = place.command("script");
    script.env_remove("NO_COLOR").env("TERM", "xterm");
    script.args(["-q", "-c", &format!("stty cols 70; {} ls", env!("CARGO_BIN_EXE_tenure")), "/dev/null"]);
    let shown = place.spawn(script).finish().stdout.replace('\r', "");
    assert!(shown.starts_with("\u{1b}[1mNAME"), "{shown:?}");
    let row = shown.lines().nth(1).unwrap();
    let width: usize = row.chars().map(|c| if ('\u{3000}'..'\u{a000}').contains(&c) { 2 } else { 1 }).sum();
    assert!((68..=70).contains(&width) && row.matches('…').count() == 1, "{width}: {row}");
}

/// Names that differ at their end can be told apart, and no row wraps.
#[test]
fn ls_tells_long_names_apart() {
    let place = Place::new();
    let names = [1, 2].map(|n| format!("nu/orders/2026/a-rather-long-name-of-a-job-{n}"));
    for name in &names {
        acquire(&place, &["--ttl", "10m", "--label", "by hand, and for a while"], name);
    }
    for columns in [80, 40] {
        let mut script = place.command("script");
        let line = format!("stty cols {columns}; {} ls", env!("CARGO_BIN_EXE_tenure"));
        script.args(["-q", "-c", &line, "/dev/null"]).env("NO_COLOR", "1").env("TERM", "xterm");
        let shown = place.spawn(script).finish().stdout.replace('\r', "");
        let rows: Vec<&str> = shown.lines().skip(1).collect();
        assert!(rows.iter().all(|row| row.chars().count() <= columns), "{shown}");
        for (row, name) in rows.iter().zip(&names) {
            let shown = row.split_once(' ').unwrap().0;
            assert!(shown.ends_with(&name[name.len() - 8..]), "{row}");
            assert!(columns < 80 || shown.len() > 36, "{row}");
        }
    }
}

#[test]
fn colours_only_where_they_are_wanted() {
    let place = Place::new();
    acquire(&place, &["--ttl", "10m"], "name");
    let run = |args: &[&str], variables: &[(&str, &str)]| {
        let mut command = place.tenure(args);
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE").envs(variables.iter().copied());
        place.spawn(command).finish().stdout
    };
    for (args, coloured) in [
        (&["ls"][..], "\u{1b}[1mNAME"),
        (&["status", "name"], "state:  \u{1b}[33mheld\u{1b}[0m\n"),
        (&["status", "free"], "state:  \u{1b}[32mfree\u{1b}[0m\n"),
    ] {
        assert!(!run(args, &[]).contains('\u{1b}'), "{args:?}: no terminal");
        let forced = run(args, &[("CLICOLOR_FORCE", "1")]);
        assert!(forced.contains(coloured), "{args:?}: {forced:?}");
        assert!(!run(args, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]).contains('\u{1b}'), "{args:?}");
    }
    for args in [&["ls", "--json"][..], &["status", "--json", "name"]] {
        assert!(!run(args, &[("CLICOLOR_FORCE", "1")]).contains('\u{1b}'), "{args:?}: for programs");
    }
}

// R4.2
#[test]
fn status_shows_the_holder_and_the_queue() {
    for place in both() {
        let _holder = holder(&place, &["--label", "by\thand"], "name");
        let _first = waiter(&place, &["--label", "first"], "name");
        place.await_queue(1);
        // Without a label, the command's name is one.
        let _second = waiter(&place, &[], "name");
        place.await_queue(2);
        let done = place.end(&["status", "name"]);
        assert_eq!((done.code, done.stderr.as_str()), (0, ""), "held is no failure");
        let status = place.inspect("name");
        let holder = status.holder.unwrap();
        let fact = |key| fact(&done.stdout, key).unwrap_or_else(|| panic!("{key}: {}", done.stdout));
        assert_eq!((fact("name"), fact("state")), ("name", "held"));
        assert_eq!(fact("holder"), format!("{}@{}", holder.owner.user(), holder.owner.host()));
        assert_eq!(fact("pid"), holder.owner.pid().unwrap().to_string());
        assert_eq!((fact("label"), fact("fence")), ("by\\thand", holder.fence.to_string().as_str()));
        assert!(fact("since").contains(" UTC, for "), "{}", done.stdout);
        assert!(fact("lease").contains("s left"), "{}", done.stdout);
        assert_eq!(fact("queue"), "2 waiting");
        let pid = |index: usize| status.waiters[index].owner.pid().unwrap();
        assert!(fact("  1").contains(&format!("pid {}, label `first`, for ", pid(0))), "{}", done.stdout);
        assert!(fact("  2").contains(&format!("pid {}, label `sleep`, for ", pid(1))), "{}", done.stdout);
        assert!(!done.stdout.contains("hint"), "it lives: {}", done.stdout);
    }
}

// R4.2
#[test]
fn status_for_programs() {
    for place in both() {
        let _holder = holder(&place, &["--label", "by hand"], "name");
        let _waiter = waiter(&place, &[], "name");
        place.await_queue(1);
        let done = place.end(&["status", "--json", "name"]);
        let listed = place.end(&["ls", "--json", "na*"]);
        for text in [&done.stdout, &listed.stdout] {
            let [object] = &objects(text)[..] else { panic!("one line: {text}") };
            assert!(text.starts_with("{\"v\":1,"), "{text}");
            let status = place.inspect("name");
            let (holder, waiter) = (status.holder.unwrap(), &status.waiters[0]);
            assert_eq!((&object["name"], &object["state"]), (&"name".into(), &"held".into()));
            assert_eq!(object["holder"]["pid"], holder.owner.pid().unwrap());
            assert_eq!(object["holder"]["label"], "by hand");
            assert_eq!(object["holder"]["foreign"], false);
            assert_eq!(object["fence"], holder.fence.get());
            assert_eq!(object["since_unix_ms"], holder.fence.get() / 1_000);
            assert!(object["lease_left_ms"].as_u64().unwrap() <= 10_000, "{text}");
            assert!(object["held_ms"].is_u64() && object["broken_fence"].is_null(), "{text}");
            assert_eq!(object["waiters"][0]["position"], 1);
            assert_eq!(object["waiters"][0]["pid"], waiter.owner.pid().unwrap());
            assert!(object["waiters"][0]["waited_ms"].is_u64(), "{text}");
        }
        let free = &objects(&place.end(&["status", "--json", "another"]).stdout)[0];
        assert_eq!(free["state"], "free");
        assert!(free["holder"].is_null() && free["fence"].is_null(), "{free}");
        assert_eq!(free["waiters"], Value::Array(Vec::new()));
    }
}

// R4.2
#[test]
fn status_in_a_script() {
    for place in both() {
        acquire(&place, &["--ttl", "10m"], "name");
        let held = place.end(&["status", "-q", "name"]);
        assert_eq!((held.code, held.stdout.as_str(), held.stderr.as_str()), (75, "", ""));
        let free = place.end(&["status", "-q", "another"]);
        assert_eq!((free.code, free.stdout.as_str(), free.stderr.as_str()), (0, "", ""));
        assert!(place.end(&["status", "another"]).stdout.contains("state:  free\n"));
        assert_eq!(place.end(&["status", "-q", ""]).code, 64, "a name that can't be held");
        assert_eq!(place.end(&["status", "-q", "--json", "name"]).code, 64, "nothing, as JSON");
    }
}

#[test]
fn status_hints_at_a_process_that_is_gone() {
    for place in both() {
        acquire(&place, &["--ttl", "10m"], "name");
        let block = place.end(&["status", "name"]).stdout;
        assert!(fact(&block, "hint").is_some_and(|hint| hint.contains("no such process")), "{block}");
    }
}

// B6
#[test]
fn status_of_a_lock_of_another_library() {
    let place = Place::on_redis();
    place.server().command(&["SET", "tenure:name", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"]);
    let block = place.end(&["status", "name"]).stdout;
    assert!(fact(&block, "holder").unwrap().contains("another library"), "{block}");
    assert!(fact(&block, "lease").unwrap().contains("without expiry"), "{block}");
    let none = "a lock of another library has no fence";
    assert_eq!(fact(&block, "fence").unwrap(), format!("0, which stands for none: {none}"));
    assert_eq!(place.end(&["run", "before", "true"]).code, 0);
    place.server().command(&["SET", "tenure:before", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"]);
    let before = place.end(&["status", "before"]).stdout;
    assert!(fact(&before, "fence").unwrap().ends_with(&format!(", the last of Tenure: {none}")), "{before}");
    place.server().command(&["DEL", "tenure:before"]);
    assert!(fact(&block, "since").is_none() && fact(&block, "hint").is_none(), "{block}");
    let object = &objects(&place.end(&["status", "--json", "name"]).stdout)[0];
    assert_eq!((&object["state"], &object["holder"]["foreign"]), (&"held".into(), &true.into()));
    for unknown in ["since_unix_ms", "held_ms", "lease_left_ms"] {
        assert!(object[unknown].is_null(), "{unknown}: {object}");
    }
    assert!(object["holder"]["host"].is_null() && object["holder"]["pid"].is_null(), "{object}");
    let row = place.end(&["ls"]).stdout;
    assert!(row.contains("another library    -    -  no end"), "{row}");
}

#[test]
fn a_store_that_is_away_and_a_reader_that_is_gone() {
    let place = Place::on_redis();
    acquire(&place, &["--ttl", "10m"], "name");
    for args in [&["ls"][..], &["ls", "--json"], &["status", "name"]] {
        let mut unread = place.tenure(args);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = unread.stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!((ended.status.code(), ended.stderr.as_slice()), (Some(0), &b""[..]), "{args:?}");
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let ended = place.tenure(args).stdout(full).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(ended.status.code(), Some(74), "{args:?}: what is lost is told");
    }
    place.server().kill();
    for args in [&["ls"][..], &["status", "-q", "name"]] {
        let away = place.end(args);
        assert_eq!((away.code, away.stdout.as_str()), (69, ""), "{args:?}");
        assert!(away.stderr.starts_with("tenure: "), "{args:?}: {}", away.stderr);
    }
}
