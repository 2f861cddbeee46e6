//! Leases that are taken away: the command is stopped, and the code says so.

use tenure::Release;

use super::on_both_stores;
use crate::support::{Place, Running, eventually, lives};

on_both_stores!(
    a_lease_that_is_broken_stops_the_command_at_once,
    a_lease_that_is_taken_over_stops_the_command_at_once,
    what_is_removed_from_the_store_stops_the_command,
    done_after_the_loss_is_lost,
);

/// A polite command and a child of it, which write down that they were asked to end.
const POLITE: &str = r#"
    sh -c 'trap "echo TERM >> got; exit" TERM; echo > ready; while :; do sleep .01; done' &
    trap "echo TERM >> got; exit 3" TERM
    while ! [ -e ready ]; do sleep .01; done
    echo $$ > pid
    while :; do sleep .01; done"#;

fn start(place: &Place, ttl: &str) -> Running {
    let running = place.start_script(&["--ttl", ttl], POLITE);
    place.pid("pid");
    running
}

#[track_caller]
fn assert_lost(place: &Place, running: Running, why: &str) {
    let done = running.finish();
    assert_eq!((done.code, done.stdout.as_str()), (79, ""), "{done:?}");
    // The shell of the command may say something as well.
    let told: Vec<&str> =
        done.stderr.lines().filter(|line| line.starts_with("tenure: lease on `name` ")).collect();
    assert!(told.len() == 1 && told[0].contains(why), "{done:?}");
    assert_eq!(place.read("got"), "TERM\nTERM\n", "the command and its child were asked to end");
    assert!(place.is_lifeless());
    place.assert_nothing_left();
}

// The ttl of an hour is longer than anybody waits here: what comes to an end does so because the store told.

// B4, R1.5
fn a_lease_that_is_broken_stops_the_command_at_once(place: &Place) {
    let running = start(place, "1h");
    let released = place.ask(async |domain| {
        let holder = domain.inspect("name").await?.holder.expect("it is held");
        domain.break_lock("name", &holder).await
    });
    assert_eq!(released, Release::Released);
    assert_lost(place, running, "; the command is stopped");
    assert!(!place.inspect("name").is_held());
}

// B4, R1.5
fn a_lease_that_is_taken_over_stops_the_command_at_once(place: &Place) {
    let running = start(place, "1h");
    let command = place.pid("pid");
    place.ask(async |domain| {
        let guard = domain.lock("name").label("operator").take_over().await?;
        // The lease is the operator's for as long as the command takes to end.
        tokio::task::spawn_blocking(move || eventually("the command ends", || !lives(command)))
            .await
            .unwrap();
        assert!(guard.is_held());
        guard.release().await.unwrap();
        Ok(())
    });
    assert_lost(place, running, "operator");
}

// B4, R1.5
fn what_is_removed_from_the_store_stops_the_command(place: &Place) {
    // A directory that is missing is not told of: what counts then is the ttl.
    let running = start(place, if place.is_on_redis() { "1h" } else { "2s" });
    if place.is_on_redis() {
        assert_eq!(place.server().command(&["DEL", "tenure:name"]).int(), 1);
    } else {
        std::fs::remove_dir_all(place.locks()).unwrap();
    }
    assert_lost(place, running, "; the command is stopped");
}

// B4
fn done_after_the_loss_is_lost(place: &Place) {
    let script = "trap '' TERM; echo $$ > pid; while ! [ -e go ]; do sleep .01; done";
    let running = place.start_script(&["--ttl", "1h"], script);
    place.pid("pid");
    place.ask(async |domain| {
        let holder = domain.inspect("name").await?.holder.expect("it is held");
        domain.break_lock("name", &holder).await
    });
    std::fs::write(place.path("go"), "").unwrap();
    let done = running.finish();
    assert_eq!(done.code, 79, "{done:?}");
    place.assert_nothing_left();
}
