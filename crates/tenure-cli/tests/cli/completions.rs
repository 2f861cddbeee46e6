//! `tenure completions` and `tenure man`.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use crate::support::Place;

/// The commands that the help lists.
fn commands(place: &Place) -> Vec<String> {
    let help = place.end(&["--help"]).stdout;
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let names =
        list.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn for_every_shell() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let done = place.end(&["completions", shell]);
        assert_eq!((done.code, done.stderr.as_str()), (0, ""));
        for command in commands(&place) {
            assert!(done.stdout.contains(&command), "{shell}: {command}");
        }
    }
    let done = place.end(&["completions", "tcsh"]);
    assert!(done.code == 64 && done.stderr.contains("possible values: bash, "), "{done:?}");
}

#[test]
fn bash_completes() {
    let place = Place::new();
    fs::write(place.path("tenure.bash"), place.end(&["completions", "bash"]).stdout).unwrap();
    let complete = |words: &[&str]| {
        let script = r#". ./tenure.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
            _tenure tenure "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"; echo "${COMPREPLY[@]}""#;
        let mut command = place.command("bash");
        command.args(["-c", script, "bash", "tenure"]).args(words);
        let done = place.spawn(command).finish();
        assert_eq!((done.code, done.stderr.as_str()), (0, ""));
        done.stdout.trim_end().to_owned()
    };
    assert_eq!(complete(&["st"]), "status");
    assert_eq!(complete(&["run", "--nonb"]), "--nonblock");
    assert_eq!(complete(&["status", "--url-"]), "--url-file");
    assert_eq!(complete(&["completions", "el"]), "elvish");
    let all = complete(&[""]);
    for command in commands(&place) {
        assert!(all.split(' ').any(|word| word == command), "{command}: {all}");
    }
}

#[test]
fn a_closed_pipe_is_no_failure_and_a_full_disk_is_one() {
    let place = Place::new();
    for args in [&["completions", "bash"][..], &["man"]] {
        let (_, unread) = std::io::pipe().unwrap();
        let output = place.tenure(args).stdout(unread).stderr(Stdio::piped()).output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = place.tenure(args).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
        let output = output.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(74));
        assert!(
            String::from_utf8(output.stderr)
                .unwrap()
                .contains("could not be written to stdout: No space left")
        );
    }
}

#[test]
fn every_command_has_a_page() {
    let place = Place::new();
    let done = place.end(&["man", "--dir", "a/man1"]);
    assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (0, "", ""));
    let entries = fs::read_dir(place.path("a/man1")).unwrap();
    let files: BTreeSet<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let commands = commands(&place);
    let expected =
        commands.iter().map(|command| format!("tenure-{command}.1")).chain(["tenure.1".to_owned()]);
    assert_eq!(files, expected.collect());

    for command in commands.iter().map(String::as_str).chain([""]) {
        let args =
            [&["man"][..], if command.is_empty() { &[] } else { std::slice::from_ref(&command) }].concat();
        let page = place.end(&args).stdout;
        let (title, file) = if command.is_empty() {
            ("tenure".to_owned(), "a/man1/tenure.1".to_owned())
        } else {
            (format!("tenure-{command}"), format!("a/man1/tenure-{command}.1"))
        };
        assert_eq!(page, place.read(&file));
        assert_eq!(page.matches(&format!("\n.TH {title} 1 \"\" \"tenure 0.")).count(), 1, "{page}");
        for section in
            ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "\"EXIT STATUS\"", "ENVIRONMENT", "FILES"]
        {
            assert_eq!(page.matches(&format!("\n.SH {section}\n")).count(), 1, "{command}: {section}");
        }
        assert_eq!(page.contains("\n.SH EXAMPLES\n"), !command.is_empty());
    }
    let done = place.end(&["man", "rum"]);
    assert!(
        done.code == 64 && done.stderr.starts_with("tenure: unknown command `rum`; expected one of run, ")
    );
    let done = place.end(&["man", "--dir", "/proc/no"]);
    assert!(done.code == 74 && done.stderr.contains("could not be written into `/proc/no`"), "{done:?}");
}

#[test]
fn the_syntax_of_bash_is_right() {
    let place = Place::new();
    fs::write(place.path("script"), place.end(&["completions", "bash"]).stdout).unwrap();
    let checked = Command::new("bash").arg("-n").arg(place.path("script")).output().unwrap();
    assert!(checked.status.success() && checked.stderr.is_empty(), "{checked:?}");
}
