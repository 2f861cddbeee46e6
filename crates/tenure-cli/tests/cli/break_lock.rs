//! `tenure break`: ends the lease that was seen, and no other.

use std::io::Write as _;
use std::process::{ChildStdin, Stdio};

use crate::ls_status::{acquire, both, fence, holder, objects, waiter};
use crate::support::{Place, Running, eventually};

/// `tenure break` on a terminal of script(1), whose exit code is that of `tenure`.
fn on_terminal(place: &Place, name: &str, fence: u64) -> (Running, ChildStdin) {
    let mut script = place.command("script");
    let line = format!("exec {} break '{name}' --fence {fence}", env!("CARGO_BIN_EXE_tenure"));
    script.args(["-q", "-e", "-c", &line, "/dev/null"]).stdin(Stdio::piped());
    let mut running = place.spawn(script);
    let keys = running.stdin();
    (running, keys)
}

#[track_caller]
fn await_prompts(running: &Running, count: usize) {
    eventually("it asks", || running.printed().matches("type the name: ").count() == count);
}

// R2.4
#[test]
fn the_holder_is_notified_and_the_fence_grows() {
    for place in both() {
        let holder = holder(&place, &["--label", "by hand"], "name");
        let _next = waiter(&place, &["--label", "next"], "name");
        place.await_queue(1);
        let fence = fence(&place, "name");
        let done = place.end(&["break", "--yes", "--fence", &fence.to_string(), "name"]);
        assert_eq!((done.code, done.stdout.as_str()), (0, ""));
        assert!(
            done.stderr.contains("`name` was taken from ") && done.stderr.contains("label `by hand`"),
            "{done:?}"
        );
        assert!(done.stderr.contains("is on this machine"), "it may be alive: {done:?}");
        assert_eq!(holder.finish().code, 79);
        let next = place.inspect("name").holder.unwrap();
        assert_eq!(next.owner.label(), "next");
        assert!(next.fence.get() > fence);
        let status = objects(&place.end(&["status", "--json", "name"]).stdout).remove(0);
        assert_eq!(status["broken_fence"], fence);
    }
}

// R2.4
#[test]
fn another_lease_than_the_one_that_was_seen_is_kept() {
    for place in both() {
        acquire(&place, &["--ttl", "10m", "--label", "of today"], "name");
        let fence = fence(&place, "name");
        for args in [&["--yes"][..], &["--yes", "--json"]] {
            let wrong = (fence - 1).to_string();
            let done = place.end(&[&["break", "--fence", &wrong, "name"], args].concat());
            assert_eq!(done.code, 75);
            assert!(done.stderr.contains(&format!("with fence {fence}, not {wrong}")), "{done:?}");
            assert!(done.stderr.contains("label `of today`"), "{done:?}");
            if args.len() == 2 {
                let object = &objects(&done.stdout)[0];
                assert_eq!((&object["outcome"], &object["fence"]), (&"other".into(), &fence.into()));
            }
        }
        assert_eq!(place.inspect("name").holder.unwrap().fence.get(), fence);
        let free = place.end(&["break", "--yes", "--json", "--fence", "1", "another"]);
        assert_eq!((free.code, &objects(&free.stdout)[0]["outcome"]), (0, &"free".into()));
        assert!(free.stderr.contains("`another` is free"), "{free:?}");
    }
}

#[test]
fn a_lease_that_is_ended_for_programs() {
    for place in both() {
        acquire(&place, &["--ttl", "10m"], "name");
        let fence = fence(&place, "name");
        let done = place.end(&["break", "--yes", "--json", "--fence", &fence.to_string(), "name"]);
        let object = &objects(&done.stdout)[0];
        assert_eq!((done.code, &object["outcome"], &object["fence"]), (0, &"broken".into(), &fence.into()));
        assert!(object["holder"]["pid"].is_u64(), "who held it: {object}");
        assert!(!place.inspect("name").is_held());
    }
}

// B6
#[test]
fn a_lock_of_another_library_that_has_no_end() {
    let place = Place::on_redis();
    place.server().command(&["SET", "tenure:name", "token of a dead one"]);
    let object = objects(&place.end(&["status", "--json", "name"]).stdout).remove(0);
    let done = place.end(&["break", "--yes", "--fence", &object["fence"].to_string(), "name"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(!place.inspect("name").is_held());
}

#[test]
fn without_a_terminal_it_says_what_to_add() {
    for place in both() {
        acquire(&place, &["--ttl", "10m"], "name");
        let done = place.end(&["break", "--fence", &fence(&place, "name").to_string(), "name"]);
        assert_eq!(done.code, 64);
        assert!(done.stderr.contains("add --yes"), "{done:?}");
        assert!(place.inspect("name").is_held());
    }
}

#[test]
fn the_name_is_to_be_typed() {
    for place in both() {
        acquire(&place, &["--ttl", "10m", "--label", "by hand"], "a name");
        let fence = fence(&place, "a name");
        for wrong in ["y\n", "\n", "name\n", "\u{4}", "a name\u{4}\u{4}"] {
            let (running, mut keys) = on_terminal(&place, "a name", fence);
            await_prompts(&running, 1);
            keys.write_all(wrong.as_bytes()).unwrap();
            let done = running.finish();
            assert_eq!(done.code, 75, "{wrong:?}: {}", done.stdout);
            assert!(done.stdout.contains("nothing was changed"), "{wrong:?}: {}", done.stdout);
            assert!(place.inspect("a name").is_held());
        }
        let (running, mut keys) = on_terminal(&place, "a name", fence);
        await_prompts(&running, 1);
        let shown = running.printed();
        for fact in ["holder: ", "label: by hand", "since: ", &format!("fence: {fence}"), "no such process"] {
            assert!(shown.contains(fact), "{fact}: {shown}");
        }
        keys.write_all(b"a name\n").unwrap();
        let done = running.finish();
        assert_eq!(done.code, 0, "{}", done.stdout);
        assert!(!place.inspect("a name").is_held());
    }
}

#[test]
fn a_holder_that_renews_meanwhile_is_asked_about_again() {
    for place in both() {
        let holder = holder(&place, &["--ttl", "4s"], "name");
        let (running, mut keys) = on_terminal(&place, "name", fence(&place, "name"));
        await_prompts(&running, 1);
        let left = || place.inspect("name").holder.unwrap().remaining;
        let mut before = left();
        eventually("it is renewed", || left() > std::mem::replace(&mut before, left()));
        keys.write_all(b"name\n").unwrap();
        await_prompts(&running, 2);
        assert!(running.printed().contains("its holder is alive"), "{}", running.printed());
        keys.write_all(b"no\n").unwrap();
        assert_eq!(running.finish().code, 75);
        assert!(place.inspect("name").is_held());
        drop(holder);
    }
}

/// It has no fence that tells it from the next, so the token of the one that was shown is compared.
// B6
#[test]
fn a_lock_of_another_library_that_follows_the_one_that_was_shown_is_kept() {
    let place = Place::on_redis();
    // A lease that was broken before: its fence is the one that is shown for the others.
    acquire(&place, &["--ttl", "10m"], "name");
    let old = fence(&place, "name");
    assert_eq!(place.end(&["break", "--yes", "--fence", &old.to_string(), "name"]).code, 0);
    place.server().command(&["SET", "tenure:name", "the one that is shown"]);
    let object = objects(&place.end(&["status", "--json", "name"]).stdout).remove(0);
    let (running, mut keys) = on_terminal(&place, "name", object["fence"].as_u64().unwrap());
    await_prompts(&running, 1);
    place.server().command(&["SET", "tenure:name", "the one that follows"]);
    keys.write_all(b"name\n").unwrap();
    let done = running.finish();
    assert_eq!(done.code, 75, "{}", done.stdout);
    assert!(done.stdout.contains("it is not the lease that you saw; nothing was changed"), "{}", done.stdout);
    assert_eq!(place.server().command(&["GET", "tenure:name"]).text(), "the one that follows");
}

#[test]
fn a_fence_must_be_a_number() {
    let place = Place::new();
    for wrong in ["x", "-1", "1.5", "99999999999999999999999", ""] {
        let done = place.end(&["break", "--yes", "name", "--fence", wrong]);
        assert_eq!(done.code, 64, "{wrong}");
        assert!(done.stderr.contains("the number that `tenure status` shows as fence"), "{wrong}: {done:?}");
    }
    let missing = place.end(&["break", "--fence", "--yes", "name"]);
    assert!(missing.code == 64 && missing.stderr.contains("the value is missing"), "{missing:?}");
}
