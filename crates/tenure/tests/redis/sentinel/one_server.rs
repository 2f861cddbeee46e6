//! `?replicas=` of a server that the URL names itself: nobody but the server knows how many replicas there are.

use std::time::Duration;

use tenure::{Domain, Error};
use tenure_testkit::patience::until;
use tenure_testkit::redis::{Proxy, RedisServer};

use crate::redis::hygiene::traces::until_clean;

fn replica_of(master: &RedisServer) -> RedisServer {
    let at = format!("127.0.0.1 {}", master.port());
    RedisServer::builder().config("replicaof", &at).config("repl-ping-replica-period", "1").start()
}

/// Waits until so many follow, and acknowledge.
async fn until_online(master: &RedisServer, replicas: usize) {
    let follow = || master.question(&["INFO", "replication"]).text().matches("state=online").count();
    until("replicas are online", || follow() == replicas).await;
    let mut client = master.client().expect("a connection");
    client.command(&["SET", "a", "1"]).expect("a server");
    let wait = client.command(&["WAIT", &replicas.to_string(), "20000"]);
    assert_eq!(usize::try_from(wait.expect("a server").int()), Ok(replicas));
}

async fn open(master: &RedisServer, replicas: &str) -> Domain {
    Domain::open(format!("{}?ttl=10m&timeout=1s&replicas={replicas}", master.url())).await.expect("a server")
}

async fn take(domain: &Domain) -> Result<(), Error> {
    domain.lock("orders/42").run(async |_| ()).await.map(drop)
}

#[track_caller]
fn assert_short(taken: Result<(), Error>, acknowledged: u64, needed: u64) {
    let error = taken.expect_err("too few");
    let short = error.too_few_replicas().unwrap_or_else(|| panic!("not for want of replicas: {error}"));
    assert_eq!((short.acknowledged(), short.needed()), (acknowledged, needed));
}

// R4.4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_are_the_most_that_there_ever_were() {
    let master = RedisServer::start();
    let none = open(&master, "all").await;
    assert_short(take(&none).await, 0, 1);
    let replicas = [replica_of(&master), replica_of(&master)];
    until_online(&master, 2).await;
    let (one, all, three) = (open(&master, "1").await, open(&master, "all").await, open(&master, "3").await);
    for domain in [&one, &all, &none] {
        take(domain).await.expect("both are there");
    }
    assert_short(take(&three).await, 2, 3);

    // Connections come and go: those of commands, and those on which replicas are waited for.
    master.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    take(&all).await.expect("both are there");

    replicas[0].kill();
    until_online(&master, 1).await;
    take(&one).await.expect("one is there");
    assert_short(take(&all).await, 1, 2);
    until_clean(&master).await;
    let later = open(&master, "all").await;
    take(&later).await.expect("it never saw more than one");
}

// B1: the limit of `replicas`. A master that is back without its data, before another has taken its place, is copied by its replicas:
// then all of them have forgotten the lease. Fences still grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_back_empty_empties_its_replicas() {
    let master = RedisServer::start();
    let _replica = replica_of(&master);
    until_online(&master, 1).await;
    let proxy = Proxy::new(&master);
    let url = format!("redis://127.0.0.1:{}?ttl=10m&timeout=1s&replicas=all", proxy.port());
    let cut_off = Domain::open(url).await.expect("a server");
    let guard = cut_off.lock("orders/42").acquire().await.expect("the replica is there");
    proxy.cut();
    master.restart();
    until_online(&master, 1).await;
    let next = open(&master, "all").await.lock("orders/42").acquire().await.expect("it is forgotten");
    assert!(guard.is_held(), "it can't know, and its time is not over");
    assert!(next.fence() > guard.fence());
}

// A user who may not ask INFO: it is not known to which run of the server another connection leads, so there is none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_info_they_are_waited_for_among_the_commands() {
    let master = RedisServer::start();
    let replica = replica_of(&master);
    until_online(&master, 1).await;
    let bob = ["ACL", "SETUSER", "bob", "reset", "on", ">secret", "allkeys", "allchannels", "+@all", "-info"];
    assert_eq!(master.command(&bob).text(), "OK");
    let proxy = Proxy::new(&master);
    let url = format!("redis://bob:secret@127.0.0.1:{}?ttl=10m&timeout=1s&replicas=1", proxy.port());
    let domain = Domain::open(url).await.expect("a server");
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let lock = domain.lock(format!("orders/{task}"));
            tokio::spawn(async move { lock.run(async |_| ()).await.map(drop) })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic").expect("it is there");
    }
    assert_eq!(proxy.accepted(), 1, "and none was made in vain");
    replica.stop();
    assert_short(take(&domain).await, 0, 1);
    replica.cont();
    let begin = std::time::Instant::now();
    while take(&domain).await.is_err() {
        assert!(begin.elapsed() < Duration::from_secs(20), "it is back");
    }
}
