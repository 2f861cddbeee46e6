//! Each rule by itself.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{MS, NAME, TTL, World};
use crate::ErrorKind;

// R3.9: even numbers need more than half, and a tie settles.
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

// R3.9: two that meet each other on different servers first.
#[tokio::test]
async fn clients_with_different_desks_get_on() {
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

// R3.9: what a silent server was asked for is undone when it speaks again.
#[tokio::test]
async fn a_server_that_was_silent_is_told_to_undo() {
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

// R3.9: a silent minority costs neither an acquire, nor a renewal, nor a release its answer; and it is healed.
#[tokio::test]
async fn a_minority_is_not_waited_for_and_healed() {
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

// R3.9: a server back without its data is not counted for a ttl.
#[tokio::test]
async fn a_server_that_may_have_forgotten_does_not_count() {
    let world = World::calm(3);
    let all_old = |world: &World| {
        for (number, server) in (1..).zip(&world.servers) {
            *server.run.lock() = Some((number, 60_000));
        }
    };
    all_old(&world);
    let domain = world.client_without(&[2]);
    drop(world.drive(domain.lock(NAME).acquire()).await.expect("two of three"));
    *world.servers[1].run.lock() = Some((9, 300));
    let error = world.drive(domain.lock(NAME).try_acquire()).await.expect_err("one of three");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("h2: started 0 s ago and may have forgotten leases"), "{error}");
    *world.servers[1].run.lock() = Some((9, 801));
    drop(world.drive(domain.lock(NAME).acquire()).await.expect("it counts again"));
}

// R3.9: a group that was just started can be used, and goes on to be while it is young.
#[tokio::test]
async fn a_group_that_is_new_as_a_whole_counts() {
    let world = World::calm(3);
    for (number, server) in (1..).zip(&world.servers) {
        *server.run.lock() = Some((number, 10));
    }
    let domain = world.client();
    drop(world.drive(domain.lock(NAME).acquire()).await.expect("all are new"));
    world.pass(5 * MS).await;
    world.servers[0].is_down.store(true, Ordering::SeqCst);
    drop(world.drive(domain.lock(NAME).acquire()).await.expect("this client saw that all were new"));
    let stranger = world.client_without(&[0]);
    world.pass(5 * MS).await;
    let error = world.drive(stranger.lock(NAME).try_acquire()).await.expect_err("it did not see that");
    assert!(error.to_string().contains("may have forgotten"), "{error}");
}

// R3.9: one server under two addresses would count twice.
#[tokio::test]
async fn a_server_under_two_addresses_is_refused() {
    let world = World::calm(3);
    for (number, server) in [7, 8, 7].into_iter().zip(&world.servers) {
        *server.run.lock() = Some((number, 60_000));
    }
    let error = world.drive(world.client().lock(NAME).try_acquire()).await.expect_err("two servers");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("h1 and h3 are the same server"), "{error}");
}

// R2.3, B2: whoever waits does so at one server, and a name that is waited for costs the others nothing.
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
