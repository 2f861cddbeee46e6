//! A master that is found through Sentinel, and its replicas.

use std::time::Duration;

use tenure_testkit::redis::Trio;

use super::{Report, doctor_at};
use crate::support::Place;

/// What a report says of the two.
#[track_caller]
fn said(report: &Report, check: &str) -> (String, String) {
    (report.verdict(check).to_owned(), report.reason(check).to_owned())
}

#[track_caller]
fn assert_said(report: &Report, check: &str, verdict: &str, part: &str) {
    let (found, reason) = said(report, check);
    assert!(found == verdict && reason.contains(part), "{check}: {found}: {reason}");
}

// B5
#[test]
fn sentinels_and_replicas() {
    let trio = Trio::builder().down_after(Duration::from_secs(600)).start();
    let place = Place::new();
    let look = |url: &str| doctor_at(&place, url);
    let (url, all) = (trio.url(), format!("{}?replicas=all", trio.url()));

    let report = look(&all);
    assert_said(&report, "sentinels", "fit", "3 of 3 answer, quorum 2, of 3 that they know of");
    assert_said(&report, "replicas", "fit", "2, and 2 must know of every lease");
    assert_said(&look(&url), "replicas", "doubtful", "one that is promoted may not know the last locks");
    let report = look(&format!("{url}?replicas=1"));
    assert_said(&report, "replicas", "doubtful", "2, of which 1 must know of every lease");
    assert_eq!(report.finding("replicas")["remedy"], "write `replicas=all` in the URL");

    let one = format!("redis+sentinel://127.0.0.1:{}/main", trio.sentinels()[0].port());
    assert_said(&look(&one), "sentinels", "doubtful", "without this one the master is not found");

    let master = trio.master();
    let bob = ["ACL", "SETUSER", "bob", "reset", "on", ">secret", "allkeys", "allchannels", "+@all", "-wait"];
    assert_eq!(master.command(&bob).text(), "OK");
    let bobs = all.replace("://", "://bob:secret@");
    let report = look(&bobs);
    assert_said(&report, "replicas", "unfit", "may not wait for replicas");
    report.apply(&place, "replicas");
    assert_said(&look(&bobs), "replicas", "fit", "2 must know");

    let away = trio.replicas()[0];
    away.stop();
    let report = look(&all);
    assert_said(&report, "replicas", "unfit", "1 of the 2 that `replicas=all` in the URL demands");
    assert!(report.finding("replicas")["remedy"].as_str().unwrap().contains("sentinel reset main"));
    assert_eq!(report.code, 1);
    away.cont();

    let other = trio.replicas()[0].port().to_string();
    let astray = &trio.sentinels()[1];
    astray.command(&["SENTINEL", "REMOVE", "main"]);
    astray.command(&["SENTINEL", "MONITOR", "main", "127.0.0.1", &other, "2"]);
    let (first, second) = (trio.sentinels()[0].port(), astray.port());
    let disagree = format!("redis+sentinel://127.0.0.1:{first},127.0.0.1:{second}/main");
    let report = look(&disagree);
    let differs = format!("127.0.0.1:{second} names 127.0.0.1:{other}");
    assert_said(&report, "sentinels", "doubtful", &differs);

    astray.kill();
    let report = look(&url);
    assert_said(
        &report,
        "sentinels",
        "doubtful",
        &format!("2 of 3 answer, quorum 2; cannot reach 127.0.0.1:{second}"),
    );
}
