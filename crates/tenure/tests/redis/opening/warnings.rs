//! What a server is not fit for is said once, in the log, and whenever somebody asks (R0.8).

use tenure::Domain;
use tenure_testkit::patience::until_async;
use tenure_testkit::redis::RedisServer;
use tenure_testkit::warnings::Warnings;

/// What `health` warns of, and what was logged while the domain was opened.
async fn warned(server: &RedisServer) -> (Vec<String>, Vec<String>) {
    let log = Warnings::listen();
    let domain = Domain::open(server.url()).await.expect("it runs");
    let health = domain.health().await.expect("it answers");
    domain.health().await.expect("it answers");
    (health.warnings, log.said())
}

// R0.8
#[tokio::test]
async fn an_eviction_policy_that_may_evict_locks() {
    let fit = RedisServer::start();
    assert_eq!(warned(&fit).await, (vec![], vec![]));
    for policy in ["allkeys-lru", "volatile-ttl", "volatile-lru", "allkeys-random"] {
        let server = RedisServer::builder().config("maxmemory-policy", policy).start();
        let (health, log) = warned(&server).await;
        assert_eq!(health.len(), 1, "{health:?}");
        for part in ["evict", policy, "use noeviction"] {
            assert!(health[0].contains(part), "{health:?} does not say: {part}");
        }
        assert_eq!(log.len(), 1, "said once: {log:?}");
        assert!(log[0].contains(policy), "{log:?}");
    }
}

// R0.8: the policy is seen as it is when the connection is made.
#[tokio::test]
async fn a_policy_that_was_put_right_is_seen_after_a_restart() {
    let server = RedisServer::builder().config("maxmemory-policy", "allkeys-lru").start();
    let domain = Domain::open(server.url()).await.expect("it runs");
    assert_eq!(domain.health().await.expect("it answers").warnings.len(), 1);
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    let is_fit = async || domain.health().await.is_ok_and(|health| health.warnings.is_empty());
    until_async("the warning is gone", is_fit).await;
}
