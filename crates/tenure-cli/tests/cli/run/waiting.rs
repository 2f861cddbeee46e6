//! Names that someone else holds.

use rustix::process::Signal;

use crate::support::{Place, eventually, lives};

// R2.3, R4.1
#[test]
fn a_busy_name_is_refused_with_its_holder_and_what_to_do() {
    let place = Place::new();
    let holder = place
        .start_script(&["--label", "night\u{1b}ly"], "echo $TENURE_FENCE > fence; echo $$ > pid; sleep 600");
    place.pid("pid");
    for (options, code) in
        [(&["-n"][..], 75), (&["-w", "0"], 75), (&["-w", ".05"], 75), (&["-n", "-E", "9"], 9)]
    {
        let done = place.end(&[&["run"], options, &["name", "--", "touch", "ran"]].concat());
        assert_eq!((done.code, done.stdout.as_str()), (code, ""), "{options:?}: {done:?}");
        let message = done.stderr;
        assert!(message.lines().all(|line| line.starts_with("tenure: ")), "{message}");
        let user = place.command("id").arg("-un").output().unwrap().stdout;
        let user = String::from_utf8(user).unwrap();
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let fence = place.read("fence");
        let fence = fence.trim();
        // A waiter that gave up does not know how many wait behind it.
        let gave_up = options == ["-w", ".05"];
        let waiters = (!gave_up).then(|| "nobody else waits for it".to_owned());
        let before = [
            format!("`name` is held by {}@{}", user.trim(), host.trim()),
            format!("pid {}", holder.holder()),
            // Nothing of it reaches the terminal.
            "label `night\\u{1b}ly`".to_owned(),
            "since 20".to_owned(),
            "lease left ".to_owned(),
            format!("fence {fence}"),
            format!("domain {} (from TENURE_URL)", place.url()),
        ];
        let after = [
            match options {
                ["-w", "0"] => "to wait for it up to a minute: use -w 60s instead of -w 0",
                ["-w", ..] => "to wait for as long as it takes: leave out -w",
                _ => "to wait for it up to a minute: use -w 60s instead of -n",
            }
            .to_owned(),
            "to see more: tenure status name".to_owned(),
            format!("to take it away from a holder that is dead: tenure break name --fence {fence}"),
        ];
        let expected: Vec<String> = before.into_iter().chain(waiters).chain(after).collect();
        let lines: Vec<&str> = message.lines().collect();
        assert_eq!(lines.len(), expected.len(), "{message}");
        for (line, expected) in lines.iter().zip(expected) {
            assert!(line.starts_with(&format!("tenure: {expected}")), "{message}\nexpected {expected}");
        }
        assert!(lines[3].contains(" UTC, for "), "{message}");
    }
    for options in [&["-n", "-E", "0"][..], &["-w", ".05", "-E", "0"]] {
        let done = place.end(&[&["run"], options, &["name", "--", "touch", "ran"]].concat());
        assert_eq!((done.code, done.stderr.as_str()), (0, ""), "cron would mail it");
    }
    assert!(!place.path("ran").exists());
    holder.signal(Signal::TERM);
    assert_eq!(holder.finish().code, 143);
    assert_eq!(place.end(&["run", "-n", "name", "true"]).code, 0);
}

// R1.1
#[test]
fn a_waiter_gets_the_name_when_it_is_free() {
    let place = Place::new();
    let holder = place.start_script(&[], "echo $$ > pid; sleep 600");
    place.pid("pid");
    let waiting = place.start_script(&["-q", "-w", "1h"], "echo in >> seen");
    let also_waiting = place.start_script(&["-q"], "echo in >> seen");
    assert_eq!(place.read("seen"), "");
    holder.signal(Signal::TERM);
    for waiting in [waiting, also_waiting] {
        let done = waiting.finish();
        assert_eq!((done.code, done.stderr.as_str()), (0, ""));
    }
    assert_eq!((place.read("seen").as_str(), place.read("overlaps").as_str()), ("in\nin\n", ""));
}

// B4, R1.1
#[test]
fn never_two_at_the_same_time() {
    let place = Place::new();
    let script = "echo $TENURE_FENCE >> fences; sleep .01";
    let all: Vec<_> = (0..20).map(|_| place.start_script(&["-q"], script)).collect();
    for running in all {
        let done = running.finish();
        assert_eq!((done.code, done.stderr.as_str()), (0, ""));
    }
    assert_eq!(place.read("overlaps"), "");
    let fences: Vec<u64> = place.read("fences").lines().map(|line| line.parse().unwrap()).collect();
    assert!(fences.len() == 20 && fences.is_sorted_by(|a, b| a < b), "{fences:?}");
    assert_eq!(place.leftovers(), [""; 0]);
    place.assert_nothing_left();
}

// R1.4
#[test]
fn a_waiter_that_gave_up_has_left_the_queue() {
    let place = Place::new();
    let holder = place.start_script(&[], "echo $$ > pid; sleep 600");
    place.pid("pid");
    let of_holder = place.leftovers().len();
    for _ in 0..5 {
        let done = place.end(&["run", "-w", ".2", "name", "true"]);
        assert!(done.code == 75 && !done.stderr.contains("waiting"), "it does not count itself: {done:?}");
        assert_eq!(place.leftovers().len(), of_holder, "nothing is left of its session");
        let done = place.end(&["run", "-n", "name", "true"]);
        assert!(done.code == 75 && !done.stderr.contains("waiting"), "{done:?}");
    }
    let waiting = place.start(&["run", "name", "true"]);
    eventually("it is in the queue", || {
        place.end(&["run", "-n", "name", "true"]).stderr.contains("tenure: 1 waiting for it\n")
    });
    let done = place.end(&["run", "-w", ".2", "name", "true"]);
    assert!(!done.stderr.contains("waiting"), "it knows only who was ahead of it: {done:?}");
    holder.signal(Signal::TERM);
    holder.finish();
    assert_eq!(waiting.finish().code, 0);
    place.assert_nothing_left();
}

// R1.4
#[test]
fn interrupted_while_waiting_it_leaves_the_queue() {
    let place = Place::new();
    let holder = place.start_script(&[], "echo $$ > pid; sleep 600");
    place.pid("pid");
    let is_queued = |count: &str| {
        let busy = place.end(&["run", "-n", "name", "true"]).stderr;
        busy.contains(&format!("tenure: {count} waiting for it"))
    };
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129), (Signal::USR1, 138)] {
        let waiting = place.start(&["run", "-q", "name", "--", "touch", "ran"]);
        eventually("it is in the queue", || is_queued("1"));
        // These change nothing.
        waiting.signal(Signal::WINCH);
        waiting.signal(Signal::CONT);
        waiting.signal(signal);
        let done = waiting.finish();
        assert_eq!((done.code, done.stderr.as_str()), (code, ""));
        assert!(!is_queued("1"), "it has left");
    }
    // Killed, its holder leaves for it.
    let waiting = place.start(&["run", "name", "--", "touch", "ran"]);
    eventually("it is in the queue", || is_queued("1"));
    let waiting_holder = waiting.holder();
    waiting.signal(Signal::KILL);
    waiting.finish();
    eventually("the holder ends", || !lives(waiting_holder));
    assert!(!is_queued("1"), "it has left");

    holder.signal(Signal::TERM);
    holder.finish();
    assert!(!place.path("ran").exists());
    place.assert_nothing_left();
}

#[test]
fn a_signal_that_is_ignored_is_ignored_by_all() {
    let place = Place::new();
    let holder = place.start_script(&[], "echo $$ > pid; sleep 600");
    place.pid("pid");
    let tenure = env!("CARGO_BIN_EXE_tenure");
    let script = format!("trap '' HUP; exec setsid {tenure} run name -- grep SigIgn /proc/self/status");
    let mut command = place.command("sh");
    command.args(["-c", &script]);
    let waiting = place.spawn(command);
    eventually("it is in the queue", || {
        place.end(&["run", "-n", "name", "true"]).stderr.contains("1 waiting")
    });
    waiting.signal(Signal::HUP);
    holder.signal(Signal::TERM);
    let done = waiting.finish();
    let ignored = done.stdout.trim().strip_prefix("SigIgn:\t").unwrap();
    assert_eq!((done.code, u64::from_str_radix(ignored, 16).unwrap() & 1), (0, 1), "{done:?}");
}

// R4.1
#[test]
fn without_a_terminal_a_wait_is_one_line() {
    for place in [Place::new(), Place::on_redis()] {
        let holder = place.start_script(&["--label", "night\u{1b}ly"], "echo $$ > pid; sleep 600");
        place.pid("pid");
        let silent = [
            place.start(&["run", "-q", "name", "true"]),
            place.start(&["run", "-E", "0", "-w", "1h", "name", "true"]),
        ];
        eventually("they are in the queue", || {
            place.end(&["run", "-n", "name", "true"]).stderr.contains("tenure: 2 waiting for it\n")
        });
        let first = place.start(&["run", "name", "true"]);
        eventually("it says so", || first.said().ends_with('\n'));
        let second = place.start(&["run", "name", "true"]);
        eventually("it says so", || second.said().ends_with('\n'));
        let who = format!(", pid {}, label `night\\u{{1b}}ly`, for ", holder.holder());
        for (waiting, position) in [(&first, "3 of 3"), (&second, "4 of 4")] {
            let said = waiting.said();
            assert_eq!(said.lines().count(), 1, "{said}");
            assert!(said.starts_with(&format!("tenure: waiting for `name`; {position}")), "{said}");
            assert!(said.contains(&who) && said.contains("; lease left "), "{said}");
        }
        holder.signal(Signal::TERM);
        for waiting in [first, second] {
            let done = waiting.finish();
            assert_eq!((done.code, done.stderr.lines().count()), (0, 1), "{done:?}");
        }
        for waiting in silent {
            let done = waiting.finish();
            assert_eq!((done.code, done.stderr.as_str()), (0, ""), "cron would mail it");
        }
    }
}

// R4.1
#[test]
fn verbose_says_more_and_quiet_nothing() {
    let place = Place::new();
    let holder = place.start_script(&["-v"], "echo $TENURE_FENCE > fence; echo $$ > pid; sleep 600");
    place.pid("pid");
    let waiting = place.start(&["run", "--verbose", "name", "true"]);
    eventually("it says that it waits", || waiting.said().contains("tenure: waiting for `name`\n"));
    let busy = place.end(&["run", "-q", "-n", "name", "true"]);
    assert_eq!((busy.code, busy.stderr.as_str()), (75, ""));
    holder.signal(Signal::TERM);
    let held = holder.finish().stderr;
    // On a busy machine a free name is waited for, too.
    let lines: Vec<&str> = held.lines().filter(|line| *line != "tenure: waiting for `name`").collect();
    let acquired = format!("tenure: acquired `name` with fence {}, after ", place.read("fence").trim());
    let domain = format!("tenure: domain {} (from TENURE_URL)\n", place.url());
    assert!(lines.len() == 3 && held.starts_with(&domain) && lines[1].starts_with(&acquired), "{held}");
    assert!(lines[2].starts_with("tenure: gave `name` back, held for "), "{held}");
    let waited = waiting.finish().stderr;
    assert!(
        waited.starts_with(&format!("{domain}tenure: waiting for `name`\n"))
            && waited.contains("tenure: acquired"),
        "{waited}"
    );

    let quiet = |args: &[&str]| place.end(&[&["run", "--quiet"], args].concat());
    assert_eq!(quiet(&["name", "no-such-command"]).stderr, "");
    assert_eq!(quiet(&["name", "sh", "-c", "echo own >&2"]).stderr, "own\n");
    assert_eq!(quiet(&["--url", "file:///proc/tenure", "name", "true"]).stderr, "");
    for wrong in [&["", "true"][..], &["--ttl", "1", "--bogus", "name"], &["--url", "x:", "name", "true"]] {
        let done = quiet(wrong);
        assert!(
            done.code == 64 && done.stderr.starts_with("tenure: "),
            "a wrong command line is told: {done:?}"
        );
    }
}

/// What is to be typed next is typed, by a shell.
#[test]
fn the_suggested_commands_contain_the_name() {
    let place = Place::new();
    for name in ["it's a b", "-n", "$HOME", "a\nb"] {
        let holder = place.start(&["run", "--", name, "sh", "-c", "echo $$ > pid; exec sleep 600"]);
        place.pid("pid");
        let busy = place.end(&["run", "-n", "--", name, "true"]).stderr;
        let command = busy.lines().find_map(|line| line.strip_prefix("tenure: to see more: tenure status "));
        let mut shell = place.command("bash");
        shell.args(["-c", &format!("set -- {}; shift $(($# - 1)); printf %s \"$1\"", command.unwrap())]);
        assert_eq!(place.spawn(shell).finish().stdout, name, "{busy}");
        let url = place.url();
        let busy = place.end(&["run", "--url", &url, "-n", "--", name, "true"]).stderr;
        assert!(busy.contains("tenure status ") && busy.contains(&format!(" --url {url}")), "{busy}");
        holder.signal(Signal::TERM);
        holder.finish();
        std::fs::remove_file(place.path("pid")).unwrap();
    }
}

/// `-E 0` is for what someone else does. That the store is away is said as soon as it is known.
#[test]
fn an_outage_is_reported_even_if_a_conflict_is_not() {
    let place = Place::new();
    for url in ["redis://127.0.0.1:1", "redis://no.such.host.invalid"] {
        let running = place.start(&["run", "-E", "0", "-w", "1h", "--url", url, "name", "true"]);
        eventually("it is said", || running.said().contains("; store is away since "));
        running.signal(Signal::TERM);
        running.finish();
    }
}
