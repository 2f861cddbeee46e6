//! Users of Redis who may not do everything.

use tenure_testkit::redis::RedisServer;

use super::{Report, doctor_at};
use crate::support::Place;

/// A place on a server with a user who has these permissions; and the URL of that user.
fn place_for(rules: &[&str]) -> (Place, String) {
    let place = Place::on(RedisServer::builder().aof_always().start());
    let user = ["ACL", "SETUSER", "bob", "reset", "on", ">secret"];
    assert_eq!(place.server().command(&[&user[..], rules].concat()).text(), "OK");
    let url = format!("redis://bob:secret@127.0.0.1:{}", place.server().port());
    (place, url)
}

/// What needs CONFIG, which no lock needs.
const HIDDEN: [(&str, &str); 1] = [("persistence", "doubtful")];

#[track_caller]
fn assert_allowed(report: &Report, place: &Place) {
    assert_eq!((report.troubles(), report.code), (HIDDEN.to_vec(), 0));
    assert!(report.reason("persistence").contains("may not be asked"), "{}", report.reason("persistence"));
    // Some of these users may ask whether their password is checked.
    let known = ["user bob, with a password", "user bob, and the URL has a password"];
    assert!(known.contains(&report.reason("user")), "{}", report.reason("user"));
    assert!(place.server().command(&["KEYS", "*"]).items().is_empty(), "nothing is left");
}

// B5
#[test]
fn a_user_without_permissions_gets_all_that_are_needed() {
    let (place, url) = place_for(&[]);
    let report = doctor_at(&place, &url);
    assert_eq!((report.verdict("lease"), report.code), ("unfit", 1));
    assert!(report.reason("lease").contains("lacks a permission"), "{}", report.reason("lease"));
    assert!(
        report.findings.iter().all(|finding| !finding.to_string().contains("secret")),
        "no password is shown"
    );
    report.apply(&place, "lease");
    let report = doctor_at(&place, &url);
    assert!(
        report.reason("lease").contains("key"),
        "commands are allowed, and keys are not: {}",
        report.reason("lease")
    );
    report.apply(&place, "lease");
    let report = doctor_at(&place, &url);
    assert_eq!(report.troubles(), [HIDDEN[0], ("hand-over", "doubtful")], "channels are not");
    assert!(report.reason("hand-over").contains("channel"), "{}", report.reason("hand-over"));
    report.apply(&place, "hand-over");
    let report = doctor_at(&place, &url);
    assert_allowed(&report, &place);
    assert_eq!(report.reason("user"), "user bob, and the URL has a password", "no more than is known");
    report.apply(&place, "persistence");
    assert_eq!(doctor_at(&place, &url).troubles(), [("", ""); 0], "settings may be asked for");
}

// B5
#[test]
fn a_user_who_may_neither_track_nor_listen() {
    let (place, url) =
        place_for(&["allkeys", "allchannels", "+@all", "-client|tracking", "-subscribe", "-config"]);
    let report = doctor_at(&place, &url);
    assert_eq!(report.code, 0, "locks work");
    assert_eq!(
        report.troubles(),
        [("persistence", "doubtful"), ("hand-over", "doubtful"), ("loss", "doubtful")]
    );
    assert!(report.reason("hand-over").contains("subscribe"), "{}", report.reason("hand-over"));
    assert!(report.reason("loss").contains("client|tracking"), "{}", report.reason("loss"));
    report.apply(&place, "loss");
    assert_allowed(&doctor_at(&place, &url), &place);
}

// B5
#[test]
fn a_user_who_may_not_publish_or_list_or_ask() {
    let (place, url) =
        place_for(&["allkeys", "allchannels", "+@all", "-publish", "-scan", "-info", "-config"]);
    let report = doctor_at(&place, &url);
    assert_eq!(report.troubles(), [("info", "doubtful"), ("hand-over", "doubtful"), ("listing", "doubtful")]);
    assert!(report.reason("version").starts_with("redis "), "HELLO tells it too");
    assert!(report.reason("hand-over").contains("can't run this command"), "{}", report.reason("hand-over"));
    report.apply(&place, "listing");
    assert_allowed(&doctor_at(&place, &url), &place);
}

// B5
#[test]
fn a_user_whose_keys_are_elsewhere() {
    let (place, url) = place_for(&["~other:*", "allchannels", "+@all", "-config"]);
    let report = doctor_at(&place, &url);
    assert_eq!((report.verdict("lease"), report.code), ("unfit", 1));
    let elsewhere = doctor_at(&place, &format!("{url}?prefix=other:"));
    assert_eq!(elsewhere.verdict("lease"), "unfit", "its side keys begin with a brace");
    elsewhere.apply(&place, "lease");
    assert_eq!(doctor_at(&place, &format!("{url}?prefix=other:")).troubles(), HIDDEN);
    report.apply(&place, "lease");
    assert_allowed(&doctor_at(&place, &url), &place);
}

// B5, R0.5
#[test]
fn a_wrong_password() {
    let (place, url) = place_for(&[]);
    let report = doctor_at(&place, &url.replace("secret", "wrong-one"));
    assert_eq!((report.troubles(), report.code), (vec![("store", "unfit")], 77));
    assert!(!report.findings[0].to_string().contains("wrong-one"), "{:?}", report.findings);
}
