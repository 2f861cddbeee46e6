//! What an error says of each server, and whether it is transient.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::tokens::{Asker, set_down};
use super::{TTL, World};
use crate::ErrorKind;
use crate::backend::Backend;
use crate::backend::memory::Memory;
use crate::core::record::{Op, Reply};
use crate::engine::client::Client;

// R3.9: the client did not ask that server, so it can't execute the request.
#[tokio::test]
async fn an_error_says_on_which_server_a_token_is_unusable() {
    let world = World::calm(3);
    let asker = Asker::new(&world);
    asker.quorum.0.bids.make_unusable(&asker.token, 0);
    set_down(&world, 1, true);
    let error = asker.ask(&world, asker.acquire()).await.expect_err("one of three");
    let text = "1 of 3 servers can be counted on, 2 are needed: h1: still has to undo an earlier request, \
                h2: connection refused, h3: ok";
    assert_eq!(error.to_string(), text);
    assert!(!error.may_have_run() && error.is_worth_asking_again());
}

// R3.9
#[tokio::test]
async fn a_failed_renewal_says_which_servers_hold_the_lease() {
    let world = World::calm(5);
    let asker = Asker::new(&world);
    assert!(matches!(asker.ask(&world, asker.acquire()).await, Ok(Reply::Granted { .. })));
    for server in &world.servers[2..4] {
        let client = Memory::connect(Arc::clone(&server.store.lock()), Weak::<Client>::new());
        client.execute(&asker.name, asker.leave()).await.expect("it answers");
    }
    world.servers[4].is_paused.store(true, Ordering::SeqCst);
    let renewal = Op::Renew { token: asker.token.clone(), ttl: TTL };
    let error = asker.ask(&world, renewal).await.expect_err("two of five");
    let text = "2 of 5 servers hold it, 3 are needed: h1: ok, h2: ok, h3: does not hold it, h4: does not hold it, \
                h5: no answer";
    assert_eq!(error.to_string(), text);
}

// R3.9: a refusal of all servers does not pass; a server that is away comes back.
#[tokio::test]
async fn a_refusal_of_all_servers_is_not_transient() {
    let world = World::calm(3);
    let asker = Asker::new(&world);
    let refuse = |server: usize| *world.servers[server].refused.lock() = Some(asker.name.clone());
    refuse(0);
    set_down(&world, 1, true);
    let error = asker.ask(&world, asker.acquire()).await.expect_err("one of three");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    set_down(&world, 1, false);
    [1, 2].into_iter().for_each(refuse);
    for op in [asker.acquire(), asker.take_over(), Op::Inspect] {
        let error = asker.ask(&world, op).await.expect_err("none of three");
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    }
}
