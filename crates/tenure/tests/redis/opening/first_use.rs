//! Connecting: once for everyone who asks at the same time, again after a failure, and without a word more than is needed.

use std::time::Duration;

use tenure::{Domain, ErrorKind};
use tenure_testkit::redis::{Fault, Proxy, RedisServer, named};

use crate::redis::hygiene::traces::{keys, until_clean};

/// Callers that each want a name of their own, at the same time; what each was told.
async fn callers(domain: &Domain, count: usize) -> Vec<Result<(), tenure::Error>> {
    let callers: Vec<_> = (0..count)
        .map(|number| {
            let lock = domain.lock(format!("orders/{number}"));
            tokio::spawn(async move { lock.acquire().await.map(drop) })
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
async fn a_hundred_first_callers_make_one_connection() {
    let server = RedisServer::start();
    let proxy = Proxy::new(&server);
    let domain = Domain::lazy(proxy.url()).expect("a valid URL");
    assert_eq!(proxy.accepted(), 0, "a lazy domain does nothing");
    // Long enough for everyone to come while it is being made.
    proxy.inject(Fault::DelayReply(Duration::from_millis(100)), 1, named("HELLO"));
    for answer in callers(&domain, 100).await {
        answer.expect("one connection serves all");
    }
    assert_eq!(proxy.accepted(), 1);
    until_clean(&server).await;
}

// R0.3: one answer for all, which is not remembered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_attempt_is_everyones_and_can_be_tried_again() {
    let server = RedisServer::start();
    let proxy = Proxy::new(&server);
    let domain = Domain::lazy(format!("{}?timeout=2s", proxy.url())).expect("a valid URL");
    proxy.inject(Fault::Silence, 1, named("HELLO"));
    let answers = callers(&domain, 100).await;
    let said: Vec<String> =
        answers.into_iter().filter_map(Result::err).map(|error| error.to_string()).collect();
    assert_eq!((said.len(), proxy.accepted()), (100, 1), "one attempt is the answer to all");
    assert!(said.iter().all(|message| *message == said[0]), "{said:?}");
    for answer in callers(&domain, 100).await {
        answer.expect("the next attempt succeeds");
    }
    assert_eq!(proxy.accepted(), 2);
}

// R0.3, R0.5: an outage at start is not remembered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_at_start_is_not_remembered() {
    let server = RedisServer::start();
    server.kill();
    let domain = Domain::lazy(server.url()).expect("a valid URL");
    for _ in 0..3 {
        let error = domain.lock("orders/42").acquire().await.expect_err("nobody is there");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.is_transient());
        let address = format!("127.0.0.1:{}", server.port());
        let message = error.to_string();
        assert!(message.contains(&address) && message.contains("is it running?"), "{message}");
    }
    assert!(Domain::open(server.url()).await.is_err(), "open says so too");
    server.restart();
    drop(domain.lock("orders/42").acquire().await.expect("the same domain, now that the server is there"));
}

// A caller that is cancelled takes the attempt from nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_caller_takes_nothing_from_the_others() {
    let server = RedisServer::start();
    let proxy = Proxy::new(&server);
    let domain = Domain::lazy(proxy.url()).expect("a valid URL");
    proxy.inject(Fault::DelayReply(Duration::from_millis(200)), 1, named("HELLO"));
    let (first, second) = (domain.lock("first"), domain.lock("second"));
    let first = tokio::spawn(async move { first.acquire().await.map(drop) });
    proxy.seen_async(tenure_testkit::redis::Step::Received, named("HELLO")).await;
    let second = tokio::spawn(async move { second.acquire().await });
    first.abort();
    drop(second.await.expect("no panic").expect("the attempt goes on"));
    assert_eq!(proxy.accepted(), 1);
    assert!(!keys(&server).contains(&"tenure:first".to_owned()));
}

// R0.4: the operation itself is the test. What comes before it prepares the connection, and none of it is repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_ping_comes_before_an_operation() {
    let server = RedisServer::start();
    let proxy = Proxy::new(&server);
    // Its heartbeat is 30 s away.
    let domain =
        Domain::open(format!("{}?ttl=2m&timeout=1m", proxy.url())).await.expect("a server that runs");
    assert!(!proxy.has_seen(tenure_testkit::redis::Step::Received, named("PING")));
    let _ = domain.lock("orders/42").run(async |_| ()).await.expect("a server that runs");
    proxy.forget();
    for _ in 0..3 {
        let guard = domain.lock("orders/42").acquire().await.expect("a free name");
        guard.release().await.expect("a server that runs");
    }
    let names = proxy.names();
    let scripts = names.iter().filter(|name| *name == "EVALSHA").count();
    let verifying = names.iter().filter(|name| *name == "CLIENT").count();
    assert_eq!(scripts - verifying, 6, "one request each: {names:?}");
    assert_eq!(names.len(), scripts + verifying, "and nothing else: {names:?}");
}
