//! Rare orders of events that once went wrong.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::super::bids::PushedGrant;
use super::{MS, NAME, Route, TTL, World};
use crate::ErrorKind;
use crate::backend::Backend;
use crate::core::record::{Op, Reply, Wait};
use crate::engine::client::Client;
use crate::types::name::Name;
use crate::types::owner::Token;

// R3.9, S2: every server grants the name to both, one after the other; the one that stays has the higher fence.
#[tokio::test]
async fn of_two_clients_that_take_over_at_once_the_higher_fence_stays() {
    for lags in [[0, 0, 10, 10, 10], [0, 0, 10, 10, 12], [0, 0, 10, 10, 8]] {
        let world = World::calm(5);
        let (one, other) = (world.client_lagging(&lags), world.client_lagging(&[10, 10, 0, 0, 10]));
        let turns = [one, other].map(|domain| {
            let lock = domain.lock(NAME);
            tokio::spawn(async move { lock.take_over().await })
        });
        let mut guards = Vec::new();
        for turn in turns {
            guards.push(world.drive(turn).await.expect("no panic").expect("it is taken"));
        }
        world.pass(TTL).await;
        let highest = guards.iter().map(|guard| guard.fence()).max();
        let held: Vec<_> = guards.iter().filter(|guard| guard.is_held()).map(|it| it.fence()).collect();
        assert_ne!(guards[0].fence(), guards[1].fence());
        assert!(held.len() == 1 && held.first().copied() == highest, "{lags:?}: {held:?} of {highest:?}");
    }
}

// R2.3
#[tokio::test]
async fn a_push_without_a_grant_leads_to_one_question() {
    let world = World::calm(3);
    let holder = world.client();
    let guard = world.drive(holder.lock(NAME).acquire()).await.expect("a free name");
    let route = Route { is_cut: false, lag: 4 * MS };
    let quorum = Arc::new(world.connect()(Weak::<Client>::new(), &[route; 3]).expect("three servers"));
    let (name, token) = (Name::new(NAME).expect("a name"), Token::fresh(quorum.session(), "", TTL));
    let ask = || {
        let not_after = (quorum.0.clock.now() + TTL).as_micros();
        let (token, floor) = (token.clone(), 0);
        Op::Acquire { token, ttl: TTL, wait: Wait::Join, polls: false, floor, not_after }
    };
    let reply = world.drive(quorum.execute(&name, ask())).await.expect("an answer").reply;
    assert!(matches!(reply, Reply::Waiting { .. }), "{reply:?}");
    let before = world.servers[0].executed.load(Ordering::SeqCst);
    let asking = tokio::spawn(quorum.execute(&name, ask()));
    world.pass(2 * MS).await;
    assert_eq!(quorum.0.bids.pushed(&token, 0), PushedGrant::Wanted);
    world.pass(60 * MS).await;
    assert!(asking.is_finished(), "it has its answer");
    let reply = asking.await.expect("no panic").expect("an answer").reply;
    assert!(matches!(reply, Reply::Waiting { .. }), "{reply:?}");
    assert!(world.servers[0].executed.load(Ordering::SeqCst) - before <= 4, "asked again and again");
    assert!(guard.is_held());
}

// R3.9: the error must not say that a lease is broken which still has a majority.
#[tokio::test]
async fn breaking_a_lease_that_keeps_its_majority_fails() {
    let world = World::calm(5);
    let (holder, breaker) = (world.client(), world.client_lagging(&[6; 5]));
    let guard = world.drive(holder.lock(NAME).acquire()).await.expect("a free name");
    let status = world.drive(breaker.inspect(NAME)).await.expect("an answer");
    let held = status.holder.expect("it is held");
    let breaking = tokio::spawn({
        let breaker = breaker.clone();
        async move { breaker.break_lock(NAME, &held).await }
    });
    // They show the holder, and are away when they should end its lease.
    world.pass(Duration::from_millis(4)).await;
    world.servers[..3].iter().for_each(|server| server.is_down.store(true, Ordering::SeqCst));
    let error = world.drive(breaking).await.expect("no panic").map(drop).expect_err("two of five ended it");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    world.servers[..3].iter().for_each(|server| server.is_down.store(false, Ordering::SeqCst));
    world.pass(TTL).await;
    assert!(guard.is_held());
}

// R3.9, R3.6: if servers did not answer a leave, the token is unusable there, but the waiter continues.
#[tokio::test]
async fn a_waiter_whose_token_is_unusable_continues_with_another() {
    let world = World::calm(3);
    let (holder, (waiter, opened)) = (world.client(), world.client_shown());
    let guard = world.drive(holder.lock(NAME).acquire()).await.expect("a free name");
    let lock = waiter.lock(NAME);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    world.pass(20 * MS).await;
    let quorum = opened.get().expect("it waits");
    let tokens = quorum.0.bids.tokens();
    let [token] = &tokens[..] else { panic!("one bid, not {tokens:?}") };
    assert!(!quorum.0.is_unusable(token));
    [1, 2].into_iter().for_each(|server| quorum.0.bids.make_unusable(token, server));
    // An outage is no reason for another token: a waiter that took one would never give up.
    world.servers[1..].iter().for_each(|server| server.is_down.store(true, Ordering::SeqCst));
    assert!(!quorum.0.is_unusable(token));
    world.servers[1..].iter().for_each(|server| server.is_down.store(false, Ordering::SeqCst));
    assert!(quorum.0.is_unusable(token));
    let fence = guard.fence();
    world.drive(guard.release()).await.expect("to release");
    let next = world.drive(waiting).await.expect("no panic").expect("its turn");
    assert!(next.fence() > fence && next.is_held());
}

// R3.9, S1: a leave that is on its way there may be executed after this request, and end its grant.
#[tokio::test]
async fn a_server_with_a_leave_under_way_is_not_asked_although_no_other_is_in_reach() {
    let world = World::calm(3);
    let routes = [Route { is_cut: false, lag: Duration::ZERO }; 3];
    let quorum = world.connect()(Weak::<Client>::new(), &routes).expect("three servers");
    let (name, token) = (Name::new(NAME).expect("a name"), Token::fresh(quorum.session(), "", TTL));
    quorum.0.bids.begin(&token, TTL);
    quorum.0.bids.leave_sent(&token, 0);
    quorum.0.note_contended(&name);
    world.servers[1..].iter().for_each(|server| server.is_down.store(true, Ordering::SeqCst));
    let before = world.servers[0].executed.load(Ordering::SeqCst);
    let not_after = (quorum.0.clock.now() + TTL).as_micros();
    let ask = Op::Acquire { token, ttl: TTL, wait: Wait::Join, polls: false, floor: 0, not_after };
    world.drive(quorum.execute(&name, ask)).await.map(drop).expect_err("nobody can grant it");
    assert_eq!(world.servers[0].executed.load(Ordering::SeqCst), before, "it was asked");
}
