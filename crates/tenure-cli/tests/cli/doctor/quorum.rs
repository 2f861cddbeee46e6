//! A majority of independent servers: what they have in common is said once, and what is wrong with one of them by its address.

use tenure_testkit::redis::RedisServer;

use super::doctor_at;
use crate::support::Place;

// B5, R3.9
#[test]
fn several_servers_are_one_report() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
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
    report.apply(&place, "persistence");
    assert_eq!(doctor_at(&place, &url).verdict("persistence"), "fit", "on all of them");

    servers[1].command(&["CONFIG", "SET", "maxmemory", "100mb"]);
    servers[1].command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let report = doctor_at(&place, &url);
    let evicts =
        report.findings.iter().find(|finding| finding["verdict"] == "unfit").expect("one that evicts");
    let reason = evicts["reason"].as_str().unwrap();
    assert!(reason.starts_with(&format!("127.0.0.1:{}: allkeys-lru", servers[1].port())), "{reason}");
    servers[1].command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);

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
    assert!(servers.iter().all(|server| reason.contains(&format!(":{}: ", server.port()))), "{reason}");
    assert_eq!(report.finding("store")["remedy"], "are they running?");
}
