//! What the command is given: a line for a shell, and variables.

use crate::support::{Finished, Place};

fn variable(done: &Finished, name: &str) -> Option<String> {
    let prefix = format!("{name}=");
    done.stdout.lines().find_map(|line| line.strip_prefix(&prefix)).map(str::to_owned)
}

// B4
#[test]
fn a_line_is_run_by_the_shell_of_the_user() {
    let place = Place::new();
    for (shell, line, expected) in [
        (Some("/bin/bash"), r#"echo "${BASH_VERSION:+bash} $#"; exit 3"#, "bash 0\n"),
        (Some(""), "readlink -f /proc/$$/exe | grep -c . ; exit 3", "1\n"),
        (None, "echo $0 $TENURE_NAME; exit 3", "/bin/sh name\n"),
    ] {
        let mut command = place.tenure(&["run", "name", "-c", line]);
        match shell {
            Some(shell) => command.env("SHELL", shell),
            None => command.env_remove("SHELL"),
        };
        let done = place.spawn(command).finish();
        assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (3, expected, ""), "{shell:?}");
    }
    let mut command = place.tenure(&["run", "name", "-c", "true"]);
    command.env("SHELL", "/no/such/shell");
    let done = place.spawn(command).finish();
    assert!(done.code == 127 && done.stderr.contains("`/no/such/shell` not found"), "{done:?}");
}

// B1
#[test]
fn the_command_learns_how_long_tenure_waited() {
    let place = Place::new();
    let at_once = place.end(&["run", "name", "env"]);
    assert_eq!(variable(&at_once, "TENURE_NAME").unwrap(), "name");
    let waited = |done| variable(done, "TENURE_WAITED_MS").unwrap().parse::<u64>().unwrap();
    assert!(waited(&at_once) < 10_000);
    let holder = place.start_script(&[], "echo $$ > pid; exec sleep 600");
    let pid = place.pid("pid");
    let waiting = place.start(&["run", "name", "env"]);
    crate::support::eventually("half a second has gone by", || waiting.said().contains("waiting for"));
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    holder.finish();
    assert!(waited(&waiting.finish()) >= 500);
}

/// A URL may have a password in it.
// R0.6
#[test]
fn the_command_is_not_given_the_url() {
    let place = Place::new();
    let url = place.url();
    let from_variable = place.end(&["run", "name", "env"]);
    let mut command = place.tenure(&["run", "--url", &url, "name", "env"]);
    command.env_remove("TENURE_URL");
    let from_option = place.spawn(command).finish();
    let from_both = place.end(&["run", "--url", &url, "name", "env"]);
    for done in [from_variable, from_option, from_both] {
        assert_eq!(done.code, 0, "{done:?}");
        assert!(!done.stdout.contains(&url), "{done:?}");
        assert_eq!(variable(&done, "TENURE_URL"), None);
        assert_eq!(variable(&done, "TENURE_URL_WITHHELD").unwrap(), "1");
    }

    let from_variable = place.end(&["run", "--pass-url", "name", "env"]);
    let mut command = place.tenure(&["run", "--pass-url", "--url", &url, "name", "env"]);
    command.env("TENURE_URL", "file:///elsewhere").env("TENURE_URL_WITHHELD", "1");
    let from_option = place.spawn(command).finish();
    for done in [from_variable, from_option] {
        assert_eq!(variable(&done, "TENURE_URL"), Some(url.clone()), "{done:?}");
        assert_eq!(variable(&done, "TENURE_URL_WITHHELD"), None);
    }
}

/// Where the same names would exclude nobody.
// R0.6
#[test]
fn a_tenure_in_the_command_does_not_fall_to_the_default() {
    let place = Place::new();
    let tenure = env!("CARGO_BIN_EXE_tenure");
    let url = place.url();
    for outer in [&["run", "a"][..], &["run", "--url", &url, "a"]] {
        let done = place.end(&[outer, &[tenure, "run", "-q", "b", "touch", "ran"]].concat());
        assert_eq!(done.code, 64, "{done:?}");
        assert!(done.stderr.starts_with("tenure: domain is not known"), "{done:?}");
        for fix in ["--url", "TENURE_URL", "--pass-url"] {
            assert!(done.stderr.contains(fix), "{done:?}");
        }
        assert!(!place.path("ran").exists());
        let done = place.end(&[outer, &[tenure, "run", "--url", &url, "b", "true"]].concat());
        assert_eq!((done.code, done.stderr.as_str()), (0, ""));
        let done =
            place.end(&[outer, &["env", &format!("TENURE_URL={url}"), tenure, "run", "b", "true"]].concat());
        assert_eq!((done.code, done.stderr.as_str()), (0, ""));
        let empty = place.end(&[outer, &["env", "TENURE_URL=", tenure, "run", "b", "true"]].concat());
        assert!(empty.code == 64 && empty.stderr.contains("TENURE_URL is empty"), "{empty:?}");
    }
    let done = place.end(&["run", "--pass-url", "a", tenure, "run", "b", "true"]);
    assert_eq!((done.code, done.stderr.as_str()), (0, ""));

    // Below the default, it is the same. The names are none that anyone else takes.
    let (a, b) = (place.path("a"), place.path("b"));
    let mut command = place.tenure(&["run", a.to_str().unwrap(), tenure, "run", b.to_str().unwrap(), "env"]);
    command.env_remove("TENURE_URL").env_remove("XDG_CONFIG_HOME").env("HOME", place.path("home"));
    let done = place.spawn(command).finish();
    assert_eq!((done.code, variable(&done, "TENURE_URL_WITHHELD")), (0, None), "{done:?}");
}
