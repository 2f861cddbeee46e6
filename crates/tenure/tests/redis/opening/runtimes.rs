//! One domain, used from several runtimes: what runs in the background moves on when one of them shuts down.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tenure::{Domain, ErrorKind};
use tenure_testkit::patience::until;
use tenure_testkit::redis::{Fault, Proxy, RedisServer, Step, named};
use tokio::runtime::{Builder, Runtime};

use crate::layered::scene::Machine;
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
        let _ =
            runtime.block_on(domain.lock("orders/42").run(async |_| ())).expect("every runtime can use it");
    }
    assert_eq!(server.command(&["EXISTS", "tenure:orders/42"]).int(), 0);
}

fn machine() -> Machine {
    let machine = Machine::new();
    std::fs::create_dir(machine.path()).expect("a new directory");
    machine
}

/// Where names live, on a server and on this machine.
fn urls(server: &RedisServer, machine: &Machine) -> [String; 4] {
    let inner = machine.url();
    let host = server.url().replace("redis://", "");
    [
        server.url(),
        inner.clone(),
        format!("{}?inner={inner}", server.url()),
        format!("redis+quorum://{host},127.0.0.1:1,127.0.0.1:2"),
    ]
}

// R3.5: a runtime that lacks what is needed is an error that says what to do, and no panic in a drop, which would abort.
#[test]
fn a_runtime_without_a_driver_is_refused() {
    let (server, machine) = (RedisServer::start(), machine());
    for (missing, mut builder) in
        [("I/O", Builder::new_current_thread()), ("time", Builder::new_current_thread())]
    {
        let runtime = match missing {
            "I/O" => builder.enable_time().build(),
            _ => builder.enable_io().build(),
        };
        let runtime = runtime.expect("a runtime");
        for url in urls(&server, &machine) {
            let opened = runtime.block_on(Domain::open(url.as_str()));
            let domain = Domain::lazy(url.as_str()).expect("a valid URL");
            let acquired = runtime.block_on(domain.lock("orders/42").acquire());
            let waited = runtime.block_on(domain.lock("orders/42").try_acquire_for(Duration::from_secs(1)));
            for error in [opened.map(drop).err(), acquired.map(drop).err(), waited.map(drop).err()] {
                let error = error.unwrap_or_else(|| panic!("{url} without {missing}"));
                assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
                let said = error.to_string();
                assert!(said.contains(missing) && said.contains("enable_all"), "{said}");
            }
            // Another runtime can use it.
            if url.starts_with("file:") {
                let _ = self::runtime()
                    .block_on(domain.lock("orders/42").run(async |_| ()))
                    .expect("a runtime with all");
            }
        }
    }
    assert_eq!(server.command(&["DBSIZE"]).int(), 0);
}

// A guard may be dropped on any runtime.
#[test]
fn a_directory_can_be_used_on_when_the_runtime_with_io_is_gone() {
    let machine = machine();
    let domain = Domain::lazy(machine.url()).expect("a valid URL");
    let first = runtime();
    let guard = first.block_on(domain.lock("a").acquire()).expect("a free name");
    first.shutdown_timeout(Duration::from_secs(5));
    let second = Builder::new_current_thread().enable_time().build().expect("a runtime");
    second.block_on(async {
        let another = domain.lock("b").acquire().await.expect("a free name");
        drop((guard, another));
        assert_eq!(domain.list("").await.expect("it can be read"), []);
        domain.close().await;
    });
}

// Without any runtime there is nobody to connect.
#[test]
fn no_runtime_is_refused() {
    let server = RedisServer::start();
    let domain = Domain::lazy(server.url()).expect("a valid URL");
    let lock = domain.lock("orders/42");
    let mut acquire = pin!(lock.acquire());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let Poll::Ready(Err(error)) = acquire.as_mut().poll(&mut context) else {
        panic!("there is nothing to wait for");
    };
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("tokio runtime"), "{error}");
}

// R1.7, R3.5: what a drop leaves to be done needs time, which the runtime that it happens on may not have.
#[test]
fn a_guard_that_is_dropped_on_a_runtime_without_time_is_given_back() {
    let server = RedisServer::start();
    let good = runtime();
    let domain = good.block_on(Domain::open(format!("{}?ttl=1h", server.url()))).expect("a server");
    let guard = good.block_on(domain.lock("orders/42").acquire()).expect("a free name");
    let bare = Builder::new_current_thread().build().expect("a runtime");
    bare.block_on(async move { drop(guard) });
    good.block_on(domain.close());
    assert_eq!(server.command(&["EXISTS", "tenure:orders/42"]).int(), 0);
}

/// Polls without any runtime, as an executor of another library does.
fn without_runtime<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        std::thread::yield_now();
    }
}

// R1.5: a lease that nobody would renew is refused, and not lost a ttl later.
#[test]
fn a_lease_that_no_runtime_would_renew_is_refused() {
    for url in ["memory:".to_owned(), machine().url()] {
        let domain = without_runtime(Domain::open(url.as_str())).expect("it needs no runtime");
        let lock = domain.lock("orders/42");
        let refused = [
            without_runtime(lock.acquire()).map(drop),
            without_runtime(lock.try_acquire()).map(drop),
            without_runtime(lock.take_over()).map(drop),
            without_runtime(lock.run(async |_| ())).map(drop),
        ];
        for answer in refused {
            let error = answer.expect_err("nobody would renew it");
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(error.to_string().contains("no tokio runtime to renew the lease on"), "{error}");
        }
        let guard = without_runtime(domain.lock("orders/42").no_renewal().acquire()).expect("a free name");
        without_runtime(guard.release()).expect("it is given back");
        // A runtime that was seen renews what is acquired elsewhere.
        let seen = runtime();
        seen.block_on(lock.acquire()).map(drop).expect("a free name");
        drop(without_runtime(lock.acquire()).expect("a free name"));
    }
}
