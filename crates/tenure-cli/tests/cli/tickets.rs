//! `tenure acquire`, `renew` and `release`: leases that outlive the process that took them.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{Finished, Place, Running, eventually};

fn both() -> [Place; 2] {
    [Place::new(), Place::on_redis()]
}

/// Whether nobody holds it, nor waits for it.
fn is_free(place: &Place, name: &str) -> bool {
    match place.end(&["run", "-n", "-q", name, "true"]).code {
        0 => true,
        75 => false,
        code => panic!("exit code {code}"),
    }
}

#[track_caller]
fn ticket(place: &Place, args: &[&str]) -> String {
    let done = place.end(&[&["acquire"], args].concat());
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
    let ticket = done.stdout.strip_suffix('\n').unwrap();
    assert!(ticket.starts_with("tenure1/") && !ticket.contains(['\n', ' ']), "one word: {ticket:?}");
    ticket.to_owned()
}

/// The value of a field, as it stands in an object.
fn field<'a>(object: &'a str, name: &str) -> &'a str {
    let (_, rest) = object.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{name}: {object}"));
    rest.split_inclusive([',', '}']).next().unwrap().trim_end_matches([',', '}'])
}

#[track_caller]
fn assert_silent(done: &Finished) {
    assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (0, "", ""));
}

// R2.4
#[test]
fn a_ticket_holds_a_name_until_it_is_released() {
    for place in both() {
        let ticket = ticket(&place, &["--label", "by hand", "a name"]);
        assert!(!is_free(&place, "a name"));
        let busy = place.end(&["acquire", "-n", "a name"]);
        assert_eq!((busy.code, busy.stdout.as_str()), (75, ""));
        assert!(busy.stderr.contains("label `by hand`"), "{busy:?}");
        assert_silent(&place.end(&["renew", &ticket]));
        assert_silent(&place.end(&["release", &ticket]));
        assert!(is_free(&place, "a name"));
        place.assert_nothing_left();
    }
}

// R2.4
#[test]
fn a_ticket_is_read_from_stdin() {
    for place in both() {
        fs::write(place.path("ticket"), ticket(&place, &["name"])).unwrap();
        for verb in ["renew", "release"] {
            let mut command = place.tenure(&[verb, "-"]);
            command.stdin(File::open(place.path("ticket")).unwrap());
            assert_silent(&place.spawn(command).finish());
        }
        assert!(is_free(&place, "name"));
    }
}

#[test]
fn a_ticket_that_is_not_on_stdin_is_missing() {
    let place = Place::new();
    fs::write(place.path("blank"), " \n").unwrap();
    for verb in ["renew", "release"] {
        for stdin in ["/dev/null".into(), place.path("blank")] {
            let mut command = place.tenure(&[verb, "-"]);
            command.stdin(File::open(stdin).unwrap());
            let done = place.spawn(command).finish();
            let said = "tenure: TICKET is missing: stdin is empty; did the `tenure acquire` before it fail?\n\
                        tenure: a ticket is what this prints: tenure acquire NAME\n";
            assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (64, "", said));
        }
    }
}

#[test]
fn programs_get_objects() {
    for place in both() {
        let acquired = place.end(&["acquire", "--json", "--ttl", "30s", "a\"b"]).stdout;
        assert!(acquired.starts_with(r#"{"v":1,"name":"a\"b","ticket":"tenure1/"#), "{acquired}");
        assert_eq!(field(&acquired, "ttl_ms"), "30000");
        field(&acquired, "waited_ms").parse::<u64>().unwrap();
        let ticket = field(&acquired, "ticket").trim_matches('"').to_owned();
        assert!(ticket.contains(&format!("/{}/", field(&acquired, "fence"))), "{acquired}");

        let renewed = place.end(&["renew", "--json", &ticket]).stdout;
        assert!(renewed.starts_with(r#"{"v":1,"name":"a\"b","renewed":true,"#), "{renewed}");
        assert!((1..=30_000).contains(&field(&renewed, "lease_left_ms").parse::<u64>().unwrap()));
        let released = place.end(&["release", "--json", &ticket]).stdout;
        assert_eq!(released, "{\"v\":1,\"name\":\"a\\\"b\",\"released\":\"released\",\"by\":null}\n");

        let late = place.end(&["release", "--json", &ticket]);
        assert_eq!((late.code, field(&late.stdout, "released")), (79, "\"gone\""));
        place.end(&["acquire", "--label", "next", "a\"b"]);
        let late = place.end(&["release", "--json", &ticket]);
        assert_eq!((late.code, field(&late.stdout, "released")), (79, "\"taken\""));
        assert_eq!(field(&late.stdout, "label"), "\"next\"");
        let late = place.end(&["renew", "--json", &ticket]);
        assert_eq!((late.code, field(&late.stdout, "renewed")), (79, "false"));
        assert_eq!(field(&late.stdout, "label"), "\"next\"");
    }
}

/// Nobody renews it but the script.
#[test]
fn a_ticket_lasts_as_long_as_requested() {
    let place = Place::new();
    let with = |option: &str| format!("{}?ttl={option}", place.url());
    for (args, ttl) in [
        (vec!["name"], "60000"),
        (vec!["--ttl", "5s", "name"], "5000"),
        (vec!["--url", &with("7s"), "name"], "7000"),
        (vec!["--url", &with("7s"), "--ttl", "5s", "name"], "5000"),
    ] {
        let done = place.end(&[vec!["acquire", "--json"], args].concat());
        assert_eq!(field(&done.stdout, "ttl_ms"), ttl, "{done:?}");
        let ticket = field(&done.stdout, "ticket").trim_matches('"').to_owned();
        assert_eq!(place.end(&["release", &ticket]).code, 0);
    }
    let done = place.end(&["acquire", "-v", "name"]);
    assert!(done.stderr.ends_with("tenure: ticket lasts 1m0s, unless it is renewed\n"), "{done:?}");
}

// R2.1
#[test]
fn renewed_it_outlasts_its_ttl() {
    for place in both() {
        let start = Instant::now();
        let ticket = ticket(&place, &["--ttl", "3s", "name"]);
        while start.elapsed() < Duration::from_secs(5) {
            assert_silent(&place.end(&["renew", &ticket]));
            assert!(!is_free(&place, "name"));
            std::thread::sleep(Duration::from_millis(100));
        }
        assert_silent(&place.end(&["release", &ticket]));
    }
}

/// A script learns that its work was not protected to its end.
// R2.1, R2.4
#[test]
fn a_useless_ticket_is_reported() {
    for place in both() {
        let old = ticket(&place, &["--ttl", "1s", "name"]);
        eventually("it expires", || is_free(&place, "name"));
        let gone = format!(
            "tenure: lease on `name` had ended before, and nobody holds it now\n\
             tenure: it expired, was given back, or was acquired in another domain than {} (from TENURE_URL)\n",
            place.url()
        );
        for verb in ["renew", "release"] {
            let done = place.end(&[verb, &old]);
            assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (79, "", gone.as_str()));
        }
        let new = ticket(&place, &["--label", "an\u{1b}other", "name"]);
        for verb in ["renew", "release"] {
            let done = place.end(&[verb, &old]);
            assert_eq!((done.code, done.stdout.as_str()), (79, ""));
            assert!(
                done.stderr.contains("had ended before, and ") && done.stderr.contains(" holds it now\n")
            );
            assert!(done.stderr.contains("label `an\\u{1b}other`"), "{done:?}");
        }
        assert_silent(&place.end(&["release", &new]));
        // Of another domain.
        let elsewhere = format!("file://{}", place.path("elsewhere").display());
        let other = ticket(&place, &["--url", &elsewhere, "name"]);
        let done = place.end(&["release", &other]);
        assert!(done.code == 79 && done.stderr.contains("acquired in another domain than "), "{done:?}");
        assert_silent(&place.end(&["release", "--url", &elsewhere, &other]));
    }
}

#[test]
fn a_ticket_that_cannot_be_written_is_given_back() {
    for place in both() {
        let full = || Stdio::from(OpenOptions::new().write(true).open("/dev/full").unwrap());
        let unread = || Stdio::from(std::io::pipe().unwrap().1);
        for (what, stdout) in [("No space left", full()), ("Broken pipe", unread())] {
            let output =
                place.tenure(&["acquire", "name"]).stdout(stdout).stderr(Stdio::piped()).spawn().unwrap();
            let output = output.wait_with_output().unwrap();
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(74), "{stderr}");
            assert!(stderr.ends_with("tenure: `name` was given back\n") && stderr.contains(what), "{stderr}");
            assert!(is_free(&place, "name"));
        }
        let mut closed = place.command("sh");
        closed.args(["-c", &format!("exec {} acquire name >&-", env!("CARGO_BIN_EXE_tenure"))]);
        let done = place.spawn(closed).finish();
        assert!(done.code == 74 && done.stderr.contains("stdout is closed"), "{done:?}");
        assert!(is_free(&place, "name"));
        // Meant so: it is held for its ttl.
        let null = OpenOptions::new().write(true).open("/dev/null").unwrap();
        assert!(place.tenure(&["acquire", "name"]).stdout(null).status().unwrap().success());
        assert!(!is_free(&place, "name"));
    }
}

fn queued(place: &Place, args: &[&str]) -> Running {
    let waiting = place.start(args);
    eventually("it is in the queue", || {
        place.end(&["run", "-n", "name", "true"]).stderr.contains("tenure: 1 waiting for it\n")
    });
    waiting
}

// R1.4
#[test]
fn a_waiter_gets_the_name_or_leaves_the_queue() {
    for place in both() {
        let held = ticket(&place, &["name"]);
        for (signal, code) in
            [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129), (Signal::QUIT, 131)]
        {
            let waiting = queued(&place, &["acquire", "-q", "name"]);
            waiting.signal(signal);
            let done = waiting.finish();
            assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (code, "", ""));
            let busy = place.end(&["run", "-n", "name", "true"]).stderr;
            assert!(busy.contains("nobody else waits"), "it has left: {busy}");
        }
        for (options, code) in [(&["-n"][..], 75), (&["-w", "1s"], 75), (&["-n", "-E", "9"], 9)] {
            let done = place.end(&[&["acquire"], options, &["name"]].concat());
            assert_eq!((done.code, done.stdout.as_str()), (code, ""));
            assert!(done.stderr.contains("tenure: `name` is held by "), "{done:?}");
        }
        // `acquire … && job` must not run the job without the name.
        for command in ["acquire", "hold"] {
            let done = place.end(&[command, "-n", "-E", "0", "name"]);
            assert_eq!((done.code, done.stdout.as_str()), (64, ""), "{done:?}");
            assert!(done.stderr.contains("-E 0 is for `tenure run` alone"), "{done:?}");
        }

        let waiting = queued(&place, &["acquire", "-q", "name"]);
        assert_silent(&place.end(&["release", &held]));
        let done = waiting.finish();
        assert_eq!(done.code, 0);
        assert_silent(&place.end(&["release", &done.stdout]));
        place.assert_nothing_left();
    }
}

// R0.5, R0.6
#[test]
fn wrong_input_is_reported() {
    let place = Place::new();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["acquire", ""], 64, "name is empty"),
        (
            &["acquire", "--ttl", "10ms", "name"],
            64,
            "invalid value '10ms' for '--ttl <DURATION>': it is out of range",
        ),
        (&["acquire", "--url", "memory:", "name"], 64, "private to one process"),
        (&["acquire", "--url", "file:///proc/tenure", "name"], 69, "/proc/tenure"),
        (&["renew", "tenure1/nonsense"], 64, "ticket is damaged: its text was changed or cut"),
        (&["release", "tenure2/a/1/1/t"], 64, "ticket does not start with `tenure1/`"),
        (&["release"], 64, "<TICKET>"),
    ];
    for (args, code, message) in cases {
        let done = place.end(args);
        assert!(done.code == *code && done.stdout.is_empty(), "{args:?}: {done:?}");
        assert!(done.stderr.starts_with("tenure: ") && done.stderr.contains(message), "{args:?}: {done:?}");
    }
    // A letter too many, or too few, is not a lease that has ended.
    let held = ticket(&place, &["damaged"]);
    for damaged in [format!("{held}x"), held[..held.len() - 1].to_owned()] {
        for verb in ["renew", "release"] {
            let done = place.end(&[verb, &damaged]);
            let said = "tenure: ticket is damaged: its text was changed or cut; give its whole text\n";
            assert!(done.code == 64 && done.stderr.starts_with(said), "{done:?}");
        }
    }
    let redis = Place::on_redis();
    let held = ticket(&redis, &["name"]);
    redis.server().kill();
    for args in [&["acquire", "other"][..], &["renew", &held], &["release", &held]] {
        let done = redis.end(args);
        assert!(done.code == 69 && done.stdout.is_empty(), "{done:?}");
        assert!(!done.stderr.contains(&held), "a ticket is a secret: {done:?}");
    }
}

/// As the help shows it.
#[test]
fn a_script_takes_and_gives_back() {
    for place in both() {
        let script = r#"
            ticket=$("$T" acquire --ttl 5m deploy) || exit
            "$T" acquire -q -n deploy; echo "meanwhile $?"
            "$T" renew "$ticket" && "$T" release - <<< "$ticket""#;
        let mut command = place.command("bash");
        command.args(["-c", script]).env("T", env!("CARGO_BIN_EXE_tenure"));
        let done = place.spawn(command).finish();
        assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (0, "meanwhile 75\n", ""));
        assert!(is_free(&place, "deploy"));
    }
    // What was typed by hand may end with a line break, or not.
    let place = Place::new();
    let text = ticket(&place, &["name"]);
    let mut command = place.tenure(&["release", "-"]);
    command.stdin(Stdio::piped());
    let mut running = place.spawn(command);
    running.stdin().write_all(format!("{text}\r\n").as_bytes()).unwrap();
    assert_silent(&running.finish());
}
