//! Servers, each with one thing that is not as it should be.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use tenure_testkit::redis::{Fault, Proxy, RedisServer, named};

use super::{doctor, doctor_at};
use crate::support::{Place, eventually};

/// One that has nothing wrong with it.
fn sound() -> tenure_testkit::redis::Builder {
    RedisServer::builder().aof_always()
}

#[track_caller]
fn assert_nothing_left(server: &RedisServer) {
    let keys = server.command(&["KEYS", "*"]);
    assert!(keys.items().is_empty(), "left behind: {keys:?}");
}

// B5
#[test]
fn a_fit_server() {
    let place = Place::on(sound().start());
    let report = doctor(&place);
    assert_eq!((report.troubles(), report.code), (vec![], 0));
    assert_eq!(report.conclusion, serde_json::json!({"v": 1, "verdict": "fit", "doubts": 0, "faults": 0}));
    let checks: Vec<&str> =
        report.findings.iter().map(|finding| finding["check"].as_str().unwrap()).collect();
    assert_eq!(
        checks,
        [
            "domain",
            "store",
            "version",
            "role",
            "encryption",
            "user",
            "clock",
            "clock rate",
            "eviction",
            "persistence",
            "replicas",
            "connections",
            "lease",
            "hand-over",
            "loss",
            "listing",
            "round trip"
        ]
    );
    let trips = report.finding("round trip");
    assert_eq!(trips["count"], 200);
    assert!(trips["p50_us"].as_u64().unwrap() <= trips["p99_us"].as_u64().unwrap(), "{trips}");
    assert_nothing_left(place.server());
    let plain = place.end(&["doctor"]);
    assert!(plain.stdout.ends_with("\nfit to hold locks\n"), "{}", plain.stdout);
}

// B5: a password that the server does not check protects nothing.
#[test]
fn a_password_that_is_not_checked_is_not_called_one() {
    let place = Place::on(sound().start());
    let url = format!("redis://bob:sesame@127.0.0.1:{}", place.server().port());
    for (rule, said) in [
        (
            "nopass",
            "user bob, without a password on the server, which ignores that of the URL, from this machine",
        ),
        (">sesame", "user bob, with a password"),
    ] {
        let user = ["ACL", "SETUSER", "bob", "reset", "on", rule, "+@all", "~*", "&*"];
        assert_eq!(place.server().command(&user).text(), "OK");
        assert_eq!(doctor_at(&place, &url).reason("user"), said);
    }
}

/// What is to be typed asks for the password, and does not show it.
// B5
#[test]
fn a_remedy_for_a_server_with_a_password() {
    let server = sound().tls().config("requirepass", "sesame").config("maxmemory-policy", "allkeys-lru");
    let place = Place::on(server.config("maxmemory", "100mb").start());
    let server = place.server();
    let plain = format!("redis://:sesame@127.0.0.1:{}", server.port());
    let tls = format!("{}?tls_ca={}", server.tls_url(), server.ca_path().display());
    for url in [plain, tls.replace("rediss://", "rediss://:sesame@")] {
        assert_eq!(server.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]).text(), "OK");
        let report = doctor_at(&place, &url);
        let remedy = report.finding("eviction")["remedy"].as_str().unwrap();
        assert!(remedy.contains(" --askpass ") && !remedy.contains("sesame"), "{remedy}");
        let mut typed = place.command("sh").args(["-ec", remedy]).stdin(Stdio::piped()).spawn().unwrap();
        typed.stdin.take().unwrap().write_all(b"sesame\n").unwrap();
        assert!(typed.wait().unwrap().success(), "{remedy}");
        assert_eq!(doctor_at(&place, &url).verdict("eviction"), "fit", "{remedy}");
    }
}

// B5
#[test]
fn locks_that_may_be_evicted() {
    let place =
        Place::on(sound().config("maxmemory-policy", "allkeys-lru").config("maxmemory", "100mb").start());
    let report = doctor(&place);
    assert_eq!(
        (report.troubles(), report.code),
        (vec![("eviction", "unfit")], 1),
        "locks work, and may be lost"
    );
    assert!(
        report.reason("eviction").contains("allkeys-lru evicts locks when 100.00M"),
        "{}",
        report.reason("eviction")
    );
    assert_eq!(report.conclusion["verdict"], "unfit");

    place.server().command(&["CONFIG", "SET", "maxmemory", "0"]);
    let without_limit = doctor(&place);
    assert_eq!((without_limit.troubles(), without_limit.code), (vec![("eviction", "doubtful")], 0));

    report.apply(&place, "eviction");
    assert_eq!(doctor(&place).troubles(), []);
}

// B5
#[test]
fn locks_that_a_crash_forgets() {
    let place = Place::on_redis();
    let report = doctor(&place);
    assert_eq!((report.troubles(), report.code), (vec![("persistence", "doubtful")], 0));
    assert!(report.reason("persistence").starts_with("nothing is saved"), "{}", report.reason("persistence"));
    let plain = place.end(&["doctor"]);
    assert!(plain.stdout.ends_with("\nfit to hold locks, with 1 doubt\n"), "{}", plain.stdout);

    place.server().command(&["CONFIG", "SET", "save", "3600 1"]);
    assert!(doctor(&place).reason("persistence").contains("snapshots at most"));
    place.server().command(&["CONFIG", "SET", "appendonly", "yes"]);
    assert!(doctor(&place).reason("persistence").contains("synced every second"));
    report.apply(&place, "persistence");
    assert_eq!(doctor(&place).troubles(), []);
}

// B5, R0.5
#[test]
fn replicas() {
    let master = Place::on(sound().start());
    let port = master.server().port().to_string();
    let replica = RedisServer::builder().config("replicaof", &format!("127.0.0.1 {port}")).start();
    eventually("the replica is there", || {
        master.server().question(&["INFO", "replication"]).text().contains("state=online")
    });

    let report = doctor_at(&master, &replica.url());
    assert_eq!(
        (report.troubles(), report.code),
        (vec![("store", "unfit")], 69),
        "it is refused when it is opened"
    );
    assert!(report.reason("store").contains("read-only replica"), "{}", report.reason("store"));
    let plain = master.end(&["doctor", "--url", &replica.url()]);
    assert!(
        plain.stdout.contains("\n✘ store   redis at ") || plain.stdout.contains("\nX  store"),
        "{}",
        plain.stdout
    );
    assert!(plain.stdout.ends_with("\nunfit to hold locks\n"), "{}", plain.stdout);

    let report = doctor(&master);
    assert_eq!((report.troubles(), report.code), (vec![("replicas", "doubtful")], 0));
    assert!(report.reason("replicas").starts_with("1, of which "), "{}", report.reason("replicas"));
    report.apply(&master, "replicas");
    assert_eq!(doctor(&master).troubles(), []);

    replica.kill();
    eventually("the master notices", || {
        master.server().question(&["INFO", "replication"]).text().contains("connected_slaves:0")
    });
    let report = doctor(&master);
    assert_eq!((report.verdict("replicas"), report.verdict("lease"), report.code), ("unfit", "unfit", 1));
    assert!(report.reason("lease").contains("min-replicas-to-write"), "{}", report.reason("lease"));
}

// B5: what `run` says is what `doctor` says, also that the option can be left out.
#[test]
fn all_replicas_of_a_server_that_has_none() {
    let place = Place::on(sound().start());
    let (all, one) = (format!("{}?replicas=all", place.url()), format!("{}?replicas=1", place.url()));
    let report = doctor_at(&place, &all);
    assert_eq!((report.troubles(), report.code), (vec![("replicas", "unfit")], 1));
    let why = "none, and `replicas=all` in the URL demands at least one: no lock can be taken";
    assert_eq!(report.reason("replicas"), why);
    let leave_out = "connect a replica, or leave `replicas` out of the URL of a server without replicas";
    assert_eq!(report.finding("replicas")["remedy"], leave_out);
    assert!(report.reason("lease").ends_with(", on the master alone"), "{}", report.reason("lease"));
    let run = place.end(&["run", "--url", &all, "-n", "name", "--", "true"]);
    let said = format!("has no replicas, and `replicas=all` in the URL demands at least one; {leave_out}");
    assert!(run.code == 69 && run.stderr.contains(&said), "{run:?}");

    let report = doctor_at(&place, &one);
    let why = "0 of the 1 that `replicas=1` in the URL demands knew of a lock within a second";
    assert!(report.reason("replicas").starts_with(why), "{}", report.reason("replicas"));
    assert_eq!(report.finding("replicas")["remedy"], "bring the others back, or lower `replicas` in the URL");
}

// B5
#[test]
fn a_server_of_a_cluster() {
    let place = Place::on(sound().config("cluster-enabled", "yes").start());
    let report = doctor(&place);
    assert_eq!((report.troubles(), report.code), (vec![("store", "unfit")], 64));
    assert!(report.reason("store").contains("is a node of a cluster"), "{}", report.reason("store"));
}

// B5
#[test]
fn a_clock_that_is_ahead_is_a_doubt_and_no_more() {
    let place = Place::on(sound().clock().start());
    place.server().set_clock_offset(5_000_000);
    let report = doctor(&place);
    assert_eq!(
        (report.troubles(), report.code),
        (vec![("clock", "doubtful")], 0),
        "leases do not depend on it"
    );
    assert!(report.reason("clock").contains("ahead of this machine's clock"), "{}", report.reason("clock"));
    place.server().set_clock_offset(-5_000_000);
    assert!(doctor(&place).reason("clock").contains("behind this machine's clock"));
    place.server().set_clock_offset(0);
    assert_eq!(doctor(&place).troubles(), []);
}

// B5
#[test]
fn a_clock_that_runs_at_another_rate_is_a_doubt() {
    let place = Place::on(sound().clock().start());
    // More than chrony does on two machines: also over the slow answers of a busy machine it is proved.
    for (rate, said, remedies) in [
        (200_000, "faster than this machine's clock", "margin="),
        (-200_000, "slower than this machine's clock", "maxslewrate"),
    ] {
        place.server().set_clock_rate(rate);
        let report = doctor(&place);
        assert_eq!((report.verdict("clock rate"), report.code), ("doubtful", 0), "{rate}");
        assert!(report.reason("clock rate").contains(said), "{}", report.reason("clock rate"));
        let remedy = report.finding("clock rate")["remedy"].as_str().unwrap();
        assert!(remedy.contains("maxslewrate 1000") && remedy.contains(remedies), "{remedy}");
    }
    // What the URL allows for is no doubt.
    place.server().set_clock_rate(150_000);
    let report = doctor_at(&place, &format!("{}?margin=25", place.url()));
    assert_eq!(report.verdict("clock rate"), "fit", "{}", report.reason("clock rate"));
}

// B5
#[test]
fn a_clock_rate_that_a_slow_network_explains_is_no_doubt() {
    let place = Place::on(sound().clock().start());
    let proxy = Proxy::new(place.server());
    proxy.inject(Fault::DelayReply(Duration::from_millis(100)), u64::MAX, named("TIME"));
    place.server().set_clock_rate(15_000);
    let report = doctor_at(&place, &proxy.url());
    assert_eq!(report.verdict("clock rate"), "fit", "{}", report.reason("clock rate"));
    assert!(report.reason("clock rate").contains("not known"), "{}", report.reason("clock rate"));
}

// B5
#[test]
fn connections_that_run_out() {
    let place = Place::on(sound().config("maxclients", "30").start());
    let others: Vec<_> = (0..24).map(|_| place.server().client().unwrap()).collect();
    let report = doctor(&place);
    assert_eq!(report.troubles(), [("connections", "doubtful")]);
    report.apply(&place, "connections");
    assert_eq!(doctor(&place).troubles(), []);
    drop(others);
}

// B5, R0.5
#[test]
fn a_server_that_is_away() {
    let place = Place::on_redis();
    place.server().kill();
    let report = doctor(&place);
    assert_eq!((report.troubles(), report.code), (vec![("store", "unfit")], 69));
    assert_eq!(report.finding("store")["remedy"], "is it running?");
}

// B5
#[test]
fn other_ways_to_the_server() {
    let place = Place::on(sound().tls().start());
    let server = place.server();
    let ca = server.ca_path();
    let by_tls = doctor_at(&place, &format!("{}?tls_ca={}", server.tls_url(), ca.display()));
    assert_eq!((by_tls.troubles(), by_tls.code), (vec![], 0));
    assert!(by_tls.reason("encryption").starts_with("TLS"));
    let by_socket = doctor_at(&place, &server.unix_url());
    assert_eq!((by_socket.troubles(), by_socket.code), (vec![], 0));
    assert!(by_socket.reason("encryption").contains("local socket"));
}
