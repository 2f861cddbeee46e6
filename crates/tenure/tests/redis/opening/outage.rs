//! A server that goes away while a domain is open: a typed error, soon, and no end to the attempts.

use std::time::{Duration, Instant};

use tenure::{Domain, Error, ErrorKind};
use tenure_testkit::patience::{PATIENCE, until};
use tenure_testkit::redis::RedisServer;

use crate::redis::hygiene::traces::until_clean;

/// More than a busy machine takes for what takes milliseconds, and less than the timeout that is not to be waited for.
const AT_ONCE: Duration = Duration::from_secs(10);

fn check(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.is_transient(), "{error}");
}

async fn is_back(domain: &Domain) {
    let give_up = Instant::now() + PATIENCE;
    while let Err(error) = domain.health().await {
        check(&error);
        assert!(Instant::now() < give_up, "{error}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

// R0.5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_is_an_error_at_once_and_used_again_when_it_is_back() {
    let server = RedisServer::start();
    let domain = Domain::open(format!("{}?ttl=2m&timeout=30s", server.url())).await.expect("it runs");
    domain.health().await.expect("it runs");
    for _ in 0..3 {
        server.kill();
        let begin = Instant::now();
        for _ in 0..5 {
            check(&domain.lock("orders/42").acquire().await.expect_err("nobody is there"));
            check(&domain.inspect("orders/42").await.expect_err("nobody is there"));
            check(&domain.list("").await.expect_err("nobody is there"));
            check(&domain.health().await.expect_err("nobody is there"));
        }
        assert!(begin.elapsed() < AT_ONCE, "no timeout is waited for: {:?}", begin.elapsed());
        server.restart();
        is_back(&domain).await;
        domain.lock("orders/42").run(async |_| ()).await.expect("the same domain");
    }
    until_clean(&server).await;
}

// R0.5: it answers nobody, and its connections stand.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_server_is_an_error_within_the_timeout() {
    let server = RedisServer::start();
    let timeout = Duration::from_millis(300);
    let domain = Domain::open(format!("{}?timeout=300ms", server.url())).await.expect("it runs");
    let held = domain.lock("held").ttl(Duration::from_secs(30)).acquire().await.expect("a free name");
    server.stop();
    let begin = Instant::now();
    check(&domain.lock("orders/42").acquire().await.expect_err("it does not answer"));
    let first = begin.elapsed();
    assert!(first >= timeout / 2, "it might have answered: {first:?}");
    for _ in 0..3 {
        check(&domain.lock("orders/42").acquire().await.expect_err("it does not answer"));
    }
    assert!(begin.elapsed() < 4 * timeout + AT_ONCE);
    assert!(held.is_held(), "no answer is no loss");
    server.cont();
    is_back(&domain).await;
    held.renew().await.expect("it answers");
    drop(domain.lock("orders/42").acquire().await.expect("the same domain"));
    assert!(held.is_held());
    drop(held);
    until_clean(&server).await;
}

// R0.5: a client never gives up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_to_connect_never_end() {
    let server = RedisServer::start();
    let proxy = tenure_testkit::redis::Proxy::new(&server);
    let domain = Domain::open(proxy.url()).await.expect("it runs");
    server.kill();
    // The proxy is there and the server is not: every attempt is counted, and fails. Backed off to the longest pause by then.
    let before = proxy.accepted();
    until("it was tried often", || proxy.accepted() > before + 12).await;
    check(&domain.health().await.expect_err("nobody is there"));
    server.restart();
    is_back(&domain).await;
    let after = proxy.accepted();
    domain.lock("orders/42").run(async |_| ()).await.expect("the same domain");
    assert_eq!(proxy.accepted(), after, "one connection is enough");
}
