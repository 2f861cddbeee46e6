//! A server that is there, and refuses whatever changes something: READONLY, OOM, MISCONF, NOREPLICAS.

use tenure::{Domain, ErrorKind};
use tenure_testkit::patience::until;
use tenure_testkit::redis::RedisServer;

use super::endurance::{Refusal, acquire};
use crate::redis::hygiene::traces::{keys, until_clean};

const UNAVAILABLE: Refusal =
    Refusal { kind: ErrorKind::Unavailable, says: &[], is_asked_again: false, spares_holders: false };

fn config(server: &RedisServer, name: &str, value: &str) {
    assert_eq!(server.command(&["CONFIG", "SET", name, value]).text(), "OK");
}

// R0.5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_becomes_a_replica_and_a_master_again() {
    let server = RedisServer::start();
    let refusal = Refusal { says: &["read-only replica", "point the URL at the master"], ..UNAVAILABLE };
    // Nobody listens there: it stays as it is, and serves what it has.
    let refuse = || assert_eq!(server.command(&["REPLICAOF", "127.0.0.1", "1"]).text(), "OK");
    let relent = || assert_eq!(server.command(&["REPLICAOF", "NO", "ONE"]).text(), "OK");
    refusal.is_endured(&server, &server.url(), refuse, relent).await;
}

#[tokio::test]
async fn a_replica_is_refused_from_the_start() {
    let server = RedisServer::builder().config("replicaof", "127.0.0.1 1").start();
    let error = Domain::open(server.url()).await.expect_err("a replica can't hold locks");
    assert!(error.is_transient(), "it may be promoted: {error}");
    assert!(error.to_string().contains(&server.port().to_string()), "{error}");
    server.command(&["REPLICAOF", "NO", "ONE"]);
    Domain::open(server.url()).await.expect("a master");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_memory_lets_holders_go_on() {
    let server = RedisServer::start();
    let says = &["out of memory", "maxmemory", "leases that are held stay held"];
    let refusal = Refusal { says, spares_holders: true, ..UNAVAILABLE };
    let (refuse, relent) = (|| config(&server, "maxmemory", "1"), || config(&server, "maxmemory", "0"));
    refusal.is_endured(&server, &server.url(), refuse, relent).await;
}

// A hand-over needs no more memory than the lease before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_memory_hands_over_and_lets_waiters_leave() {
    let server = RedisServer::start();
    let [domain, first, second] =
        [(); 3].map(|()| Domain::lazy(server.url()).expect("the URL of a server that runs"));
    let held = acquire(&domain, "orders/42").await;
    let queue = ["ZCARD", "{tenure:orders/42}:queue"];
    let next = tokio::spawn(async move { acquire(&first, "orders/42").await });
    until("one waits", || server.command(&queue).int() == 1).await;
    let last = tokio::spawn(async move { acquire(&second, "orders/42").await });
    until("two wait", || server.command(&queue).int() == 2).await;
    config(&server, "maxmemory", "1");
    last.abort();
    until("the last one has left", || server.command(&queue).int() == 1).await;
    held.release().await.expect("a release is not refused");
    let next = next.await.expect("a waiter");
    next.renew().await.expect("a renewal is not refused");
    let holder =
        domain.inspect("orders/42").await.expect("looking is not refused").holder.expect("it is held");
    assert_eq!(
        domain.break_lock("orders/42", &holder).await.expect("ending is not refused"),
        tenure::Release::Released
    );
    assert!(keys(&server).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_can_not_save() {
    let server = RedisServer::builder().config("save", "3600 1").start();
    // What is saved is renamed to this, which is no file.
    let obstacle = server.socket_path().with_file_name("dump.rdb");
    let save = |expected: &str| {
        server.command(&["BGSAVE"]);
        let status = format!("rdb_last_bgsave_status:{expected}");
        while !server.question(&["INFO", "persistence"]).text().contains(&status) {
            std::thread::yield_now();
            server.command(&["BGSAVE"]);
        }
    };
    let refuse = || {
        std::fs::create_dir_all(obstacle.join("full")).expect("a directory");
        save("err");
    };
    let relent = || {
        std::fs::remove_dir_all(&obstacle).expect("it is empty again");
        save("ok");
    };
    let refusal = Refusal { says: &["disk", "MISCONF", "free its disk"], ..UNAVAILABLE };
    refusal.is_endured(&server, &server.url(), refuse, relent).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_its_replicas() {
    let server = RedisServer::start();
    let refusal = Refusal { says: &["replicas", "min-replicas-to-write", "bring them back"], ..UNAVAILABLE };
    let set = |count| config(&server, "min-replicas-to-write", count);
    refusal.is_endured(&server, &server.url(), || set("1"), || set("0")).await;
    until_clean(&server).await;
}
