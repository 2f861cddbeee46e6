//! Waiting: in the queue of one server, notified by any.

use std::time::{Duration, Instant};

use tenure::Domain;
use tenure_testkit::patience::until;

use crate::quorum::scene::{KEY, LONG, NAME, Scene};

fn wait_for(domain: &Domain) -> tokio::task::JoinHandle<tenure::Guard> {
    let lock = domain.lock(NAME);
    tokio::spawn(async move { lock.acquire().await.expect("its turn") })
}

/// Waits for a turn, and gives it back; returns its fence.
async fn served(waiting: tokio::task::JoinHandle<tenure::Guard>) -> tenure::Fence {
    let guard = waiting.await.expect("no panic");
    let fence = guard.fence();
    guard.release().await.expect("to release");
    fence
}

async fn queued(domain: &Domain, waiters: usize) {
    while domain.inspect(NAME).await.expect("to look").waiters.len() < waiters {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

// B2, R1.4: all waiters are in the queue of one server, which wakes one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_queue_at_the_first_server() {
    let scene = Scene::new(3);
    let domains = [scene.client(LONG).await, scene.client(LONG).await, scene.client(LONG).await];
    let guard = domains[0].lock(NAME).acquire().await.expect("a free name");
    let (first, second) = (wait_for(&domains[1]), wait_for(&domains[2]));
    queued(&domains[0], 2).await;
    let queue = |server: usize| scene.servers[server].command(&["ZCARD", "{tenure:orders/42}:queue"]).int();
    until("nobody queues elsewhere", || (queue(0), queue(1), queue(2)) == (2, 0, 0)).await;
    let fence = guard.fence();
    guard.release().await.expect("to release");
    let (first, second) = tokio::join!(served(first), served(second));
    assert!(first > fence && second > fence && first != second);
}

// R3.9: the queue server is free, and the name is held elsewhere: the servers that have it notify the waiter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_the_queue_server_notifies_its_waiter() {
    let scene = Scene::new(3);
    let (holder, waiter) = (scene.peer(LONG).await, scene.client(LONG).await);
    holder.lines[0].cut();
    let guard = holder.domain.lock(NAME).acquire().await.expect("two of three");
    until("two have it", || scene.holders() == [1, 2]).await;
    let waiting = wait_for(&waiter);
    queued(&waiter, 1).await;
    until("it does not keep the queue server", || scene.servers[0].command(&["EXISTS", KEY]).int() == 0)
        .await;
    let fence = guard.fence();
    guard.release().await.expect("to release");
    assert!(waiting.await.expect("no panic").fence() > fence);
}

// R3.9: the queue server is paused, with the waiters in its queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_queue_server_stops_the_next_one_takes_its_role() {
    let scene = Scene::new(3);
    let domains = [scene.client(LONG).await, scene.client(LONG).await, scene.client(LONG).await];
    let guard = domains[0].lock(NAME).acquire().await.expect("a free name");
    let (first, second) = (wait_for(&domains[1]), wait_for(&domains[2]));
    queued(&domains[0], 2).await;
    scene.servers[0].stop();
    drop(guard.release().await.expect("two of three"));
    // In whatever order.
    let both = async { tokio::join!(served(first), served(second)) };
    tokio::time::timeout(Duration::from_secs(20), both).await.expect("they are served without it");
    scene.servers[0].cont();
}

// R3.9: no herd, and no client starves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_all_make_progress() {
    let scene = Scene::new(4);
    let mut clients = Vec::new();
    for _ in 0..6 {
        clients.push(scene.client(LONG).await);
    }
    let end = Instant::now() + Duration::from_secs(2);
    let working = clients.into_iter().map(|domain| {
        tokio::spawn(async move {
            let (mut turns, mut last) = (0_u32, 0);
            while Instant::now() < end || turns == 0 {
                let guard = domain.lock(NAME).acquire().await.expect("its turn");
                assert!(guard.fence().get() > last);
                last = guard.fence().get();
                guard.release().await.expect("to release");
                turns += 1;
            }
            turns
        })
    });
    let mut turns = Vec::new();
    for working in working.collect::<Vec<_>>() {
        turns.push(working.await.expect("no panic"));
    }
    println!("turns: {turns:?}");
    assert!(turns.iter().all(|turns| *turns > 0));
}
