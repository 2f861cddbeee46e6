//! What a user of Redis must be allowed, and no more: the rule of docs/backends/redis.md, and that every part of it is needed.

use std::time::Duration;

use tenure::{Domain, Error, Release};
use tenure_testkit::patience::until;
use tenure_testkit::redis::RedisServer;

use crate::redis::hygiene::traces::until_clean;

/// Keys and channels of the prefix, and the commands of the scripts. With them everything works, and nothing is warned of.
const NEEDED: [&str; 30] = [
    "~tenure:*",
    "~{tenure:*",
    "&tenure:*",
    "+evalsha",
    "+eval",
    "+time",
    "+get",
    "+set",
    "+del",
    "+exists",
    "+pttl",
    "+pexpire",
    "+zadd",
    "+zrem",
    "+zrange",
    "+zrevrange",
    "+zrank",
    "+zscore",
    "+zcard",
    "+hset",
    "+hget",
    "+hdel",
    "+publish",
    "+subscribe",
    "+scan",
    "+info",
    "+hello",
    "+ping",
    "+client|tracking",
    "+client|caching",
];

/// Without these something is slower, or not said; nothing is refused.
const DISPENSABLE: [&str; 8] = [
    "&tenure:*",
    "+publish",
    "+subscribe",
    "+info",
    "+hello",
    "+ping",
    "+client|tracking",
    "+client|caching",
];

/// A server with a user who has these permissions, and the URL of that user.
fn server_for(rules: &[&str]) -> (RedisServer, String) {
    let server = RedisServer::start();
    let user = ["ACL", "SETUSER", "bob", "reset", "on", ">secret"];
    assert_eq!(server.command(&[&user[..], rules].concat()).text(), "OK");
    let url = format!("redis://bob:secret@127.0.0.1:{}", server.port());
    (server, url)
}

/// Everything that a domain can do.
async fn use_everything(server: &RedisServer, url: &str) -> Result<Vec<String>, Error> {
    let (domain, other) = (Domain::open(url).await?, Domain::open(url).await?);
    let lock = domain.lock("orders/42");
    let guard = lock.acquire().await?;
    guard.renew().await?;
    assert!(domain.inspect("orders/42").await?.is_held());
    assert_eq!(domain.list("orders").await?.len(), 1);
    assert!(!other.lock("orders/42").try_acquire().await?.is_acquired());
    let waiting = other.lock("orders/42");
    assert!(!waiting.try_acquire_for(Duration::from_millis(200)).await?.is_acquired());
    let waiting = tokio::spawn(async move { waiting.acquire().await });
    until("somebody waits", || {
        waiting.is_finished() || server.command(&["ZCARD", "{tenure:orders/42}:queue"]).int() == 1
    })
    .await;
    guard.release().await?;
    let guard = waiting.await.expect("no panic")?;
    let guard = guard.detach().await?.adopt(&domain).await?;
    let newer = lock.take_over().await?;
    let holder = domain.inspect("orders/42").await?.holder.expect("it is held");
    assert_eq!(domain.break_lock("orders/42", &holder).await?, Release::Released);
    drop((guard, newer));
    let mut warnings = domain.health().await?.warnings;
    warnings.extend(other.health().await?.warnings);
    until_clean(server).await;
    Ok(warnings)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_with_exactly_what_is_needed() {
    let (server, url) = server_for(&NEEDED);
    let warnings = use_everything(&server, &url).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(warnings, [""; 0]);
    let denied = server.command(&["ACL", "LOG"]);
    assert!(denied.items().is_empty(), "nothing else was tried: {denied:?}");
}

// A rule that is longer than it must be would be copied for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_permission_is_needed() {
    let mut unneeded = Vec::new();
    for left_out in NEEDED {
        let rules: Vec<&str> = NEEDED.into_iter().filter(|rule| *rule != left_out).collect();
        let (server, url) = server_for(&rules);
        match use_everything(&server, &url).await {
            Err(error) => {
                let is_dispensable = DISPENSABLE.contains(&left_out);
                assert!(!is_dispensable, "{left_out} can be left out: {error}");
                assert_eq!(error.kind(), tenure::ErrorKind::Denied, "{left_out}: {error}");
            }
            Ok(_) if DISPENSABLE.contains(&left_out) => {}
            Ok(_) => unneeded.push(left_out),
        }
    }
    assert_eq!(unneeded, [""; 0], "not needed");
}

// R0.8: what a user may not know is not warned of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_info_nothing_is_said_of_the_server() {
    let rules: Vec<&str> = NEEDED.into_iter().filter(|rule| *rule != "+info").collect();
    let (server, url) = server_for(&rules);
    let warnings = use_everything(&server, &url).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(warnings, [""; 0]);
}
