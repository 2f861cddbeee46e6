//! A directory underneath Redis: the command is told when only this machine is excluded, and so is whoever reads.

use std::fs;

use serde_json::Value;

use crate::support::{Finished, Place, Running, eventually};

const ENVIRONMENT: &str = "echo ${TENURE_DEGRADED-unset}";

fn url(place: &Place, degrade: &str) -> String {
    format!("{}?inner=file://{}&degrade={degrade}", place.server().url(), place.locks().display())
}

/// `tenure run` of a script, with descriptor 3 for its outcome.
fn start(place: &Place, degrade: &str, options: &[&str], script: &str) -> Running {
    let mut command = place.command("sh");
    let line = r#"exec setsid "$0" run --status-fd 3 "$@" 3>status"#;
    command.args(["-c", line, env!("CARGO_BIN_EXE_tenure"), "--url", &url(place, degrade)]);
    command.args(options).args(["name", "sh", "-c", script]).env("TENURE_DEGRADED", "from before");
    place.spawn(command)
}

fn status(place: &Place) -> Value {
    serde_json::from_str(&place.read("status")).expect("a line of JSON")
}

fn warnings(done: &Finished) -> usize {
    done.stderr.matches("tenure: outer store is out of reach: `name` is held on this machine only\n").count()
}

// R0.2
#[test]
fn the_command_learns_that_only_this_machine_is_excluded() {
    let place = Place::on_redis();
    let done = start(&place, "allow", &[], ENVIRONMENT).finish();
    assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (0, "unset\n", ""), "{done:?}");
    assert_eq!(status(&place)["degraded"], false);

    place.server().kill();
    let done = start(&place, "allow", &[], ENVIRONMENT).finish();
    assert_eq!((done.code, done.stdout.as_str(), warnings(&done)), (0, "1\n", 1), "{done:?}");
    assert_eq!(status(&place)["degraded"], true);
    let quiet = start(&place, "allow", &["-q"], ENVIRONMENT).finish();
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("1\n", ""), "{quiet:?}");

    let refused = start(&place, "never", &[], "touch ran").finish();
    assert_eq!((refused.code, refused.stdout.as_str()), (69, ""), "{refused:?}");
    assert!(status(&place)["degraded"].is_null() && !place.path("ran").exists());
    let acquired = place.end(&["acquire", "--url", &url(&place, "allow"), "name"]);
    assert_eq!((acquired.code, warnings(&acquired)), (0, 1), "{acquired:?}");
}

// R0.2
#[test]
fn an_outage_during_the_run_is_reported_once_and_the_command_goes_on() {
    let place = Place::on_redis();
    let script = format!("{ENVIRONMENT}; echo $$ > pid; while ! [ -e go ]; do sleep .02; done");
    let running = start(&place, "allow", &["--ttl", "2s"], &script);
    place.pid("pid");
    place.server().kill();
    eventually("it is told", || running.said().contains("out of reach"));
    fs::write(place.path("go"), "").expect("a file");
    let done = running.finish();
    assert_eq!((done.code, done.stdout.as_str(), warnings(&done)), (0, "unset\n", 1), "{done:?}");
    assert_eq!(status(&place)["degraded"], true);
    assert_eq!(status(&place)["outcome"], "exited");
}

// R0.2, R4.2: whoever looks sees who holds it, in whichever store that is.
#[test]
fn others_see_who_holds_it_with_redis_and_without() {
    let place = Place::on_redis();
    for is_away in [false, true] {
        if is_away {
            place.server().kill();
        }
        let url = url(&place, "allow");
        drop(fs::remove_file(place.path("pid")));
        drop(fs::remove_file(place.path("go")));
        let running = start(
            &place,
            "allow",
            &["--label", "nightly"],
            "echo $$ > pid; while ! [ -e go ]; do sleep .02; done",
        );
        place.pid("pid");
        let seen = place.end(&["status", "--json", "--url", &url, "name"]);
        let status: Value = serde_json::from_str(&seen.stdout).expect("a line of JSON");
        assert_eq!(
            (status["state"].as_str(), status["holder"]["label"].as_str()),
            (Some("held"), Some("nightly"))
        );
        let listed = place.end(&["ls", "--url", &url]);
        assert!(listed.code == 0 && listed.stdout.contains("nightly"), "{listed:?}");
        fs::write(place.path("go"), "").expect("a file");
        assert_eq!(running.finish().code, 0);
    }
}
