//! Waiting for replicas holds up nobody else: it has a connection of its own, and is done once for all who ask meanwhile.

use std::time::{Duration, Instant};

use tenure::Domain;
use tenure_testkit::patience::{PATIENCE, until};
use tenure_testkit::redis::{Client, Trio};
use tenure_testkit::soak;

const TASKS: usize = 64;

fn number(info: &str, field: &str) -> u64 {
    let value = info.lines().find_map(|line| line.strip_prefix(field)).unwrap_or("0");
    value.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0)
}

/// How often replicas were waited for.
pub(super) fn waits(trio: &Trio) -> u64 {
    number(&trio.master().question(&["INFO", "commandstats"]).text(), "cmdstat_wait:calls=")
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
    let trio = Trio::start();
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

/// A connection to the master that is there before and stays, for questions.
struct Asker(Client);

impl Asker {
    fn config(&mut self, option: &str, value: u64) {
        let said = self.0.command(&["CONFIG", "SET", option, &value.to_string()]);
        assert_eq!(said.expect("a reply").text(), "OK");
    }

    fn field(&mut self, section: &str, field: &str) -> u64 {
        let info = self.0.command(&["INFO", section]).expect("a reply").text();
        number(&info, field)
    }

    fn are_waited_for(&mut self) -> bool {
        self.field("clients", "blocked_clients:") > 0
    }
}

/// A name is asked for while a replica is away, which `harm` and `heal` may make harder; meanwhile, all else is answered.
async fn others_are_answered(harm: impl FnOnce(&mut Asker), heal: impl FnOnce(&mut Asker)) {
    let trio = Trio::builder().down_after(Duration::from_secs(600)).start();
    // A quarter of that is how long replicas are waited for.
    let url = format!("{}?timeout=80s&ttl=10m&replicas=all", trio.url());
    let domain = Domain::open(&url).await.expect("a master");
    let other = Domain::open(&url).await.expect("a master");
    let held = other.lock("orders/1").acquire().await.expect("two replicas");
    let mut asker = Asker(trio.master().client().expect("a master"));
    let master = trio.master().port();
    let away = trio.servers().iter().find(|server| server.port() != master).expect("a replica");
    away.stop();
    harm(&mut asker);
    let asks = domain.clone();
    let asking = tokio::spawn(async move { asks.lock("orders/2").acquire().await });
    heal(&mut asker);
    until("replicas are waited for", || asker.are_waited_for()).await;
    let begin = Instant::now();
    assert!(domain.inspect("orders/2").await.expect("a master").is_held(), "after {:?}", begin.elapsed());
    held.release().await.expect("a master");
    assert!(!domain.inspect("orders/1").await.expect("a master").is_held());
    assert!(asker.are_waited_for(), "all that was done meanwhile, after {:?}", begin.elapsed());
    away.cont();
    let acquired = tokio::time::timeout(PATIENCE, asking).await.expect("an answer").expect("no panic");
    drop(acquired.expect("both replicas are back"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_do_not_wait_for_the_replicas_of_others() {
    others_are_answered(|_| (), |_| ()).await;
}

/// Nor when the connection for that can't be made at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_refused_is_tried_again() {
    let full = |asker: &mut Asker| {
        let connected = asker.field("clients", "connected_clients:");
        asker.config("maxclients", connected);
    };
    let free = |asker: &mut Asker| {
        let begin = Instant::now();
        while asker.field("stats", "rejected_connections:") == 0 {
            assert!(begin.elapsed() < PATIENCE, "no connection was refused");
        }
        asker.config("maxclients", 1_000);
    };
    others_are_answered(full, free).await;
}
