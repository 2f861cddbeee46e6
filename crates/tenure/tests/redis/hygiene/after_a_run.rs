//! Many names, waiters, and waiters that give up, are cancelled, or see their domain dropped or closed; then what is left is counted:
//! keys on the server, connections, tasks of the runtime.

use std::sync::Arc;
use std::time::Duration;

use tenure::Domain;
use tenure_testkit::dice::Dice;
use tenure_testkit::patience::until;
use tenure_testkit::redis::{Proxy, RedisServer, Step};
use tokio::runtime::Handle;

use super::traces::{all_keys, until_clean};
use crate::redis::answers::operation::Operation;

/// What is left of a fence's key at the most: the default ttl and `fence_memory`, in ms.
const FENCE_LIFE: i64 = 10_000 + 600_000;
const MINUTE: i64 = 60_000;
const NAMES: u64 = 40;
const TASKS: u64 = 24;
const TURNS: u64 = 12;

fn alive() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// What one task does: waits, gives up, is cancelled, holds, or walks away.
async fn wander(domain: Domain, seed: u64) {
    let mut dice = Dice(seed * 7_919 + 1);
    for _ in 0..TURNS {
        let lock = domain.lock(format!("orders/{}", dice.roll(NAMES)));
        match dice.roll(5) {
            0 => drop(lock.try_acquire().await.expect("it runs")),
            // Too little time for an answer, at times.
            1 => drop(lock.try_acquire_for(Duration::from_millis(dice.roll(8))).await),
            2 => {
                let cancelled =
                    tokio::time::timeout(Duration::from_millis(dice.roll(8)), lock.acquire()).await;
                drop(cancelled);
            }
            3 => {
                let guard = lock.acquire().await.expect("it runs");
                tokio::time::sleep(Duration::from_millis(dice.roll(15))).await;
                guard.release().await.expect("it runs");
            }
            _ => {
                let guard = lock.acquire().await.expect("it runs");
                tokio::time::sleep(Duration::from_millis(dice.roll(4))).await;
                drop(guard);
            }
        }
    }
}

async fn run(domains: &[Domain]) {
    let tasks: Vec<_> = (0..TASKS)
        .map(|seed| {
            let domain = domains[usize::try_from(seed).expect("a small number") % domains.len()].clone();
            tokio::spawn(wander(domain, seed))
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
}

// L2 of the oracle: everything returns to the baseline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_leaves_nothing_behind() {
    let server = RedisServer::start();
    let proxy = Arc::new(Proxy::new(&server));
    let before = alive();
    let mut domains = Vec::new();
    for _ in 0..3 {
        domains.push(Domain::open(proxy.url()).await.expect("it runs"));
    }
    let opened = alive();
    assert_eq!(proxy.connections(), 3, "one for each domain");
    run(&domains).await;
    assert!(proxy.accepted() > 3, "somebody waited, and subscribed");

    until_clean(&server).await;
    let left = all_keys(&server);
    assert!(left.len() > 10 && left.iter().all(|key| key.ends_with("}:fence")), "{left:?}");
    for key in &left {
        let life = server.command(&["PTTL", key]).int();
        assert!(life > 0 && life <= FENCE_LIFE, "{key} lives for {life} ms");
    }
    // Nobody waits: the subscription ends, after a while in which another might have come.
    until("one connection for each domain is left", || proxy.connections() == 3).await;
    // A keeper for each, and nothing for any name.
    until("the tasks of names have ended", || alive() <= opened + domains.len()).await;
    let _ = domains[0].lock("orders/1").run(async |_| ()).await.expect("it can be used again");

    drop(domains);
    until("no connection is left", || proxy.connections() == 0).await;
    until("no task is left", || alive() <= before).await;
}

// Ten minutes after the lease would have ended there is nothing at all.
#[tokio::test]
async fn fences_are_gone_after_ten_minutes() {
    let server = RedisServer::builder().clock().start();
    let domain = Domain::open(server.url()).await.expect("it runs");
    let _ = domain.lock("orders/42").run(async |_| ()).await.expect("it runs");
    assert_eq!(all_keys(&server), ["{tenure:orders/42}:fence"]);
    server.set_clock_offset((FENCE_LIFE + 1_000) * 1_000);
    until("the fence has expired", || all_keys(&server).is_empty()).await;
}

// R4.2: what was ended by force is remembered for a minute, and only by those who used force.
#[tokio::test]
async fn a_trace_of_force_is_gone_after_a_minute() {
    let server = RedisServer::builder().clock().start();
    let domain = Domain::open(server.url()).await.expect("it runs");
    let guard = domain.lock("orders/42").acquire().await.expect("it is free");
    let taken = domain.lock("orders/42").take_over().await.expect("it runs");
    let broken = "{tenure:orders/42}:broken";
    assert_eq!(server.command(&["GET", broken]).text(), guard.fence().to_string());
    let life = server.command(&["PTTL", broken]).int();
    assert!(life > 0 && life <= MINUTE, "{life} ms");
    drop(guard);
    taken.release().await.expect("it runs");
    assert_eq!(all_keys(&server), [broken, "{tenure:orders/42}:fence"]);
    server.set_clock_offset((MINUTE + 1_000) * 1_000);
    until("the trace has expired", || all_keys(&server) == ["{tenure:orders/42}:fence"]).await;
    assert_eq!(domain.inspect("orders/42").await.expect("it runs").broken, None);
}

// R4.2, B2: to look at many names costs a few round trips, and the server tracks none of them.
#[tokio::test]
async fn a_list_of_many_names_asks_in_batches() {
    let server = RedisServer::start();
    let holder = Domain::open(server.url()).await.expect("it runs");
    let mut guards = Vec::new();
    for number in 0..300 {
        let lock = holder.lock(format!("orders/{number:03}")).ttl(Duration::from_secs(600)).no_renewal();
        guards.push(lock.acquire().await.expect("it is free"));
    }
    let watcher = Domain::open(server.url()).await.expect("it runs");
    // From here on the scripts are known.
    assert_eq!(watcher.list("orders/00").await.expect("it runs").len(), 10);
    let count = |section: &str, field: &str| -> i64 {
        let info = server.question(&["INFO", section]).text();
        let value = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.expect("a field of INFO").parse().expect("a number")
    };
    // A key is tracked once for each client that has it tracked.
    until("each lease is tracked by its holder", || count("stats", "tracking_total_items") == 300).await;
    let reads = count("stats", "total_reads_processed");
    let names: Vec<_> =
        watcher.list("").await.expect("it runs").into_iter().map(|status| status.name).collect();
    let reads = count("stats", "total_reads_processed") - reads;
    assert_eq!(names, (0..300).map(|number| format!("orders/{number:03}")).collect::<Vec<_>>());
    assert!(reads < 60, "{reads} reads for 300 names");
    assert_eq!(count("stats", "tracking_total_items"), 300, "who looks has nothing tracked");
}

// B1: a lease that is held for days has its fence at the end of them.
#[tokio::test]
async fn a_fence_outlives_its_lease() {
    let server = RedisServer::start();
    let domain = Domain::open(server.url()).await.expect("it runs");
    let guard = domain.lock("orders/42").acquire().await.expect("it is free");
    server.command(&["PEXPIRE", "{tenure:orders/42}:fence", "60000"]);
    guard.renew().await.expect("it is ours");
    assert!(server.command(&["PTTL", "{tenure:orders/42}:fence"]).int() > 60_000, "a renewal keeps it");
    let holder = domain.inspect("orders/42").await.expect("it runs").holder.expect("it is held");
    assert_eq!(holder.fence, guard.fence());
}

// R3.5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_waits_in_a_domain_that_is_closed_leaves_nothing_behind() {
    let server = RedisServer::start();
    let proxy = Proxy::new(&server);
    let before = alive();
    let domain = Domain::open(proxy.url()).await.expect("it runs");
    let other = Domain::open(server.url()).await.expect("it runs");
    let held = other.lock("orders/42").acquire().await.expect("a free name");
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let lock = domain.lock("orders/42");
            tokio::spawn(async move { lock.acquire().await.map(drop) })
        })
        .collect();
    // Not on their way any longer: an acquire that is still being answered leaves when it has its answer.
    proxy.seen_async(Step::Received, |words| Operation::Beat.is(words)).await;
    assert_eq!(server.command(&["ZCARD", "{tenure:orders/42}:queue"]).int(), 1);
    domain.close().await;
    for waiting in waiting {
        assert!(waiting.await.expect("no panic").is_err(), "closed");
    }
    assert_eq!(
        server.command(&["EXISTS", "{tenure:orders/42}:queue"]).int(),
        0,
        "taken back before close returns"
    );
    drop(domain);
    until("no connection is left", || proxy.connections() == 0).await;
    held.release().await.expect("it runs");
    drop(other);
    until("no task is left", || alive() <= before).await;
    until_clean(&server).await;
}

// R3.5: the last handle may be a guard, or an acquire under way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_that_outlives_its_domain_ends_everything() {
    let server = RedisServer::start();
    let proxy = Proxy::new(&server);
    let before = alive();
    let domain = Domain::open(proxy.url()).await.expect("it runs");
    let guard = domain.lock("orders/42").acquire().await.expect("a free name");
    drop(domain);
    guard.renew().await.expect("it is held");
    assert_eq!(proxy.connections(), 1);
    drop(guard);
    until("no connection is left", || proxy.connections() == 0).await;
    until("no task is left", || alive() <= before).await;
    until_clean(&server).await;
}
