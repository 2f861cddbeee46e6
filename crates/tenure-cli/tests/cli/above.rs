//! A `tenure` inside of `tenure run` that lost some variables: it uses the domain of the outer one, or refuses.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{Finished, Place};

const TENURE: &str = env!("CARGO_BIN_EXE_tenure");

/// The outer one with these words, and without any URL but these variables.
fn run(place: &Place, outer: &[&str], between: &[&str], variables: &[(&str, &str)]) -> Finished {
    let _ = fs::remove_file(place.path("ran"));
    let mut command = place.command(outer[0]);
    command.args(&outer[1..]).arg("a").args(between).args([TENURE, "run", "-v", "b", "touch", "ran"]);
    command.env_remove("TENURE_URL").env_remove("XDG_CONFIG_HOME").env("HOME", place.path("home"));
    command.envs(variables.iter().copied());
    let done = place.spawn(command).finish();
    assert!(done.code == 0 || !place.path("ran").exists(), "{done:?}");
    done
}

#[track_caller]
fn assert_refused(done: &Finished) {
    assert!(done.code == 64 && done.stderr.contains("domain is not known"), "{done:?}");
}

/// A variable that is there does not vouch for one that is lost.
// R0.6
#[test]
fn one_variable_of_several_is_not_believed() {
    let place = Place::new();
    let url = place.url();
    let kept = r#"env -i PATH="$PATH" TENURE_NAME="$TENURE_NAME" TENURE_FENCE="$TENURE_FENCE" "$@"; exit $?"#;
    let between: [&[&str]; 4] = [
        &["sh", "-c", kept, "sh"],
        &["env", "-u", "TENURE_URL_WITHHELD"],
        &["env", "TENURE_URL_WITHHELD="],
        &["env", "-u", "TENURE_URL", "-u", "TENURE_URL_WITHHELD"],
    ];
    for between in between {
        for options in [&[][..], &["--pass-url"]] {
            // It is not lost.
            if options.len() == 1 && !between.contains(&"TENURE_URL") && between[0] == "env" {
                continue;
            }
            let outer = [&[TENURE, "run"], options].concat();
            assert_refused(&run(&place, &[&outer[..], &["--url", &url]].concat(), between, &[]));
            assert_refused(&run(&place, &outer, between, &[("TENURE_URL", &url)]));
        }
    }
}

/// A relative path names another file in another directory.
// R0.6
#[test]
fn a_relative_path_is_passed_on_as_an_absolute_one() {
    let place = Place::new();
    let url = place.url();
    fs::create_dir(place.path("sub")).unwrap();
    fs::write(place.path("file"), &url).unwrap();
    fs::write(place.path("sub/file"), format!("file://{}", place.path("elsewhere").display())).unwrap();
    let variable = [("TENURE_URL_FILE", "file")];
    let outer = [TENURE, "run"];
    let done = run(&place, &outer, &["env", "-C", "sub"], &variable);
    let from = format!("{url} (from TENURE_URL_FILE={})", place.path("file").display());
    assert!(done.code == 0 && done.stderr.contains(&from), "{done:?}");
    assert_refused(&run(&place, &outer, &["env", "-i", "-C", "sub"], &variable));
    assert!(!place.path("elsewhere").exists());
}

/// A link, or the dynamic loader: the program is the same.
// R0.6
#[test]
fn a_run_under_another_name_is_recognised() {
    let place = Place::new();
    let url = place.url();
    symlink(TENURE, place.path("lk")).unwrap();
    let link = place.path("lk");
    let loader = "/lib64/ld-linux-x86-64.so.2";
    let mut programs = vec![vec![link.to_str().unwrap()]];
    if fs::exists(loader).unwrap() {
        programs.push(vec![loader, TENURE]);
        programs.push(vec![loader, "--library-path", "/lib", TENURE]);
    }
    for program in programs {
        let outer = [&program[..], &["run", "--url", &url]].concat();
        assert_refused(&run(&place, &outer, &["env", "-i"], &[]));
        // It does not wait for itself.
        let inner = ["a", "env", "-i", TENURE, "run", "--url", &url, "-w", "1h", "a", "true"];
        let mut command = place.command(outer[0]);
        command.args(&outer[1..]).args(inner);
        let done = place.spawn(command).finish();
        assert!(done.code == 75 && done.stderr.contains("you already hold it"), "{program:?}: {done:?}");
    }
    // A copy is another program; what it handed down counts.
    let copy = place.copy_program("copy");
    let outer = [copy.to_str().unwrap(), "run", "--url", &url];
    assert_refused(&run(&place, &outer, &["sh", "-c", "env -i \"$@\"; exit $?", "sh"], &[]));
}

/// The holder is still there, and so is the lease. In a pid namespace of its own, the kernel does not continue a holder that was stopped because its
/// wrapper is gone.
// R0.6
#[test]
fn a_run_whose_wrapper_was_killed_is_recognised() {
    let place = Place::new();
    let command = r#"touch started; until test -e go; do sleep .01; done
        env -i "$0" run b touch ran 2> log; echo $? > code; exec sleep 600"#;
    let script = r#""$0" run --ttl 10m a -- sh -c "$1" "$0" & wrapper=$!
        until test -e started; do sleep .01; done
        read -r holder < /proc/$wrapper/task/$wrapper/children
        kill -STOP $holder
        until grep -q '^State:.T' /proc/$holder/status; do sleep .01; done
        kill -KILL $wrapper; wait $wrapper; touch go
        until test -s code; do sleep .01; done
        echo $holder"#;
    let mut unshare = place.command("unshare");
    unshare.args(["--pid", "--fork", "--mount-proc", "sh", "-c", script, TENURE, command]);
    let done = place.spawn(unshare).finish();
    assert_eq!(place.read("code"), "64\n", "{}", place.read("log"));
    let pid = format!("`tenure run` (pid {}, ", done.stdout.trim());
    assert!(place.read("log").contains(&pid), "{}: {done:?}", place.read("log"));
    assert!(!place.path("ran").exists());
    place.assert_nothing_left();
}
