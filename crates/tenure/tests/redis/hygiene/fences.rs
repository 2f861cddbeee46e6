//! What is remembered of a name after its last use: its last fence, for `fence_memory`, and how much memory that takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure::{Domain, Guard};
use tenure_testkit::patience::until;
use tenure_testkit::redis::RedisServer;

use super::traces::all_keys;

const NAME: &str = "orders/42";
const FENCE: &str = "{tenure:orders/42}:fence";
const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3_600 * SECOND;
/// The default, in seconds.
const TTL: i64 = 10;

/// A client that has seen no fence yet, and whose fences are remembered for a minute.
async fn newcomer(server: &RedisServer) -> Domain {
    Domain::open(format!("{}?fence_memory=1m", server.url())).await.expect("it runs")
}

async fn acquire(server: &RedisServer) -> Guard {
    newcomer(server).await.lock(NAME).acquire().await.expect("it is free")
}

async fn used(server: &RedisServer) -> u64 {
    let guard = acquire(server).await;
    let fence = guard.fence().get();
    guard.release().await.expect("it runs");
    fence
}

fn seconds_left(server: &RedisServer) -> i64 {
    server.command(&["PTTL", FENCE]).int() / 1_000
}

// R2.9: the real expiry of the key, whichever way the name is used.
#[tokio::test]
async fn a_fence_is_remembered_for_a_ttl_and_what_the_url_says() {
    let server = RedisServer::start();
    let is_a_minute = |ttl: i64, what: &str| {
        let left = seconds_left(&server);
        // A busy machine may take a while until it looks.
        assert!((ttl + 40..=ttl + 60).contains(&left), "{what}: {left} s left");
    };
    let guard = acquire(&server).await;
    is_a_minute(TTL, "taken");
    guard.renew().await.expect("it runs");
    is_a_minute(TTL, "renewed");
    let taken = newcomer(&server).await.lock(NAME).take_over().await.expect("it runs");
    is_a_minute(TTL, "taken over");
    let ticket = taken.detach().await.expect("it runs");
    let adopted = ticket.adopt(&newcomer(&server).await).await.expect("it runs");
    is_a_minute(TTL, "adopted");
    let other = newcomer(&server).await;
    let lock = other.lock(NAME).ttl(Duration::from_secs(600));
    let waiter = tokio::spawn(async move { lock.acquire().await.expect("to be granted") });
    until("it waits", || all_keys(&server).iter().any(|key| key.ends_with("}:queue"))).await;
    adopted.release().await.expect("it runs");
    let guard = waiter.await.expect("no panic");
    guard.renew().await.expect("it runs");
    is_a_minute(600, "handed over and renewed");
    guard.release().await.expect("it runs");
    is_a_minute(600, "given back");
}

// I3: the name is used, its fence is forgotten, and then the clock is set back by what it was remembered for.
#[tokio::test]
async fn no_fence_goes_back_with_a_clock_that_is_set_back_by_less_than_it_is_remembered() {
    let server = RedisServer::builder().clock().start();
    let first = used(&server).await;
    server.set_clock_offset((TTL + 60 + 1) * SECOND);
    until("the fence is forgotten", || all_keys(&server).is_empty()).await;
    server.set_clock_offset((TTL + 1) * SECOND);
    assert!(used(&server).await > first);
}

// I3: a name that stays in use keeps its fence, however far the clock is set back: the step lengthens the life of the key.
#[tokio::test]
async fn fences_of_a_name_in_use_grow_while_the_clock_is_set_back_again_and_again() {
    let server = RedisServer::builder().clock().start();
    let mut last = used(&server).await;
    for hours in 1..=3 {
        server.set_clock_offset(-hours * HOUR);
        for _ in 0..2 {
            let fence = used(&server).await;
            assert!(fence > last, "{fence} after {last}, {hours} h back");
            last = fence;
        }
    }
}

// I3: fences that are ahead of the clock are remembered until the clock has passed them, renewed or not.
#[tokio::test]
async fn a_fence_ahead_of_the_clock_is_remembered_until_the_clock_is_there() {
    let server = RedisServer::builder().clock().start();
    server.set_clock_offset(HOUR);
    used(&server).await;
    server.set_clock_offset(0);
    for is_renewed in [false, true] {
        let guard = acquire(&server).await;
        let fence = guard.fence().get();
        if is_renewed {
            guard.renew().await.expect("it runs");
        }
        guard.release().await.expect("it runs");
        let left = seconds_left(&server);
        assert!(left > 3_600, "forgotten after {left} s, when a lower one would be given");
        assert!(used(&server).await > fence);
    }
}

// What docs/backends/redis.md says of the memory that a used name takes. It is the server's account, not a time: it is the same on every
// machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_used_name_takes_little_memory() {
    const NAMES: u32 = 1 << 14;
    let server = RedisServer::start();
    let domain = newcomer(&server).await;
    let _ = domain.lock("orders/warm").run(async |_| ()).await.expect("it runs");
    let memory = || -> u64 {
        let info = server.command(&["INFO", "memory"]).text();
        let used = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
        used.expect("a field").trim().parse().expect("a number")
    };
    let (before, next) = (memory(), Arc::new(AtomicU32::new(0)));
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let (domain, next) = (domain.clone(), Arc::clone(&next));
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= NAMES {
                        return;
                    }
                    // 18 characters, and 7 of the prefix.
                    let _ =
                        domain.lock(format!("orders/{number:011}")).run(async |_| ()).await.expect("it runs");
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.expect("no panic");
    }
    assert_eq!(server.command(&["DBSIZE"]).int(), i64::from(NAMES) + 1, "one key for each name");
    let bytes = (memory() - before) / u64::from(NAMES);
    println!("{bytes} bytes for each used name, of 18 characters");
    assert!((80..200).contains(&bytes), "{bytes} bytes for each used name");
}
