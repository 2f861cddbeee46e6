//! Grants that are heard at another server than the one that gives names away: a replica, or a stranger. Nobody there is counted by the
//! server that grants, so nobody there may be told.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tenure::Domain;
use tenure_testkit::redis::RedisServer;
use tokio::net::{TcpListener, TcpStream};

use super::scene::{BEATS, KEY, LONG, NAME, QUEUE, eventually, granted};

fn replica_of(master: &RedisServer) -> RedisServer {
    let at = format!("127.0.0.1 {}", master.port());
    RedisServer::builder().config("replicaof", &at).config("repl-ping-replica-period", "1").start()
}

async fn until_followed(master: &RedisServer) {
    eventually(async || master.question(&["INFO", "replication"]).text().contains("state=online")).await;
}

fn role(server: &RedisServer) -> String {
    server.question(&["ROLE"]).items()[0].text()
}

fn has_beat(server: &RedisServer, ending: &str) -> bool {
    let beats = server.command(&["HVALS", BEATS]);
    beats.items().iter().any(|beat| beat.text().ends_with(ending))
}

/// How often a command was executed.
fn calls(server: &RedisServer, command: &str) -> u64 {
    let stats = server.question(&["INFO", "commandstats"]).text();
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
}

// I1: a master is demoted while its waiters are connected to it, and the name is released at its successor. That one sees no waiter, so
// the name is free there, and no waiter may believe anything else.
async fn a_master_is_demoted(is_broken: bool) {
    let old = RedisServer::start();
    let new = replica_of(&old);
    until_followed(&old).await;
    let (holder, waiter) = (Domain::open(old.url()).await, Domain::open(old.url()).await);
    let (holder, waiter) = (holder.expect("a master"), waiter.expect("a master"));
    let held = holder.lock(NAME).ttl(LONG).acquire().await.expect("a master");
    let waits = tokio::spawn({
        let lock = waiter.lock(NAME).ttl(LONG);
        async move { lock.acquire().await }
    });
    eventually(async || has_beat(&old, " 0")).await;
    let ticket = held.detach().await.expect("a master");
    let channels = old.command(&["PUBSUB", "CHANNELS", "tenure:grants:*"]);
    let mut listener = old.client().expect("a connection");
    listener.command(&["SUBSCRIBE", &channels.items()[0].text()]).expect("a server");

    assert_eq!(old.command(&["FAILOVER"]).text(), "OK");
    eventually(async || role(&old) == "slave" && role(&new) == "master").await;
    until_followed(&new).await;
    let successor = Domain::open(new.url()).await.expect("a master");
    let held = ticket.adopt(&successor).await.expect("the lease is known there");
    // As if the failover had taken no time: a waiter that was silent for too long is told nothing anyway.
    let (time, queue) = (new.command(&["TIME"]), new.command(&["ZRANGE", QUEUE, "0", "-1"]));
    let beat = format!("{}{:0>6} 60000 0", time.items()[0].text(), time.items()[1].text());
    assert_eq!(new.command(&["HSET", BEATS, &queue.items()[0].text(), &beat]).int(), 0);
    if is_broken {
        let holder = successor.inspect(NAME).await.expect("a master").holder.expect("a holder");
        successor.break_lock(NAME, &holder).await.expect("a master");
    } else {
        held.release().await.expect("a master");
    }
    eventually(async || old.command(&["EXISTS", KEY]).int() == 0).await;
    let next = successor.lock(NAME).ttl(LONG).acquire().await.expect("nobody is waiting there");

    eventually(async || old.command(&["EXISTS", KEY]).int() == 1).await;
    assert!(next.is_held() && !waits.is_finished(), "it runs beside the holder, or gave up");
    // What comes first is the answer to this, and not a grant.
    let answer = listener.command(&["PING"]).expect("a server");
    assert_eq!(answer.items()[0].text(), "pong", "{answer:?}");
    waits.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_is_not_heard_at_a_demoted_master() {
    a_master_is_demoted(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_break_is_not_heard_at_a_demoted_master() {
    a_master_is_demoted(true).await;
}

/// Passes connections on: those with these numbers to the second server, all others to the first.
async fn fork(servers: [&RedisServer; 2], astray: std::ops::Range<usize>) -> (SocketAddr, Arc<AtomicUsize>) {
    let ports = servers.map(RedisServer::port);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (address, accepted) = (listener.local_addr().expect("a port"), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&accepted);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let is_astray = astray.contains(&count.fetch_add(1, Ordering::AcqRel));
            tokio::spawn(async move {
                let mut server = TcpStream::connect(("127.0.0.1", ports[usize::from(is_astray)])).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    (address, accepted)
}

/// A name of several servers leads the commands to one, and whoever listens to another, at first.
async fn listens_where_it_asks(master: &RedisServer, other: &RedisServer) {
    let (address, accepted) = fork([master, other], 1..4).await;
    let holder = Domain::open(master.url()).await.expect("a master");
    let held = holder.lock(NAME).ttl(LONG).acquire().await.expect("a master");
    let waiter = Domain::open(format!("redis://{address}")).await.expect("a master");
    let lock = waiter.lock(NAME).ttl(LONG);
    let waits = tokio::spawn(async move { lock.acquire().await.expect("a master") });
    eventually(async || has_beat(master, " 0")).await;
    assert!(accepted.load(Ordering::Acquire) > 4, "it listens though it was led astray");
    assert_eq!((calls(master, "subscribe"), calls(other, "subscribe")), (1, 0));
    held.release().await.expect("a master");
    drop(granted(waits).await);
}

// I1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_listens_at_a_replica() {
    let master = RedisServer::start();
    let replica = replica_of(&master);
    until_followed(&master).await;
    listens_where_it_asks(&master, &replica).await;
}

// The same
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_listens_at_another_master() {
    listens_where_it_asks(&RedisServer::start(), &RedisServer::start()).await;
}
