//! Passwords: what they open and what they do not, and that nobody is shown one.

use std::process::Command;

use rustix::process::Signal;
use tenure_testkit::redis::RedisServer;

use crate::support::{Finished, Place, eventually};

const PASSWORD: &str = "open-sesame";

fn place() -> Place {
    Place::on(RedisServer::builder().config("requirepass", PASSWORD).start())
}

/// The URL of its server, for that user with that password.
fn url(place: &Place, user: &str, password: &str) -> String {
    format!("redis://{user}:{password}@127.0.0.1:{}", place.server().port())
}

/// `tenure` with a URL from its environment, or from its command line.
fn tenure(place: &Place, is_option: bool, url: &str, args: &[&str]) -> Command {
    if is_option {
        let mut command = place.tenure(&[&["run", "--url", url], args].concat());
        command.env_remove("TENURE_URL");
        command
    } else {
        let mut command = place.tenure(&[&["run"], args].concat());
        command.env("TENURE_URL", url);
        command
    }
}

#[track_caller]
fn assert_silent_about(secret: &str, done: &Finished) {
    assert!(!done.stdout.contains(secret) && !done.stderr.contains(secret), "{done:?}");
}

// R0.6
#[test]
fn the_command_does_not_see_the_password() {
    let place = place();
    let url = url(&place, "", PASSWORD);
    for is_option in [true, false] {
        let done = place.spawn(tenure(&place, is_option, &url, &["name", "--", "env"])).finish();
        assert_eq!((done.code, done.stderr.contains("password in --url")), (0, is_option), "{done:?}");
        let shown: Vec<&str> = done.stdout.lines().filter(|line| line.contains(PASSWORD)).collect();
        assert!(done.stdout.contains("TENURE_NAME=name\n") && shown.is_empty(), "{shown:?}");
    }
}

/// As the documents say: what runs as the same user can look, and what runs as another one can't.
// R0.6
#[test]
fn only_another_user_is_kept_from_the_environment_of_tenure() {
    let place = place();
    let url = url(&place, "", PASSWORD);
    let look = ["sh", "-c", "cat /proc/$PPID/environ; true"];
    let other = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups"];
    for (user, sees) in [(&[][..], true), (&other[..], false)] {
        let args = [&["name", "--"], user, &look].concat();
        let done = place.spawn(tenure(&place, false, &url, &args)).finish();
        assert_eq!((done.code, done.stdout.contains(PASSWORD)), (0, sees), "{user:?}");
    }
}

// R0.6
#[test]
fn a_wrong_password_is_refused_and_not_shown() {
    let place = place();
    let wrong = "not-so-secret";
    for is_option in [true, false] {
        for user in ["", "nobody"] {
            let url = url(&place, user, wrong);
            let done = place.spawn(tenure(&place, is_option, &url, &["name", "touch", "ran"])).finish();
            assert_eq!((done.code, done.stdout.as_str()), (77, ""), "{done:?}");
            assert!(done.stderr.starts_with("tenure: "), "{done:?}");
            assert_silent_about(wrong, &done);
        }
    }
    let done = place.end(&["run", "name", "touch", "ran"]);
    assert_eq!(done.code, 77, "no password at all: {done:?}");
    assert!(!place.path("ran").exists());
}

#[test]
fn a_user_without_the_keys_is_refused() {
    let place = place();
    for (user, rules) in
        [("keyless", "+@all &*"), ("elsewhere", "+@all &* ~other:*"), ("mute", "~* &* +ping +hello")]
    {
        let password = format!(">{user}-word");
        let rules: Vec<&str> =
            ["ACL", "SETUSER", user, "on", &password].into_iter().chain(rules.split(' ')).collect();
        assert_eq!(place.server().command(&rules).text(), "OK");
        let url = url(&place, user, &password[1..]);
        let done = place.spawn(tenure(&place, false, &url, &["name", "touch", "ran"])).finish();
        assert_eq!((done.code, done.stdout.as_str()), (77, ""), "{user}: {done:?}");
        assert!(done.stderr.starts_with("tenure: "), "{done:?}");
        assert_silent_about(&password[1..], &done);
    }
    assert!(!place.path("ran").exists());
    let keys = place.server().command(&["KEYS", "*"]);
    assert_eq!(keys.items(), [], "nothing was taken");
}

/// Whatever goes wrong.
// R0.6
#[test]
fn no_message_shows_the_password() {
    let place = place();
    let url = url(&place, "", PASSWORD);
    let start = |is_option, args: &[&str]| place.spawn(tenure(&place, is_option, &url, args));
    for is_option in [true, false] {
        let script = "rm -f pid; echo $$ > pid; exec sleep 600";
        let holder = start(is_option, &["--ttl", "1s", "name", "--", "sh", "-c", script]);
        let held = place.pid("pid");
        let mut all = vec![
            ("busy", 75, start(is_option, &["-n", "name", "true"]).finish()),
            ("not found", 127, start(is_option, &["other", "no-such-command"]).finish()),
            ("usage", 64, start(is_option, &["--bogus", "name", "true"]).finish()),
            ("name", 64, start(is_option, &["", "true"]).finish()),
        ];
        let waiting = start(is_option, &["--ttl", "1s", "name", "true"]);
        place.server().kill();
        all.push(("lost", 79, holder.finish()));
        all.push(("waiting", 69, waiting.finish()));
        all.push(("away", 69, start(is_option, &["name", "true"]).finish()));
        for (what, code, done) in all {
            assert_eq!(done.code, code, "{what}: {done:?}");
            assert!(!done.stderr.is_empty(), "{what}");
            assert_silent_about(PASSWORD, &done);
        }
        assert!(!crate::support::lives(held));
        place.server().restart();
        std::fs::remove_file(place.path("pid")).unwrap();
    }
    for bad in ["?tll=1s", "/not-a-number", "?timeout=0"] {
        for is_option in [true, false] {
            let done =
                place.spawn(tenure(&place, is_option, &format!("{url}{bad}"), &["name", "true"])).finish();
            assert_eq!(done.code, 64, "{bad}: {done:?}");
            assert_silent_about(PASSWORD, &done);
        }
    }
}

/// Everyone on the machine can look at the processes of others.
#[test]
fn a_url_in_the_environment_is_in_no_command_line() {
    let place = place();
    let url = url(&place, "", PASSWORD);
    let script = "echo $$ > pid; exec sleep 600";
    let running = place.spawn(tenure(&place, false, &url, &["name", "sh", "-c", script]));
    place.pid("pid");
    // One that just becomes another program has no environment for a moment.
    eventually("wrapper, holder and command", || place.processes().len() >= 3);
    for pid in place.processes() {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        assert!(!String::from_utf8_lossy(&words).contains(PASSWORD));
    }
    running.signal(Signal::TERM);
    assert_eq!(running.finish().code, 143);
}
