//! A Redis server that is away, comes back or forgets, before a command runs and while it does.

use std::fs;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;
use tenure_testkit::redis::{Fault, Proxy, RedisServer};

use super::stopping::full_pipe;
use crate::support::{Finished, Place, Running, eventually};

/// A command that says all the time that it lives, and ends when it may; TERM does not end it.
const BEATING: &str = r#"
    trap "echo TERM >> got" TERM
    echo $$ > pid
    while ! [ -e go ]; do : > beat; sleep .02; done"#;

fn start(place: &Place, ttl: &str) -> Running {
    let running = place.start_script(&["--ttl", ttl], BEATING);
    place.pid("pid");
    running
}

/// The command went on, and ended by itself.
#[track_caller]
fn assert_goes_on(place: &Place, running: Running) {
    fs::write(place.path("go"), "").unwrap();
    let done = running.finish();
    assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (0, "", ""));
    assert_eq!(place.read("got"), "");
    place.assert_nothing_left();
}

/// The command was stopped less than `ttl` after `since`. The kernel's time of its last sign of life counts, not when that is seen here.
#[track_caller]
fn assert_stopped_in_time(place: &Place, running: Running, since: SystemTime, ttl: Duration) -> Finished {
    let done = running.finish();
    assert_eq!((done.code, done.stdout.as_str()), (79, ""), "{done:?}");
    let last_beat = fs::metadata(place.path("beat")).unwrap().modified().unwrap();
    let lived_on = last_beat.duration_since(since).unwrap_or_default();
    assert!(lived_on < ttl, "it lived on for {lived_on:?} of {ttl:?}: {done:?}");
    assert!(place.read("got").starts_with("TERM\n"), "it was asked before it was killed");
    assert!(done.stderr.contains("tenure: lease on `name` "), "{done:?}");
    assert!(place.is_lifeless());
    place.assert_nothing_left();
    done
}

/// Waits until the lease was renewed, after the server was away.
#[track_caller]
fn await_renewal(place: &Place) {
    let left = || place.server().command(&["PTTL", "tenure:name"]).int();
    let mut least = left();
    eventually("the lease is renewed", || {
        let now = left();
        least = least.min(now);
        now > least
    });
}

// R0.5
#[test]
fn away_at_the_start_it_is_unavailable() {
    let place = Place::on_redis();
    place.server().kill();
    let begun = Instant::now();
    let done = place.end(&["run", "name", "touch", "ran"]);
    assert_eq!((done.code, done.stdout.as_str()), (69, ""), "{done:?}");
    assert!(begun.elapsed() < Duration::from_secs(10), "it is refused at once, not after a ttl");
    let port = place.server().port().to_string();
    assert!(done.stderr.starts_with("tenure: ") && done.stderr.contains(&port), "{done:?}");
    assert!(!place.path("ran").exists());
    place.assert_nothing_left();
}

// R0.5
#[test]
fn silent_at_the_start_it_is_unavailable_and_can_be_interrupted() {
    let place = Place::on_redis();
    let proxy = Proxy::new(place.server());
    proxy.black_hole();
    let url = proxy.url();
    let begun = Instant::now();
    let done = place.end(&["run", "--ttl", "1s", "--url", &url, "name", "touch", "ran"]);
    assert_eq!(done.code, 69, "{done:?}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(done.stderr.starts_with("tenure: "), "{done:?}");

    let accepted = proxy.accepted();
    let asking = place.start(&["run", "--url", &format!("{url}?ttl=1h&timeout=20m"), "name", "touch", "ran"]);
    eventually("it is connected", || proxy.accepted() > accepted);
    asking.signal(Signal::INT);
    assert_eq!(asking.finish().code, 130);
    assert!(!place.path("ran").exists());
    place.assert_nothing_left();
}

#[test]
fn away_while_it_waits_it_keeps_its_place_or_gives_up_after_a_ttl() {
    let place = Place::on_redis();
    let proxy = Proxy::new(place.server());
    let holder = place.start_script(&[], "echo $$ > pid; while ! [ -e go ]; do sleep .02; done");
    place.pid("pid");
    let (url, run) =
        (proxy.url(), |ttl, url| place.start(&["run", "--ttl", ttl, "--url", url, "name", "echo", "in"]));
    let patient = run("1h", &url);
    place.await_queue(1);
    let hasty = run("1s", &url);
    place.await_queue(2);
    proxy.cut();
    assert_eq!(hasty.finish().code, 69);
    proxy.heal();
    place.await_queue(1);
    fs::write(place.path("go"), "").unwrap();
    assert_eq!(holder.finish().code, 0);
    let done = patient.finish();
    assert_eq!((done.code, done.stdout.as_str()), (0, "in\n"), "{done:?}");
    // The one that gave up could not leave the queue: if it was heard of a moment ago, it is given its turn, and a second to take it.
    eventually("nothing is left", || place.leftovers().is_empty());
}

// B4, R1.5
#[test]
fn killed_during_the_run_the_command_is_stopped_before_the_ttl_is_over() {
    let place = Place::on_redis();
    let running = start(&place, "4s");
    let killed = SystemTime::now();
    place.server().kill();
    let done = assert_stopped_in_time(&place, running, killed, Duration::from_secs(4));
    assert!(done.stderr.contains(&place.server().port().to_string()), "what is wrong: {done:?}");
}

// B4, R1.5
#[test]
fn silent_during_the_run_the_command_is_stopped_before_the_ttl_is_over() {
    let place = Place::on_redis();
    let running = start(&place, "4s");
    let stopped = SystemTime::now();
    place.server().stop();
    assert_stopped_in_time(&place, running, stopped, Duration::from_secs(4));
    place.server().cont();
    assert!(place.end(&["run", "name", "true"]).code == 0, "it is free when the lease is over");
}

// B4
#[test]
fn restarted_in_time_the_command_goes_on() {
    let place = Place::on(RedisServer::builder().aof_always().start());
    let running = start(&place, "20s");
    place.server().restart();
    await_renewal(&place);
    assert_goes_on(&place, running);
    assert_eq!(place.leftovers(), [""; 0]);
}

// B4, R1.5
#[test]
fn restarted_without_its_data_the_command_is_stopped() {
    let place = Place::on_redis();
    let running = start(&place, "8s");
    let restarted = SystemTime::now();
    place.server().restart();
    assert_stopped_in_time(&place, running, restarted, Duration::from_secs(8));
}

// B4
#[test]
fn silent_for_less_than_the_ttl_the_command_goes_on() {
    let place = Place::on_redis();
    let running = start(&place, "6s");
    place.server().stop();
    // Longer than a request waits for its answer, and shorter than the lease.
    std::thread::sleep(Duration::from_secs(2));
    place.server().cont();
    await_renewal(&place);
    assert_goes_on(&place, running);
}

// B4, R1.5
#[test]
fn a_deleted_key_stops_the_command_by_term_then_kill() {
    let place = Place::on_redis();
    let running = start(&place, "4s");
    let deleted = SystemTime::now();
    assert_eq!(place.server().command(&["DEL", "tenure:name"]).int(), 1);
    let done = assert_stopped_in_time(&place, running, deleted, Duration::from_secs(4));
    assert!(done.stderr.contains("; the command is stopped\n"), "{done:?}");
    assert!(done.stderr.contains("tenure: command did not end in time and is killed\n"), "{done:?}");
}

// B4, R1.5
#[test]
fn a_key_that_is_overwritten_stops_the_command() {
    let place = Place::on_redis();
    let running = start(&place, "4s");
    let taken = SystemTime::now();
    place.server().command(&["SET", "tenure:name", "a lock of another library", "PX", "60000"]);
    assert_stopped_in_time(&place, running, taken, Duration::from_secs(4));
    assert!(place.inspect("name").is_held(), "the other's lock is left alone");
}

// R4.4: what too few replicas have acknowledged is not held, also when the process that asked for it ends.
#[test]
fn a_name_that_too_few_replicas_acknowledged_is_given_back() {
    let place = Place::on_redis();
    let url = format!("{}?replicas=1", place.url());
    let run: &[&str] = &["run", "-n", "--ttl", "1m", "--url", &url, "name", "--", "true"];
    let acquire: &[&str] = &["acquire", "-n", "--ttl", "1m", "--url", &url, "name"];
    for args in [run, acquire] {
        let done = place.end(args);
        assert_eq!((done.code, done.stdout.as_str()), (69, ""), "{done:?}");
        assert!(
            done.stderr.starts_with("tenure: 0 of 1 replicas acknowledged"),
            "not that it waits: {done:?}"
        );
        assert!(place.inspect("name").holder.is_none(), "after {args:?}");
    }
}

/// The labels of those who wait for `name`, in order.
fn queue(place: &Place) -> Vec<String> {
    place.inspect("name").waiters.iter().map(|waiter| waiter.owner.label().to_owned()).collect()
}

/// While the server is away for longer than the ttl of those who wait, those who said so keep their places, and one that comes joins them.
fn waits_out(begin: impl FnOnce(&RedisServer), end: impl FnOnce(&RedisServer)) {
    let place = Place::on(RedisServer::builder().aof_always().start());
    let holder = place.start_script(&["--ttl", "1h"], "echo $$ > pid; while ! [ -e go ]; do sleep .02; done");
    place.pid("pid");
    let run = |label, options: &[&str]| {
        let line = format!("echo {label} >> order");
        let given = ["--ttl", "1s", "--label", label, "name", "-c", &line];
        place.start(&[&["run"], options, &given].concat())
    };
    let first = run("first", &["--wait", "10m"]);
    place.await_queue(1);
    let second = run("second", &["--max-outage", "10m"]);
    place.await_queue(2);
    let hasty = run("hasty", &[]);
    place.await_queue(3);
    begin(place.server());
    let done = hasty.finish();
    assert_eq!(done.code, 69, "it outlasts one ttl: {done:?}");
    let late = run("late", &["--wait", "10m"]);
    let cut_short = run("never", &["--wait", "10m", "--max-outage", "1s"]).finish();
    assert_eq!(cut_short.code, 69, "{cut_short:?}");
    end(place.server());
    eventually("they are back in their places", || queue(&place) == ["first", "second", "late"]);
    fs::write(place.path("go"), "").unwrap();
    for running in [holder, first, second, late] {
        let done = running.finish();
        assert_eq!(done.code, 0, "{done:?}");
    }
    assert_eq!(place.read("order"), "first\nsecond\nlate\n");
    eventually("nothing is left", || place.leftovers().is_empty());
}

// R0.5, R1.1
#[test]
fn a_killed_server_that_comes_back_ends_no_wait_with_a_limit() {
    waits_out(RedisServer::kill, RedisServer::restart);
}

// R0.5, R1.1
#[test]
fn a_stopped_server_that_comes_back_ends_no_wait_with_a_limit() {
    waits_out(RedisServer::stop, RedisServer::cont);
}

// R0.5: the limit holds for an outage as for a name that is held, and the exit code says which of them it was.
#[test]
fn a_limit_is_kept_while_the_server_is_away() {
    for away in [RedisServer::kill, RedisServer::stop] {
        let place = Place::on_redis();
        let holder = place.start_script(&["--ttl", "1h"], "echo $$ > pid; sleep 1000");
        place.pid("pid");
        let limit = Duration::from_secs(4);
        let args = ["run", "--ttl", "1s", "-E", "7", "-w", "4s", "name", "touch", "ran"];
        let begun = Instant::now();
        let waiting = place.start(&args);
        place.await_queue(1);
        away(place.server());
        let coming = (Instant::now(), place.start(&args));
        for (begun, running) in [(begun, waiting), coming] {
            let done = running.finish();
            assert_eq!((done.code, done.stdout.as_str()), (69, ""), "{done:?}");
            assert!(begun.elapsed() >= limit, "after {:?}: {done:?}", begun.elapsed());
            assert!(begun.elapsed() < Duration::from_secs(20), "after {:?}: {done:?}", begun.elapsed());
            let why = done.stderr.lines().last().unwrap();
            let is_told = ["cannot reach", "did not answer"].iter().any(|told| why.contains(told));
            assert!(why.starts_with("tenure: ") && is_told, "{done:?}");
        }
        assert!(!place.path("ran").exists());
        holder.signal(Signal::KILL);
        assert_eq!(holder.finish().code, -1);
        eventually("the command is gone", || place.is_lifeless());
    }
}

/// Starts commands under leases of 20 h, one for each name, which end when they may.
fn start_long(place: &Place, names: &[&str], end: &str) -> Vec<Running> {
    let begin = |name: &&str| {
        let line = format!("echo $$ > pid-{name}; while ! [ -e go ]; do sleep .02; done; {end}");
        place.start(&["run", "--ttl", "20h", name, "-c", &line])
    };
    let running: Vec<_> = names.iter().map(begin).collect();
    for name in names {
        place.pid(&format!("pid-{name}"));
    }
    running
}

/// Takes the server away for so long that clients pause between their attempts to connect.
fn kill_for_a_while(place: &Place) {
    place.server().kill();
    assert_eq!(place.end(&["run", "-w", "1s", "other", "true"]).code, 69);
}

// R0.5, R1.7
#[test]
fn a_command_that_ends_right_after_an_outage_leaves_no_lease() {
    let place = Place::on(RedisServer::builder().aof_always().start());
    let running = start_long(&place, &["a", "b", "c", "d"], "exit 7");
    kill_for_a_while(&place);
    place.server().restart();
    fs::write(place.path("go"), "").unwrap();
    for running in running {
        let done = running.finish();
        assert_eq!(done.code, 7, "{done:?}");
    }
    assert_eq!(place.leftovers(), [""; 0]);
}

/// Ends the outage while a command that has ended tries to give its name back; how that went, unless the outage took too long on a busy machine.
fn come_back_in_time() -> Option<Finished> {
    let place = Place::on(RedisServer::builder().aof_always().start());
    let running = start_long(&place, &["a"], "exit 7").pop().unwrap();
    let began = Instant::now();
    place.server().kill();
    fs::write(place.path("go"), "").unwrap();
    eventually("it tries", || running.said().contains("`a` can't be given back yet"));
    place.server().restart();
    let is_in_time = began.elapsed() < Duration::from_secs(6);
    let done = running.finish();
    assert_eq!(done.code, 7, "{done:?}");
    is_in_time.then(|| {
        assert_eq!(place.leftovers(), [""; 0], "{done:?}");
        done
    })
}

// R0.5, R1.7
#[test]
fn a_command_that_ends_during_an_outage_leaves_no_lease_if_the_server_comes_back() {
    let done = (0..10).find_map(|_| come_back_in_time()).expect("an outage that ends in time");
    assert!(done.stderr.lines().last().unwrap().starts_with("tenure: gave `a` back"), "{done:?}");
}

/// Whether it is said for how long a lease of 20 h may last at most: all of it if a renewal was not answered.
fn is_told_with_its_end(told: &str, what: &str) -> bool {
    ["19h59m", "20h"].iter().any(|left| told.contains(&format!("{what} may stay held for up to {left}")))
}

// R0.5, R1.7
#[test]
fn a_lease_that_cannot_be_given_back_is_reported_with_its_end() {
    let place = Place::on_redis();
    let running = start_long(&place, &["a"], "exit 7");
    place.server().kill();
    fs::write(place.path("go"), "").unwrap();
    let done = running.into_iter().next().unwrap().finish();
    assert_eq!((done.code, done.stdout.as_str()), (7, ""), "{done:?}");
    let told: Vec<_> = done.stderr.lines().collect();
    let [.., why, fix] = told[..] else { panic!("{done:?}") };
    assert!(is_told_with_its_end(why, "tenure: `a` could not be given back, and"), "{done:?}");
    assert!(why.contains(&place.server().port().to_string()), "why: {done:?}");
    assert!(
        fix.starts_with("tenure: to free it when the store answers again: tenure break a --fence "),
        "{done:?}"
    );
    place.assert_nothing_left();
}

// R0.5: whoever does not want to wait for the store can say so.
#[test]
fn a_signal_ends_the_attempts_to_give_a_lease_back() {
    let place = Place::on_redis();
    let running = start_long(&place, &["a"], "exit 7");
    place.server().kill();
    fs::write(place.path("go"), "").unwrap();
    eventually("it tries", || running[0].said().contains("`a` can't be given back yet"));
    running[0].signal(Signal::TERM);
    let done = running.into_iter().next().unwrap().finish();
    assert_eq!(done.code, 7, "{done:?}");
    assert!(is_told_with_its_end(&done.stderr, "`a` could not be given back, and"), "{done:?}");
}

/// A renewal, and no other command: docs/protocol.md.
fn is_renewal(words: &[Vec<u8>]) -> bool {
    words.first().is_some_and(|word| word.starts_with(b"EVAL"))
        && words.get(2).is_some_and(|keys| keys == b"1")
}

/// An acquire, and no other command: docs/protocol.md.
fn is_acquire(words: &[Vec<u8>]) -> bool {
    words.first().is_some_and(|word| word.starts_with(b"EVAL")) && words.len() == 16
}

fn milliseconds_left(place: &Place) -> i64 {
    place.server().command(&["PTTL", "tenure:name"]).int()
}

/// A command gets its name by a push, for a second; the store renews it for hours, the answer is lost, and the store is away until the command
/// has ended. How that went, unless the outage took too long on a busy machine.
fn renewed_without_an_answer(ends: bool) -> Option<Finished> {
    let place = Place::on_redis();
    let proxy = Proxy::new(place.server());
    let holder = place.start_script(&[], "echo $$ > first; while ! [ -e next ]; do sleep .02; done");
    place.pid("first");
    let line = "echo $$ > pid; while ! [ -e go ]; do sleep .02; done; exit 7";
    let running = place.start(&["run", "-v", "--ttl", "20h", "--url", &proxy.url(), "name", "-c", line]);
    place.await_queue(1);
    proxy.inject(Fault::Silence, u64::MAX, is_renewal);
    fs::write(place.path("next"), "").unwrap();
    assert_eq!(holder.finish().code, 0);
    eventually("the store renewed it", || milliseconds_left(&place) > 3_600_000);
    let began = Instant::now();
    proxy.cut();
    if ends {
        fs::write(place.path("go"), "").unwrap();
    }
    eventually("it tries", || running.said().contains("`name` can't be given back yet"));
    assert!(milliseconds_left(&place) > 3_600_000, "the store has it, whatever is believed");
    proxy.clear();
    proxy.heal();
    let is_in_time = began.elapsed() < Duration::from_secs(6);
    let done = running.finish();
    is_in_time.then(|| {
        assert_eq!(place.leftovers(), [""; 0], "{done:?}");
        assert!(done.stderr.contains("tenure: gave `name` back, held for "), "{done:?}");
        done
    })
}

// R0.5, R1.7
#[test]
fn a_lease_that_was_renewed_without_an_answer_is_given_back() {
    let done = (0..10).find_map(|_| renewed_without_an_answer(true)).expect("an outage that ends in time");
    // On a busy machine the second may be over before the command has ended.
    assert!([7, 79].contains(&done.code), "{done:?}");
}

// R0.5, R1.7
#[test]
fn a_lost_lease_that_was_renewed_without_an_answer_is_given_back() {
    let done = (0..10).find_map(|_| renewed_without_an_answer(false)).expect("an outage that ends in time");
    assert_eq!(done.code, 79, "{done:?}");
}

/// The store executes an acquire, the answer is lost, and the store is away until the time to wait is over, and longer if it is `lasting`. How that
/// went, unless the outage took too long on a busy machine.
fn acquired_without_an_answer(is_lasting: bool) -> Option<Finished> {
    let place = Place::on_redis();
    let proxy = Proxy::new(place.server());
    assert_eq!(place.end(&["run", "other", "true"]).code, 0, "the server has the scripts");
    proxy.inject(Fault::Silence, u64::MAX, is_acquire);
    let running = place.start(&[
        "run",
        "-w",
        "1s",
        "--ttl",
        "20h",
        "--url",
        &proxy.url(),
        "name",
        "--",
        "touch",
        "ran",
    ]);
    eventually("the store has it", || milliseconds_left(&place) > 0);
    proxy.cut();
    proxy.clear();
    eventually("it tries", || running.said().contains("may have executed a request for `name`; trying"));
    let began = Instant::now();
    if !is_lasting {
        proxy.heal();
    }
    let is_in_time = is_lasting || began.elapsed() < Duration::from_secs(3);
    let done = running.finish();
    assert_eq!((done.code, done.stdout.as_str()), (69, ""), "{done:?}");
    assert!(!place.path("ran").exists());
    is_in_time.then(|| {
        assert_eq!(milliseconds_left(&place) > 0, is_lasting, "{done:?}");
        done
    })
}

// I5, R0.5
#[test]
fn an_acquire_that_was_not_answered_is_undone_after_an_outage() {
    let done = (0..10).find_map(|_| acquired_without_an_answer(false)).expect("an outage that ends in time");
    assert!(!done.stderr.contains("may stay held"), "{done:?}");
}

// I5, R0.5
#[test]
fn an_acquire_that_cannot_be_undone_is_reported_with_its_end() {
    let done = acquired_without_an_answer(true).expect("no time matters");
    assert!(is_told_with_its_end(&done.stderr, "tenure: `name`"), "{done:?}");
}

// R0.5: stderr that nobody reads does not keep `tenure` from ending.
#[test]
fn a_lease_that_can_not_be_given_back_is_no_reason_to_wait_for_a_reader() {
    let (_reader, writer) = full_pipe();
    let place = Place::on_redis();
    let line = "echo $$ > pid; while ! [ -e go ]; do sleep .02; done; exit 7";
    let command = place.tenure(&["run", "--ttl", "20h", "name", "-c", line]);
    let running = place.spawn_with(command, Some(writer.into()));
    place.pid("pid");
    place.server().kill();
    fs::write(place.path("go"), "").unwrap();
    assert_eq!(running.finish().code, 7);
}
