//! A server that has forgotten the scripts (NOSCRIPT): after a restart, a failover, or `SCRIPT FLUSH`, at any moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tenure::{Domain, Release};
use tenure_testkit::patience::until;
use tenure_testkit::redis::RedisServer;

use super::endurance::acquire;
use crate::redis::hygiene::traces::until_clean;

// Every operation finds an empty cache.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_are_forgotten_between_any_two_operations() {
    let server = RedisServer::start();
    let [domain, other] = [(); 2].map(|()| Domain::lazy(server.url()).expect("a URL"));
    let flush = || assert_eq!(server.command(&["SCRIPT", "FLUSH"]).text(), "OK");
    flush();
    let guard = domain.lock("orders/42").acquire().await.expect("acquire");
    flush();
    guard.renew().await.expect("renew");
    flush();
    let status = domain.inspect("orders/42").await.expect("inspect");
    assert_eq!(status.holder.expect("it is held").fence, guard.fence());
    flush();
    let waiter = tokio::spawn(async move { acquire(&other, "orders/42").await });
    until("somebody waits", || server.command(&["ZCARD", "{tenure:orders/42}:queue"]).int() == 1).await;
    flush();
    let busy =
        domain.lock("orders/42").try_acquire_for(Duration::from_millis(1)).await.expect("enqueue and leave");
    assert!(!busy.is_acquired());
    flush();
    assert_eq!(guard.release().await.expect("release"), Release::Released);
    let guard = waiter.await.expect("a hand-over");
    flush();
    let ticket = guard.detach().await.expect("detach");
    flush();
    let guard = ticket.adopt(&domain).await.expect("adopt");
    flush();
    let newer = domain.lock("orders/42").take_over().await.expect("take over");
    assert!(newer.fence() > guard.fence());
    flush();
    let holder = domain.inspect("orders/42").await.expect("inspect").holder.expect("it is held");
    flush();
    assert_eq!(domain.break_lock("orders/42", &holder).await.expect("break"), Release::Released);
    drop((guard, newer));
    until_clean(&server).await;
    let refusals = server.question(&["INFO", "errorstats"]).text();
    let refusals = refusals.lines().find_map(|line| line.strip_prefix("errorstat_NOSCRIPT:count="));
    let refusals: u32 = refusals.expect("some were refused").trim().parse().expect("a number");
    assert!(refusals >= 11, "every operation found an empty cache, not {refusals}");
}

/// One after the other, each with a higher fence: false when two are in at once.
#[derive(Default)]
struct Section {
    is_taken: AtomicBool,
    last_fence: AtomicU64,
    entered: AtomicU64,
}

impl Section {
    fn enter(&self, fence: u64) {
        assert!(!self.is_taken.swap(true, Ordering::SeqCst), "two in at once");
        let before = self.last_fence.swap(fence, Ordering::SeqCst);
        assert!(fence > before, "fence {fence} after {before}");
        self.entered.fetch_add(1, Ordering::SeqCst);
    }

    fn leave(&self) {
        self.is_taken.store(false, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_are_forgotten_under_load() {
    let server = RedisServer::start();
    let section = Arc::new(Section::default());
    let end = Instant::now() + Duration::from_secs(1);
    let mut contenders = Vec::new();
    for _ in 0..8 {
        let domain = Domain::open(server.url()).await.expect("a server that runs");
        let section = Arc::clone(&section);
        contenders.push(tokio::spawn(async move {
            let mut turns = 0;
            while Instant::now() < end {
                let guard =
                    domain.lock("orders/42").acquire().await.expect("nothing but the scripts is gone");
                section.enter(guard.fence().get());
                tokio::task::yield_now().await;
                section.leave();
                assert_eq!(
                    guard.release().await.expect("nothing but the scripts is gone"),
                    Release::Released
                );
                turns += 1;
            }
            turns
        }));
    }
    let mut flushes = 0;
    let mut client = server.client().expect("a server that runs");
    while contenders.iter().any(|contender| !contender.is_finished()) {
        client.command(&["SCRIPT", "FLUSH"]).expect("a server that runs");
        flushes += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for contender in contenders {
        assert!(contender.await.expect("no error") > 0, "everyone has a turn");
    }
    println!("{} grants, {flushes} flushes", section.entered.load(Ordering::SeqCst));
    assert!(flushes > 20 && section.entered.load(Ordering::SeqCst) > 20);
    until_clean(&server).await;
}
