//! A majority of independent servers: what they have in common is said once, and what is wrong with one of them by its address.

use std::time::Duration;

use tenure_testkit::redis::RedisServer;

use super::doctor_at;
use crate::support::Place;

// B5, R3.9
#[test]
fn several_servers_are_one_report() {
    // Old enough to count.
    let old = Duration::from_secs(600);
    let servers: Vec<_> = (0..3).map(|_| RedisServer::builder().aged(old).start()).collect();
    let place = Place::new();
    let hosts = servers.iter().map(|server| format!("127.0.0.1:{}", server.port()));
    let url = format!("redis+quorum://{}", hosts.collect::<Vec<_>>().join(","));

    let report = doctor_at(&place, &url);
    assert_eq!(report.code, 0, "{:#?}", report.findings);
    assert_eq!(report.reason("majority"), "3 of 3 servers are in reach, 2 are needed");
    let mut checks: Vec<_> =
        report.findings.iter().map(|finding| finding["check"].as_str().unwrap()).collect();
    let all = checks.len();
    checks.sort_unstable();
    checks.dedup();
    assert_eq!(checks.len(), all, "one line for each: {:#?}", report.findings);
    assert!(report.reason("version").starts_with("each of 3: redis"), "{}", report.reason("version"));
    assert!(report.reason("persistence").contains("does not count for one ttl"), "of a group");
    let others_go_on = "each of 3: none: while the server is away, the others go on if they are a majority";
    assert_eq!(report.reason("replicas"), others_go_on);
    report.apply(&place, "persistence");
    assert_eq!(doctor_at(&place, &url).verdict("persistence"), "fit", "on all of them");

    let evict = |server: &RedisServer, policy: &str| {
        server.command(&["CONFIG", "SET", "maxmemory", "100mb"]);
        server.command(&["CONFIG", "SET", "maxmemory-policy", policy]);
    };
    let evicts = |verdict: &str| {
        let report = doctor_at(&place, &url);
        let is_it =
            |finding: &&serde_json::Value| finding["check"] == "eviction" && finding["verdict"] == verdict;
        let found = report.findings.iter().find(is_it).unwrap_or_else(|| panic!("{:#?}", report.findings));
        (report.code, found["reason"].as_str().unwrap().to_owned())
    };
    evict(&servers[1], "allkeys-lru");
    let (code, reason) = evicts("doubtful");
    assert_eq!(code, 0, "a minority may forget: {reason}");
    assert!(reason.starts_with(&format!("127.0.0.1:{}: allkeys-lru", servers[1].port())), "{reason}");
    assert!(reason.contains("a majority still has it"), "{reason}");
    evict(&servers[2], "allkeys-lru");
    let (code, reason) = evicts("unfit");
    assert_eq!(code, 1, "most may not: {reason}");
    assert!(reason.ends_with("and when most of the servers evict a lock, two hold its name"), "{reason}");
    servers[1..].iter().for_each(|server| evict(server, "noeviction"));

    // A server whose writes are on disk counts at once.
    servers[1].command(&["CONFIG", "SET", "appendonly", "no"]);
    servers[1].command(&["CONFIG", "REWRITE"]);
    servers[1].restart();
    let report = doctor_at(&place, &url);
    assert_eq!((report.code, report.verdict("majority")), (0, "doubtful"));
    let reason = report.reason("majority");
    assert!(reason.contains("; 1 of them started a short time ago and may not count for "), "{reason}");

    servers[2].kill();
    let report = doctor_at(&place, &url);
    assert_eq!(
        (report.code, report.verdict("majority"), report.verdict("member")),
        (0, "doubtful", "doubtful")
    );
    servers[0].kill();
    let report = doctor_at(&place, &url);
    assert_eq!((report.code, report.verdict("store")), (69, "unfit"));
    let reason = report.reason("store");
    assert!(reason.starts_with("1 of 3 servers answered, 2 are needed: "), "{reason}");
    assert!(
        servers.iter().all(|server| reason.contains(&format!("127.0.0.1:{}", server.port()))),
        "{reason}"
    );
    let remedy =
        format!("each of 127.0.0.1:{}, 127.0.0.1:{}: is it running?", servers[0].port(), servers[2].port());
    assert_eq!(report.finding("store")["remedy"], remedy);
}
