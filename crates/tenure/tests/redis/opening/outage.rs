//! A server that goes away while a domain is open: a typed error, soon, and no end to the attempts.

use std::time::{Duration, Instant};

use tenure::{Domain, Error, ErrorKind, Guard, Release};
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
        let _ = domain.lock("orders/42").run(async |_| ()).await.expect("the same domain");
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
    let error = domain.lock("orders/42").acquire().await.expect_err("it does not answer");
    check(&error);
    let named = format!("redis at 127.0.0.1:{} did not answer within ", server.port());
    assert!(error.to_string().starts_with(&named), "{error}");
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
    let _ = domain.lock("orders/42").run(async |_| ()).await.expect("the same domain");
    assert_eq!(proxy.accepted(), after, "one connection is enough");
}

/// A server that keeps its data, and a domain whose leases outlast every test.
async fn durable() -> (RedisServer, Domain) {
    let server = RedisServer::builder().aof_always().start();
    let domain = Domain::open(format!("{}?ttl=1h&timeout=30s", server.url())).await.expect("it runs");
    (server, domain)
}

/// Takes the server away, until the client knows that it is.
async fn kill(server: &RedisServer, domain: &Domain) {
    server.kill();
    check(&domain.health().await.expect_err("nobody is there"));
}

fn is_held(server: &RedisServer, name: &str) -> bool {
    server.command(&["EXISTS", &format!("tenure:{name}")]).int() == 1
}

/// Restarts the server while `work` is under way, which has begun.
async fn restart_during<T>(server: RedisServer, work: impl Future<Output = T>) -> (RedisServer, T) {
    let restarted = async {
        tokio::task::yield_now().await;
        let restarting = tokio::task::spawn_blocking(move || {
            server.restart();
            server
        });
        restarting.await.expect("no panic")
    };
    let (work, server) = tokio::join!(work, restarted);
    (server, work)
}

/// Releases with as many attempts as a busy machine needs: it may take longer for a reconnection than one of them does.
async fn release(mut guard: Guard) -> Release {
    loop {
        let begin = Instant::now();
        match guard.release().await {
            Ok(release) => return release,
            Err(returned) => {
                check(&returned.error);
                assert!(begin.elapsed() >= Duration::from_secs(1), "it was not tried for its time");
                guard = returned.guard;
            }
        }
    }
}

// R0.5, R1.7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_outlasts_an_outage_that_ends() {
    let (server, domain) = durable().await;
    let guard = domain.lock("orders/42").acquire().await.expect("a free name");
    kill(&server, &domain).await;
    let (server, released) = restart_during(server, release(guard)).await;
    assert_eq!(released, Release::Released);
    assert!(!is_held(&server, "orders/42"));
}

// R0.5, R1.7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_release_of_a_ticket_outlasts_an_outage_that_ends() {
    let (server, domain) = durable().await;
    let guard = domain.lock("orders/42").acquire().await.expect("a free name");
    let ticket = guard.detach().await.expect("it runs");
    kill(&server, &domain).await;
    let released = async {
        loop {
            let begin = Instant::now();
            match ticket.release(&domain).await {
                Ok(released) => return released,
                Err(error) => {
                    check(&error);
                    assert!(begin.elapsed() >= Duration::from_secs(1), "it was not tried for its time");
                }
            }
        }
    };
    let (server, released) = restart_during(server, released).await;
    assert_eq!(released, Release::Released);
    assert!(!is_held(&server, "orders/42"));
}

// R0.5, R1.7: what was dropped during an outage is released when `close` has returned, if the outage ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_dropped_during_an_outage_is_released_by_the_end_of_close() {
    let (server, domain) = durable().await;
    let guard = domain.lock("a").acquire().await.expect("a free name");
    let (begun, begins) = tokio::sync::oneshot::channel();
    let lock = domain.lock("b");
    let running = tokio::spawn(async move {
        lock.run(async |_| {
            begun.send(()).expect("it is waited for");
            std::future::pending::<()>().await
        })
        .await
        .map(drop)
    });
    begins.await.expect("it runs");
    kill(&server, &domain).await;
    drop(guard);
    let (server, ()) = restart_during(server, domain.close()).await;
    assert_eq!(running.await.expect("no panic").expect_err("it was stopped").kind(), ErrorKind::Lost);
    assert!(!is_held(&server, "a") && !is_held(&server, "b"));
}

// R0.5: an outage that lasts ends a release within its time, and not within the timeout of requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_ends_soon_in_an_outage_that_lasts() {
    let (server, domain) = durable().await;
    let guard = domain.lock("orders/42").acquire().await.expect("a free name");
    kill(&server, &domain).await;
    let begin = Instant::now();
    let returned = guard.release().await.expect_err("nobody is there");
    check(&returned.error);
    assert!(returned.error.to_string().contains(&server.port().to_string()), "{}", returned.error);
    assert!(begin.elapsed() < AT_ONCE, "{:?}", begin.elapsed());
}
