//! One domain, used from several runtimes: what runs in the background moves on when one of them shuts down.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tenure::Domain;
use tenure_testkit::patience::until;
use tenure_testkit::redis::{Fault, Proxy, RedisServer, Step, named};
use tokio::runtime::{Builder, Runtime};

use crate::redis::hygiene::traces::{until_clean, until_renewed};

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

// R3.5
#[test]
fn a_domain_goes_on_when_one_of_its_runtimes_shuts_down() {
    let server = RedisServer::start();
    let proxy = Proxy::new(&server);
    let domain = Domain::lazy(format!("{}?ttl=3s&timeout=1s", proxy.url())).expect("a valid URL");
    let (first, second) = (runtime(), runtime());
    let early = first.block_on(domain.lock("early").acquire()).expect("a free name");
    let late = second.block_on(domain.lock("late").acquire()).expect("a free name");
    let fence = early.fence();
    // The connection was made on the first one.
    first.shutdown_timeout(Duration::from_secs(5));
    second.block_on(async {
        drop(domain.lock("another").acquire().await.expect("a connection of the runtime that is left"));
        for guard in [&early, &late] {
            until_renewed(guard).await;
            guard.renew().await.expect("it is held");
        }
        early.release().await.expect("it answers");
        let again = domain.lock("early").acquire().await.expect("a free name");
        assert!(again.fence() > fence);
        drop((again, late));
        until_clean(&server).await;
    });
    drop(domain);
    second.block_on(until("no connection is left", || proxy.connections() == 0));
}

// Waiting, too: the subscription was on the runtime that is gone.
#[test]
fn a_waiter_is_served_when_the_runtime_of_the_subscription_is_gone() {
    let server = RedisServer::start();
    let (domain, other) = (Domain::lazy(server.url()), Domain::lazy(server.url()));
    let (domain, other) = (domain.expect("a valid URL"), other.expect("a valid URL"));
    let (first, second) = (runtime(), runtime());
    let held = second.block_on(other.lock("orders/42").acquire()).expect("a free name");
    let queue = ["ZCARD", "{tenure:orders/42}:queue"];
    let lock = domain.lock("orders/42");
    let gone = first.spawn(async move { lock.acquire().await });
    second.block_on(until("one waits", || server.command(&queue).int() == 1));
    let lock = domain.lock("orders/42");
    let waiting = second.spawn(async move { lock.acquire().await });
    second.block_on(until("two wait", || domain.metrics().waiting == 2));
    first.shutdown_timeout(Duration::from_secs(5));
    assert!(gone.is_finished());
    second.block_on(async {
        held.release().await.expect("it answers");
        let guard = waiting.await.expect("no panic").expect("it is its turn");
        drop(guard);
        until_clean(&server).await;
    });
}

// The connection is being made again on the runtime that shuts down, and a request of the other one waits for it.
#[test]
fn a_request_is_served_when_the_runtime_that_was_connecting_is_gone() {
    let server = RedisServer::start();
    let proxy = Proxy::new(&server);
    let domain = Domain::lazy(format!("{}?timeout=5s", proxy.url())).expect("a valid URL");
    let (first, second) = (runtime(), runtime());
    drop(first.block_on(domain.lock("early").acquire()).expect("a free name"));
    second.block_on(until_clean(&server));
    proxy.forget();
    proxy.inject(Fault::DelayReply(Duration::from_secs(60)), 1, named("HELLO"));
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    second.block_on(async {
        proxy.seen_async(Step::Received, named("HELLO")).await;
        let lock = domain.lock("late");
        let mut acquire = pin!(lock.acquire());
        let now = poll_fn(|cx| Poll::Ready(acquire.as_mut().poll(cx))).await;
        assert!(now.is_pending(), "there is no connection");
        first.shutdown_background();
        drop(acquire.await.expect("a connection of the runtime that is left"));
    });
}

// As the tests of a program do that share a domain in a `static`.
#[test]
fn a_runtime_for_each_use() {
    let server = RedisServer::start();
    let domain = Domain::lazy(server.url()).expect("a valid URL");
    for _ in 0..5 {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(domain.lock("orders/42").run(async |_| ())).expect("every runtime can use it");
    }
    assert_eq!(server.command(&["EXISTS", "tenure:orders/42"]).int(), 0);
}
