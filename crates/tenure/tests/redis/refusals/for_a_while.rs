//! A server that executes nothing for a while, and says so: LOADING, BUSY. It will soon, so that whoever asks is not told at once.

use std::cell::OnceCell;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tenure::{Domain, ErrorKind};
use tenure_testkit::patience::until;
use tenure_testkit::redis::{Client, RedisServer};

use super::endurance::{Refusal, acquire, is_cut_short};

const NOT_NOW: Refusal =
    Refusal { kind: ErrorKind::Unavailable, says: &[], is_asked_again: true, spares_holders: false };

fn busy_server() -> RedisServer {
    RedisServer::builder().config("busy-reply-threshold", "1").start()
}

/// Runs a script that never ends; returns when the server refuses everything else.
fn be_busy(server: &RedisServer) {
    let mut client = server.client().expect("a server that answers");
    client.send(&["EVAL", "while true do end", "0"]).expect("a server that reads");
    wait_for(server, "BUSY");
    // Its end is not waited for: it is killed.
    std::mem::forget(client);
}

fn be_idle(server: &RedisServer) {
    assert_eq!(server.command(&["SCRIPT", "KILL"]).text(), "OK");
    while server.command(&["GET", "a"]).is_error("BUSY") {
        thread::yield_now();
    }
}

fn wait_until_loaded(server: &RedisServer) {
    while server.command(&["GET", "a"]).is_error("LOADING") {
        thread::yield_now();
    }
}

fn wait_for(server: &RedisServer, code: &str) {
    while !server.command(&["GET", "a"]).is_error(code) {
        thread::yield_now();
    }
}

/// A server that loads what it has for as long as `keys` take, at 10 ms each.
fn slow_loader(keys: u32) -> RedisServer {
    let server = RedisServer::builder()
        .config("key-load-delay", "10000")
        // It looks at its clients after each key.
        .config("loading-process-events-interval-bytes", "1024")
        .config("rdbcompression", "no")
        .start();
    server.command(&["DEBUG", "POPULATE", &keys.to_string(), "ballast", "1100"]);
    server
}

/// Loads everything again; returns when the server has begun, with what ends when it has ended.
fn load(server: &RedisServer) -> JoinHandle<()> {
    let mut client: Client = server.client().expect("a server that answers");
    let loading = thread::spawn(move || {
        assert_eq!(client.command(&["DEBUG", "RELOAD"]).expect("a server that reloads").text(), "OK");
    });
    wait_for(server, "LOADING");
    loading
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_busy() {
    let server = busy_server();
    let refusal = Refusal { says: &["BUSY", "at the moment", "try again"], ..NOT_NOW };
    let (refuse, relent) = (|| be_busy(&server), || be_idle(&server));
    let url = format!("{}?timeout=300ms", server.url());
    refusal.is_endured(&server, &url, refuse, relent).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loads() {
    let server = slow_loader(400);
    let loading = OnceCell::new();
    let url = format!("{}?timeout=300ms", server.url());
    let refusal = Refusal { says: &["LOADING", "at the moment", "try again"], ..NOT_NOW };
    let refuse = || drop(loading.set(load(&server)));
    let relent = || wait_until_loaded(&server);
    refusal.is_endured(&server, &url, refuse, relent).await;
    loading.into_inner().expect("it began").join().expect("it ended");
}

// The request is sent again, and nobody is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_refusal_is_not_noticed() {
    let server = busy_server();
    let domain = Domain::open(server.url()).await.expect("a server that answers");
    let held = acquire(&domain, "held").await;
    be_busy(&server);
    let lock = domain.lock("orders/42").ttl(Duration::from_secs(60));
    let asking = tokio::spawn(async move { lock.acquire().await });
    let renewing = tokio::spawn(async move { held.renew().await.map(|()| held) });
    let inspecting = tokio::spawn({
        let domain = domain.clone();
        async move { domain.inspect("held").await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!asking.is_finished() && !renewing.is_finished() && !inspecting.is_finished());
    be_idle(&server);
    let acquired = asking.await.expect("no panic").expect("it was sent again");
    let renewed = renewing.await.expect("no panic").expect("it was sent again");
    assert!(inspecting.await.expect("no panic").expect("it was sent again").is_held());
    assert!(acquired.is_held() && renewed.is_held());
}

// R0.3: an outage at start is not remembered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_domain_is_opened_on_a_server_that_loads() {
    let server = slow_loader(100);
    let loading = load(&server);
    let domain = Domain::open(format!("{}?timeout=400ms", server.url())).await.expect("it is there");
    let error = domain.lock("orders/42").acquire().await.expect_err("it executes nothing");
    assert!(error.is_transient(), "{error}");
    assert!(error.to_string().contains("LOADING") || is_cut_short(&error), "{error}");
    loading.join().expect("it ended");
    acquire(&domain, "orders/42").await.release().await.expect("it is there");
    until("nothing is held", || server.command(&["EXISTS", "tenure:orders/42"]).int() == 0).await;
}
