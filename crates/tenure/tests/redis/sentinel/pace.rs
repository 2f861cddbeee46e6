//! Waiting for replicas holds up nobody else: it has a connection of its own, and is done once for all who ask meanwhile.

use std::time::{Duration, Instant};

use tenure::Domain;
use tenure_testkit::patience::{PATIENCE, until};
use tenure_testkit::redis::{RedisServer, Trio};
use tenure_testkit::soak;

const TASKS: usize = 64;

fn field(server: &RedisServer, section: &str, field: &str) -> u64 {
    let info = server.question(&["INFO", section]).text();
    let value = info.lines().find_map(|line| line.strip_prefix(field)).unwrap_or("0");
    value.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0)
}

/// How often replicas were waited for.
pub(super) fn waits(trio: &Trio) -> u64 {
    field(trio.master(), "commandstats", "cmdstat_wait:calls=")
}

/// How many grants the tasks got, each on a name of its own.
async fn grants(domain: &Domain, length: Duration) -> u64 {
    let end = Instant::now() + length;
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let lock = domain.lock(format!("orders/{task}"));
            tokio::spawn(async move {
                let mut grants = 0;
                while Instant::now() < end {
                    lock.acquire().await.expect("two replicas").release().await.expect("a master");
                    grants += 1;
                }
                grants
            })
        })
        .collect();
    let mut grants = 0;
    for task in tasks {
        grants += task.await.expect("no panic");
    }
    grants
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_names_wait_for_replicas_together() {
    let trio = Trio::builder().down_after(Duration::from_secs(60)).start();
    let length = soak::length(1);
    for replicas in ["", "&replicas=1", "&replicas=all"] {
        let domain = Domain::open(format!("{}?ttl=10s{replicas}", trio.url())).await.expect("a master");
        let (before, begin) = (waits(&trio), Instant::now());
        let grants = grants(&domain, length).await;
        let waits = waits(&trio) - before;
        let pace = grants as f64 / begin.elapsed().as_secs_f64();
        println!("{TASKS} tasks{replicas}: {pace:.0} grants/s, {waits} WAIT for {grants} grants");
        assert_eq!(waits == 0, replicas.is_empty());
        assert!(waits < grants, "one for several: {waits} for {grants}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_do_not_wait_for_the_replicas_of_others() {
    let trio = Trio::builder().down_after(Duration::from_secs(600)).start();
    // A quarter of that is how long replicas are waited for.
    let domain =
        Domain::open(format!("{}?timeout=80s&ttl=10m&replicas=all", trio.url())).await.expect("a master");
    let held = domain.lock("orders/1").acquire().await.expect("two replicas");
    let master = trio.master().port();
    let away = trio.servers().iter().find(|server| server.port() != master).expect("a replica");
    away.stop();
    let asks = domain.clone();
    let asking = tokio::spawn(async move { asks.lock("orders/2").acquire().await });
    let is_waited_for = || field(trio.master(), "clients", "blocked_clients:") > 0;
    until("replicas are waited for", is_waited_for).await;
    let begin = Instant::now();
    assert!(domain.inspect("orders/2").await.expect("a master").holder.is_some());
    held.release().await.expect("a master");
    assert!(!domain.inspect("orders/1").await.expect("a master").is_held());
    assert!(is_waited_for(), "all that was done meanwhile, after {:?}", begin.elapsed());
    away.cont();
    let acquired = tokio::time::timeout(PATIENCE, asking).await.expect("an answer").expect("no panic");
    drop(acquired.expect("both replicas are back"));
}
