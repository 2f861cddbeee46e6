//! Asking with one token again: servers that may still undo something for it do not count.

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::super::Quorum;
use super::{MS, NAME, Route, TTL, World};
use crate::backend::Backend;
use crate::core::record::{Op, Reply, Wait};
use crate::engine::client::Client;
use crate::types::error::Error;
use crate::types::name::Name;
use crate::types::owner::Token;

/// One client, and the token that it asks with.
pub(super) struct Asker {
    pub(super) quorum: Quorum,
    pub(super) token: Token,
    pub(super) name: Name,
}

impl Asker {
    pub(super) fn new(world: &World) -> Self {
        Asker::lagging(world, Duration::ZERO)
    }

    /// A client whose requests take that long.
    pub(super) fn lagging(world: &World, lag: Duration) -> Self {
        let routes = vec![Route { is_cut: false, lag }; world.servers.len()];
        let quorum = world.connect()(Weak::<Client>::new(), &routes).expect("servers");
        let (name, token) = (Name::new(NAME).expect("a name"), Token::fresh(quorum.session(), "", TTL));
        Asker { quorum, token, name }
    }

    pub(super) async fn ask(&self, world: &World, op: Op) -> Result<Reply, Error> {
        world.drive(self.quorum.execute(&self.name, op)).await.map(|answer| answer.reply)
    }

    fn not_after(&self) -> u64 {
        (self.quorum.0.clock.now() + TTL).as_micros()
    }

    pub(super) fn acquire(&self) -> Op {
        let (token, not_after) = (self.token.clone(), self.not_after());
        Op::Acquire { token, ttl: TTL, wait: Wait::Join, polls: false, floor: 0, not_after }
    }

    pub(super) fn take_over(&self) -> Op {
        let (token, not_after) = (self.token.clone(), self.not_after());
        Op::TakeOver { token, ttl: TTL, floor: 0, not_after }
    }

    pub(super) fn leave(&self) -> Op {
        Op::Leave { token: self.token.clone() }
    }
}

pub(super) fn set_down(world: &World, server: usize, is_down: bool) {
    world.servers[server].is_down.store(is_down, Ordering::SeqCst);
}

// R2.4, R2.5: a client that repeats such a release must know that the first one may have ended the lease.
#[tokio::test]
async fn a_release_that_too_few_servers_answered_may_have_run() {
    let world = World::calm(3);
    let asker = Asker::new(&world);
    let granted = asker.ask(&world, asker.acquire()).await.expect("a free name");
    assert!(matches!(granted, Reply::Granted { .. }), "{granted:?}");
    world.pass(5 * MS).await;
    set_down(&world, 1, true);
    set_down(&world, 2, true);
    let release = Op::Release { token: asker.token.clone(), used: u64::MAX };
    let error = asker.ask(&world, release).await.expect_err("one of three");
    assert!(error.may_have_run(), "{error}");
}

// R3.9, S1: the server gets the leave when it is back, and would end a grant that was counted since.
#[tokio::test]
async fn a_server_that_missed_a_leave_does_not_count_for_its_token() {
    let world = World::calm(3);
    let asker = Asker::new(&world);
    let granted = asker.ask(&world, asker.acquire()).await.expect("a free name");
    assert!(matches!(granted, Reply::Granted { .. }), "{granted:?}");
    world.pass(5 * MS).await;
    set_down(&world, 2, true);
    assert_eq!(asker.ask(&world, asker.leave()).await.expect("two of three"), Reply::Done);
    world.pass(300 * MS).await;
    set_down(&world, 2, false);
    set_down(&world, 1, true);
    let again = asker.ask(&world, asker.acquire()).await;
    let held = world.holders();
    world.pass(600 * MS).await;
    if let Ok(Reply::Granted { .. }) = again {
        assert_eq!(world.holders(), held, "what was granted was taken back");
    }
    let other_token = Asker { token: Token::fresh(asker.quorum.session(), "", TTL), ..asker };
    let other = other_token.ask(&world, other_token.acquire()).await.expect("two of three");
    assert!(matches!(other, Reply::Granted { .. }), "only the one token is unusable: {other:?}");
}

// R3.9, S1: the request is undone once it can't be executed any more.
#[tokio::test]
async fn a_server_with_an_unacknowledged_request_does_not_count_for_its_token() {
    let world = World::calm(3);
    let asker = Asker::new(&world);
    let Asker { quorum, token, .. } = &asker;
    let bids = &quorum.0.bids;
    bids.begin(token, TTL);
    bids.request_sent(token, 2, quorum.0.clock.now() + TTL / 2);
    assert_eq!(asker.ask(&world, asker.leave()).await.expect("three of three"), Reply::Done);
    assert!(bids.unusable(token).has(2) && !bids.unusable(token).has(1));
    let again = asker.ask(&world, asker.acquire()).await.expect("two of three");
    assert!(matches!(again, Reply::Granted { .. }), "{again:?}");
    assert_eq!(world.holders(), [0, 1]);
    world.pass(TTL / 2 + 50 * MS).await;
    assert_eq!(world.holders(), [0, 1]);
}

// R3.9, S1: the answer to one leave says nothing about the other.
#[tokio::test]
async fn a_token_is_unusable_until_all_leaves_are_answered() {
    let world = World::calm(3);
    let Asker { quorum, token, .. } = &Asker::new(&world);
    let bids = &quorum.0.bids;
    bids.begin(token, TTL);
    bids.leave_sent(token, 0);
    bids.leave_sent(token, 0);
    bids.leave_answered(token, 0);
    assert!(bids.unusable(token).has(0));
    assert!(bids.end(token).is_empty());
    assert!(bids.unusable(token).has(0), "also when the bid is over");
    bids.leave_answered(token, 0);
    assert!(bids.tokens().is_empty(), "nothing is left to remember");
}

// R3.9, S1
#[tokio::test]
async fn a_take_over_skips_servers_where_its_token_is_unusable() {
    let world = World::calm(3);
    let asker = Asker::new(&world);
    asker.quorum.0.bids.begin(&asker.token, TTL);
    asker.quorum.0.bids.leave_sent(&asker.token, 0);
    let taken = asker.ask(&world, asker.take_over()).await.expect("two of three");
    assert!(matches!(taken, Reply::Granted { .. }), "{taken:?}");
    world.pass(5 * MS).await;
    assert_eq!(world.holders(), [1, 2]);
}
