//! A change is told once, through tracing.

use tenure::Degrade;
use tenure_testkit::warnings::Warnings;

use crate::layered::scene::{LONG, Scene};

/// What was said of the outer store.
fn told(log: &Warnings) -> Vec<String> {
    log.said().into_iter().filter(|line| line.contains("outer store is")).collect()
}

// R0.2, R0.8
#[tokio::test]
async fn every_change_is_told_once() {
    let scene = Scene::new();
    let log = Warnings::listen();
    let peer = scene.peer(Degrade::Allow, LONG).await;
    let mut fence = 0;
    for round in 1..=2 {
        let guard = peer.acquire_both(fence).await;
        fence = guard.fence().get();
        guard.release().await.expect("to release");
        assert_eq!(told(&log).len(), 2 * round - 2);
        scene.server.kill();
        for _ in 0..3 {
            let guard = peer.acquire().await;
            assert!(guard.is_degraded());
            guard.release().await.expect("to release");
        }
        scene.server.restart();
        drop(peer.acquire_both(fence).await.release().await.expect("to release"));
        let lines = told(&log);
        assert_eq!(lines.len(), 2 * round, "{lines:?}");
        assert!(lines[2 * round - 2].contains("out of reach"), "{lines:?}");
        assert!(lines[2 * round - 1].contains("is back"), "{lines:?}");
    }
}

// R0.2
#[tokio::test]
async fn without_leave_to_degrade_it_is_told_too() {
    let scene = Scene::new();
    let log = Warnings::listen();
    let peer = scene.peer(Degrade::Never, LONG).await;
    scene.server.kill();
    for _ in 0..3 {
        peer.domain.lock("orders/42").acquire().await.expect_err("nobody is there");
    }
    let lines = told(&log);
    assert!(matches!(&lines[..], [line] if line.contains("nobody acquires anything")), "{lines:?}");
}
