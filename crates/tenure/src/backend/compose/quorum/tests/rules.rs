//! Each rule of a majority by itself.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{MS, NAME, TTL, World};
use crate::ErrorKind;

// R3.9: half of the servers are not enough, and a tie ends.
#[tokio::test]
async fn with_four_servers_three_are_needed() {
    let world = World::calm(4);
    let (left, right) = (world.client_without(&[2, 3]), world.client_without(&[0, 1]));
    for domain in [&left, &right] {
        let error = world.drive(domain.lock(NAME).try_acquire()).await.expect_err("two of four");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().contains("2 of 4 servers"), "{error}");
    }
    assert_eq!(world.holders(), [0; 0], "everything was undone");
    let most = world.client_without(&[3]);
    let guard = world.drive(most.lock(NAME).acquire()).await.expect("three of four");
    assert!(guard.is_held());
}

// R3.9
#[tokio::test]
async fn clients_with_different_queue_servers_make_progress() {
    for servers in [3, 4, 5] {
        let world = World::calm(servers);
        let all: Vec<_> = [&[][..], &[0], &[1]].map(|cut| world.client_without(cut)).into();
        for _ in 0..5 {
            let turns = all.iter().map(|domain| {
                let lock = domain.lock(NAME);
                tokio::spawn(async move {
                    let guard = lock.acquire().await.expect("a turn");
                    drop(guard.release().await);
                })
            });
            for turn in turns.collect::<Vec<_>>() {
                world.drive(turn).await.expect("no panic");
            }
        }
    }
}

// R3.9
#[tokio::test]
async fn requests_to_a_silent_server_are_undone_when_it_answers_again() {
    let world = World::calm(5);
    let domain = world.client();
    world.servers[3].is_paused.store(true, Ordering::SeqCst);
    let guard = world.drive(domain.lock(NAME).acquire()).await.expect("four of five");
    world.drive(guard.release()).await.expect("to release");
    world.servers[3].is_paused.store(false, Ordering::SeqCst);
    world.pass(10 * MS).await;
    assert_eq!(world.holders(), [0; 0], "sent behind the request");

    // No majority: an error, and nothing stays behind.
    for server in [1, 2, 3] {
        world.servers[server].is_paused.store(true, Ordering::SeqCst);
    }
    let error = world.drive(domain.lock(NAME).acquire()).await.expect_err("two of five");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    for server in [1, 2, 3] {
        world.servers[server].is_paused.store(false, Ordering::SeqCst);
    }
    world.pass(TTL / 2).await;
    assert_eq!(world.holders(), [0; 0]);
}

// R3.9: acquire, renewal and release succeed without a silent minority, which is healed later.
#[tokio::test]
async fn nobody_waits_for_a_minority_and_it_is_healed() {
    let world = World::calm(5);
    let domain = world.client();
    world.servers[1].is_down.store(true, Ordering::SeqCst);
    world.servers[4].is_paused.store(true, Ordering::SeqCst);
    let guard = world.drive(domain.lock(NAME).acquire()).await.expect("three of five");
    world.servers[1].is_down.store(false, Ordering::SeqCst);
    world.pass(2 * TTL).await;
    assert!(guard.is_held());
    assert_eq!(world.holders(), [0, 1, 2, 3], "the one that was down has it too");
    world.servers[4].is_paused.store(false, Ordering::SeqCst);
    world.pass(TTL).await;
    assert_eq!(world.holders(), [0, 1, 2, 3, 4]);
    world.drive(guard.release()).await.expect("to release");
    world.pass(5 * MS).await;
    assert_eq!(world.holders(), [0; 0]);
}

fn set_ages(world: &World, ids: &[u64], age: Duration) {
    for (id, server) in ids.iter().zip(&world.servers) {
        server.set_age(*id, world.clock.now(), age);
    }
}

// R3.9
#[tokio::test]
async fn a_server_that_restarted_does_not_count_for_one_ttl() {
    let world = World::calm(3);
    set_ages(&world, &[1, 2, 3], Duration::from_secs(60));
    let domain = world.client_without(&[2]);
    let guard = world.drive(domain.lock(NAME).acquire()).await.expect("two of three");
    world.drive(guard.release()).await.expect("to release");
    world.servers[1].restart(world.clock.now());
    let error = world.drive(domain.lock(NAME).try_acquire()).await.expect_err("one of three");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let text = "h2: started 0 s ago and may have forgotten leases (it counts in 1 s)";
    assert!(error.to_string().contains(text), "{error}");
    assert_eq!(error.remedy(), Some("try again in 1 s"));
    world.pass(TTL).await;
    drop(world.drive(domain.lock(NAME).acquire()).await.expect("it counts again"));
}

// R3.9: nobody can tell a new group from one that forgot everything.
#[tokio::test]
async fn a_new_group_counts_after_one_ttl() {
    let world = World::calm(3);
    set_ages(&world, &[1, 2, 3], Duration::ZERO);
    let domain = world.client();
    let error = world.drive(domain.lock(NAME).try_acquire()).await.expect_err("none of three");
    assert_eq!(error.what(), "0 of 3 servers can be counted on, 2 are needed");
    assert_eq!(error.remedy(), Some("try again in 1 s"));
    assert_eq!(world.holders(), [0; 0], "everything was undone");
    world.pass(TTL).await;
    drop(world.drive(domain.lock(NAME).acquire()).await.expect("a majority"));
}

// R3.9, S1: the lease ends before the servers that forgot it count.
#[tokio::test]
async fn a_lease_that_all_servers_forget_is_not_granted_twice() {
    let world = World::calm(3);
    let (holder, other) = (world.client(), world.client());
    let guard = world.drive(holder.lock(NAME).acquire()).await.expect("a free name");
    world.servers.iter().for_each(|server| server.restart(world.clock.now()));
    let next = loop {
        match world.drive(other.lock(NAME).try_acquire()).await {
            Ok(attempt) => break attempt.ok().expect("a free name"),
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
        world.pass(20 * MS).await;
    };
    assert!(!guard.is_held() && next.is_held() && next.fence() > guard.fence());
}

// R3.9: it would count twice.
#[tokio::test]
async fn a_server_under_two_addresses_is_refused() {
    let world = World::calm(3);
    set_ages(&world, &[7, 8, 7], Duration::from_secs(60));
    let error = world.drive(world.client().lock(NAME).try_acquire()).await.expect_err("two servers");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("h1 and h3 are the same server"), "{error}");
}

// R2.3, B2: waiters cost the other servers nothing.
#[tokio::test]
async fn waiters_ask_at_one_server() {
    let world = World::calm(5);
    let (holder, waiters) = (world.client(), [(); 4].map(|()| world.client()));
    let guard = world.drive(holder.lock(NAME).acquire()).await.expect("a free name");
    let waiting: Vec<_> = waiters
        .iter()
        .map(|domain| {
            let lock = domain.lock(NAME);
            tokio::spawn(async move { drop(lock.acquire().await.expect("its turn")) })
        })
        .collect();
    world.pass(50 * MS).await;
    let before: Vec<_> = world.servers.iter().map(|server| server.executed.load(Ordering::SeqCst)).collect();
    world.pass(Duration::from_millis(250)).await;
    for (server, before) in world.servers[1..].iter().zip(&before[1..]) {
        assert!(server.executed.load(Ordering::SeqCst) - before <= 2, "beyond the holder's renewal");
    }
    drop(guard);
    for waiter in waiting {
        world.drive(waiter).await.expect("its turn");
    }
}
