//! Opening: with Redis away, and by a hundred at once.

use std::time::Duration;

use tenure::{Degrade, Domain, Error, ErrorKind};
use tenure_testkit::patience::until;
use tenure_testkit::redis::{Fault, Proxy, named};

use crate::layered::scene::{LONG, Scene};

// R0.2, R0.5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_redis_away_it_opens_only_if_it_may_degrade() {
    let scene = Scene::new();
    let proxy = Proxy::new(&scene.server);
    scene.server.kill();
    let (outer, inner) = (proxy.url(), scene.machine.url());
    let error = Domain::layered(&outer, &inner, Degrade::Never).await.map(drop).expect_err("nobody is there");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");

    let domain = Domain::layered(&outer, &inner, Degrade::Allow).await.expect("the directory is there");
    let guard = domain.lock("orders/42").acquire().await.expect("the directory is there");
    assert!(guard.is_degraded());
    let fence = guard.fence().get();
    guard.release().await.expect("to release");
    assert_eq!(domain.health().await.expect("the directory is there").warnings.len(), 1);
    scene.server.restart();
    let peer = crate::layered::scene::Peer { domain, proxy };
    drop(peer.acquire_both(fence).await);
    assert!(peer.domain.health().await.expect("both are there").warnings.is_empty());
}

// R3.1: of a server that was away at first, the first connection counts as any other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_is_told_by_a_server_that_was_away_at_first() {
    let scene = Scene::new();
    let proxy = Proxy::new(&scene.server);
    scene.server.kill();
    // A renewal that tells it by itself is far away.
    let url = scene.url(&proxy, Degrade::Allow, 10 * LONG);
    let domain = Domain::open(url).await.expect("the directory is there");
    scene.server.restart();
    let peer = crate::layered::scene::Peer { domain, proxy };
    peer.acquire_both(0).await.release().await.expect("to release");
    let before = peer.domain.metrics().renewals;
    let guard = peer.acquire().await;
    assert!(!guard.is_degraded());
    until("its key is tracked", || peer.domain.metrics().renewals > before).await;
    assert_eq!(scene.server.command(&["DEL", "tenure:orders/42"]).int(), 1);
    until("it is told", || !guard.is_held()).await;
}

/// What each of a hundred first callers was told: whether it is degraded.
async fn callers(domain: &Domain) -> Vec<Result<bool, Error>> {
    let callers: Vec<_> = (0..100)
        .map(|number| {
            let lock = domain.lock(format!("orders/{number}"));
            tokio::spawn(async move {
                let guard = lock.acquire().await?;
                let is_degraded = guard.is_degraded();
                guard.release().await.expect("to release");
                Ok(is_degraded)
            })
        })
        .collect();
    let mut answers = Vec::new();
    for caller in callers {
        answers.push(caller.await.expect("no panic"));
    }
    answers
}

// R0.3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_first_callers_share_one_slow_attempt() {
    let scene = Scene::new();
    for degrade in [Degrade::Never, Degrade::Allow] {
        let proxy = Proxy::new(&scene.server);
        let domain = Domain::lazy(scene.url(&proxy, degrade, LONG)).expect("a valid URL");
        proxy.inject(Fault::DelayReply(Duration::from_millis(200)), 1, named("HELLO"));
        for answer in callers(&domain).await {
            assert!(!answer.expect("one connection serves all"), "all wait for it: {degrade:?}");
        }
        assert_eq!(proxy.accepted(), 1, "{degrade:?}");
    }
}

// R0.3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_attempt_is_everyones_and_the_next_one_succeeds() {
    let scene = Scene::new();
    let proxy = Proxy::new(&scene.server);
    proxy.cut();
    let never = Domain::lazy(scene.url(&proxy, Degrade::Never, LONG)).expect("a valid URL");
    let allow = Domain::lazy(scene.url(&proxy, Degrade::Allow, LONG)).expect("a valid URL");
    for answer in callers(&never).await {
        assert_eq!(answer.expect_err("Redis is away").kind(), ErrorKind::Unavailable);
    }
    assert!(callers(&allow).await.into_iter().all(|answer| answer.expect("the directory")), "degraded");
    proxy.heal();
    for answer in callers(&never).await {
        assert!(!answer.expect("the next attempt succeeds"));
    }
    drop(crate::layered::scene::Peer { domain: allow, proxy }.acquire_both(0).await);
}
