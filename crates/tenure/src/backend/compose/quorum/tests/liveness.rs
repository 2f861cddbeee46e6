//! What a minority that is silent, slow or refuses requests must not delay.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::CONTENDED;
use super::tokens::Asker;
use super::{MS, NAME, TTL, World};
use crate::backend::Backend;
use crate::core::record::{Op, Reply, Wait};
use crate::types::name::Name;
use crate::types::owner::Token;

const LONG_TTL: Duration = Duration::from_secs(8);

fn set_paused(world: &World, servers: &[usize], is_paused: bool) {
    servers.iter().for_each(|&server| world.servers[server].is_paused.store(is_paused, Ordering::SeqCst));
}

// R3.9: the lease is there when the client asks again.
#[tokio::test]
async fn a_ticket_survives_servers_that_are_slow_to_take_its_fence() {
    let world = World::calm(3);
    let asker = Asker::lagging(&world, 6 * MS);
    let clock = &asker.quorum.0.clock;
    assert!(matches!(asker.ask(&world, asker.acquire()).await, Ok(Reply::Granted { .. })));
    let ticket = Op::Detach { token: asker.token.clone(), ttl: LONG_TTL };
    assert_eq!(asker.ask(&world, ticket).await.expect("it is held"), Reply::Done);
    let token = Token::fresh(asker.quorum.session(), "", TTL);
    let adopt = || {
        let (from, token) = (asker.token.clone(), token.clone());
        let not_after = (clock.now() + LONG_TTL / 4).as_micros();
        Op::Adopt { from, token, ttl: LONG_TTL, floor: 0, not_after }
    };
    let adopting = tokio::spawn(asker.quorum.execute(&asker.name, adopt()));
    world.pass(8 * MS).await;
    set_paused(&world, &[1, 2], true);
    let error = world.drive(adopting).await.expect("no panic").map(drop).expect_err("one of three");
    assert!(error.is_worth_asking_again(), "{error}");
    set_paused(&world, &[1, 2], false);
    let again = asker.ask(&world, adopt()).await;
    assert!(matches!(again, Ok(Reply::Granted { .. })), "{again:?}");
}

// R3.9
#[tokio::test]
async fn names_are_listed_without_a_silent_minority() {
    let world = World::calm(3);
    let asker = Asker::lagging(&world, 4 * MS);
    assert!(matches!(asker.ask(&world, asker.acquire()).await, Ok(Reply::Granted { .. })));
    set_paused(&world, &[0], true);
    let names = world.drive(asker.quorum.list("")).await.expect("two of three");
    assert_eq!(names, std::slice::from_ref(&asker.name));
}

// R3.9
#[tokio::test]
async fn a_server_that_answers_a_compensation_is_not_silent() {
    let world = World::calm(3);
    let Asker { quorum, name, token } = Asker::new(&world);
    let group = &quorum.0;
    group.members[0].is_silent.store(true, Ordering::Relaxed);
    group.undo_now(0, &name, Op::Leave { token });
    world.pass(10 * MS).await;
    assert!(group.members[0].is_in_reach());
}

// I5
#[tokio::test]
async fn a_compensation_that_is_refused_keeps_no_other_waiting() {
    let world = World::calm(3);
    let asker = Asker::new(&world);
    let group = &asker.quorum.0;
    assert!(matches!(asker.ask(&world, asker.acquire()).await, Ok(Reply::Granted { .. })));
    world.pass(5 * MS).await;
    let other = Name::new("refused").expect("a name");
    *world.servers[0].refused.lock() = Some(other.clone());
    group.undo_now(0, &other, asker.leave());
    group.undo_now(0, &asker.name, asker.leave());
    world.pass(10 * MS).await;
    assert_eq!(world.holders(), [1, 2]);
}

// R3.9: layered waits for one second, and must have the answer of a majority by then.
#[tokio::test]
async fn a_leave_does_not_wait_long_for_a_silent_minority() {
    let world = World::calm(3);
    let asker = Asker::new(&world);
    let clock = &asker.quorum.0.clock;
    assert!(matches!(asker.ask(&world, asker.acquire()).await, Ok(Reply::Granted { .. })));
    world.pass(5 * MS).await;
    set_paused(&world, &[2], true);
    let begun = clock.now();
    assert_eq!(asker.ask(&world, asker.leave()).await.expect("two of three"), Reply::Done);
    assert!(clock.now().since(begun) < 600 * MS, "{:?}", clock.now().since(begun));
}

// R3.9: a refused client waits for a silent server once, to leave it, and not every time.
#[tokio::test]
async fn a_refusal_waits_once_for_a_silent_minority() {
    let world = World::calm(3);
    let guard = world.drive(world.client().lock(NAME).acquire()).await.expect("a free name");
    let asker = Asker::new(&world);
    set_paused(&world, &[2], true);
    let mut took = Vec::new();
    for _ in 0..2 {
        let begun = asker.quorum.0.clock.now();
        let (token, not_after) = (Token::fresh(asker.quorum.session(), "", TTL), (begun + TTL).as_micros());
        let op = Op::Acquire { token, ttl: TTL, wait: Wait::No, polls: false, floor: 0, not_after };
        let reply = asker.ask(&world, op).await.expect("two of three");
        assert!(matches!(reply, Reply::Busy { .. }), "{reply:?}");
        took.push(asker.quorum.0.clock.now().since(begun));
        // Then the name is not contended any more, and the client asks all servers again.
        world.pass(CONTENDED + 50 * MS).await;
    }
    assert!(took[1] < 10 * MS, "{took:?}");
    drop(guard);
}
