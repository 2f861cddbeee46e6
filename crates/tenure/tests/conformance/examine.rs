//! `Domain::examine` for a program that uses it: what it finds can be acted on, it leaves nothing behind, and it is refused when the domain is closed.
//! What makes a store unfit is done to real ones by the tests of `tenure doctor`.

use std::collections::HashSet;

use tenure::{Domain, ErrorKind, Finding, Verdict};
use tenure_testkit::redis::RedisServer;

async fn examined(url: &str) -> Vec<Finding> {
    let domain = Domain::open(url).await.expect("to open");
    let findings = domain.examine().await.expect("to examine");
    let checks: HashSet<_> = findings.iter().map(|finding| finding.check).collect();
    assert_eq!(checks.len(), findings.len(), "each is looked at once: {findings:#?}");
    for finding in &findings {
        assert_ne!(finding.verdict, Verdict::Unfit, "{finding}");
        assert_eq!(finding.remedy.is_some(), finding.verdict > Verdict::Fit, "{finding}");
        assert!(!finding.reason.is_empty() && !finding.to_string().contains('\n'), "{finding}");
    }
    assert_eq!(domain.list("").await.expect("to list"), []);
    domain.close().await;
    assert_eq!(domain.examine().await.expect_err("it is closed").kind(), ErrorKind::Closed);
    findings
}

/// What every store of several processes must do is among the findings.
fn assert_played_through(findings: &[Finding]) {
    for check in ["lease", "hand-over", "loss"] {
        let found = findings.iter().find(|finding| finding.check == check).expect(check);
        assert_eq!(found.verdict, Verdict::Fit, "{found}");
    }
}

// B5
#[tokio::test]
async fn a_directory() {
    let directory = std::env::temp_dir().join(format!("tenure-examine-{}", std::process::id()));
    assert_played_through(&examined(&format!("file://{}", directory.display())).await);
    let left: Vec<_> = std::fs::read_dir(&directory)
        .expect("it was made")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .filter(|name| !name.starts_with("stripe-"))
        .collect();
    std::fs::remove_dir_all(&directory).expect("to remove it");
    assert_eq!(left, [""; 0], "no session is left");
}

// B5
#[tokio::test]
async fn a_server() {
    let server = RedisServer::start();
    assert_played_through(&examined(&server.url()).await);
    assert!(server.command(&["KEYS", "*"]).items().is_empty(), "no key is left");
}
