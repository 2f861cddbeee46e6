//! Redis with a directory underneath: what is said of each, with Redis there and away.

use serde_json::Value;

use super::{Report, doctor_at};
use crate::support::Place;

fn url(place: &Place, degrade: &str) -> String {
    format!("{}?inner=file://{}&degrade={degrade}", place.server().url(), place.locks().display())
}

/// The findings on one of the stores.
fn of<'r>(report: &'r Report, store: &str) -> Vec<(&'r str, &'r str)> {
    let word = |finding: &'r Value, field: &str| finding[field].as_str().unwrap();
    let found = report.findings.iter().filter(|finding| finding["store"] == store);
    found.map(|finding| (word(finding, "check"), word(finding, "verdict"))).collect()
}

// B5, R0.2
#[test]
fn both_stores_are_examined() {
    let place = Place::on_redis();
    for degrade in ["never", "allow"] {
        let report = doctor_at(&place, &url(&place, degrade));
        assert_eq!((report.code, report.conclusion["faults"].as_u64()), (0, Some(0)));
        for store in ["inner", "outer"] {
            assert!(of(&report, store).contains(&("lease", "fit")), "{store}: {:?}", report.findings);
        }
        assert!(of(&report, "inner").iter().any(|(check, _)| *check == "file system"));
        assert!(of(&report, "outer").iter().any(|(check, _)| *check == "eviction"));
    }
}

// B5, R0.2
#[test]
fn with_redis_away_it_says_what_still_works() {
    let place = Place::on_redis();
    place.server().kill();
    for (degrade, code, verdict, conclusion) in
        [("never", 69, "unfit", "unfit"), ("allow", 0, "doubtful", "doubtful")]
    {
        let report = doctor_at(&place, &url(&place, degrade));
        assert_eq!(report.code, code, "{degrade}: {:?}", report.findings);
        assert_eq!(of(&report, "outer"), [("store", verdict)], "{degrade}");
        assert!(of(&report, "inner").contains(&("lease", "fit")), "{degrade}: {:?}", report.findings);
        assert_eq!(report.conclusion["verdict"], conclusion, "{degrade}");
    }
    let shown = place.end(&["doctor", "--url", &url(&place, "allow")]);
    assert!(shown.stdout.contains("outer store"), "{}", shown.stdout);
    assert!(shown.stdout.contains("locks exclude the processes of this machine only"), "{}", shown.stdout);
    place.server().restart();
    assert_eq!(doctor_at(&place, &url(&place, "never")).code, 0, "once it is back");
}
