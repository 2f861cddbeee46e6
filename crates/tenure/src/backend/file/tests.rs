//! The corners of a directory: deaths, damage, reboots, limits, and places that are not fit.

mod boots;
mod damage;
mod deaths;
mod groups;
mod limits;
mod places;
mod power;
mod reboots;

use std::time::Duration;

use super::place::index_of;
use super::platform::ClockIdentity;
use super::slots;
use super::state::State;
use super::torture::{Scratch, puppet::Puppet};
use crate::core::record::{Now, Op, Wait};
use crate::types::name::Name;
use crate::types::owner::{Session, Token};
use crate::{Attempt, Domain, Guard};

const NAME: &str = "orders/42";
const HOUR: Duration = Duration::from_secs(3_600);
/// Deaths are seen within 50 ms on an idle machine; tests share theirs.
const SEEN: Duration = Duration::from_secs(2);

async fn open(scratch: &Scratch) -> Domain {
    Domain::open(&scratch.url()).await.expect("a directory that is fit")
}

async fn hold(domain: &Domain, name: &str) -> Guard {
    domain.lock(name).ttl(Duration::from_secs(60)).acquire().await.expect("a free name")
}

/// Whether somebody else has the name.
async fn is_busy(domain: &Domain, name: &str) -> bool {
    matches!(domain.lock(name).try_acquire().await.expect("an answer"), Attempt::Busy(_))
}

/// Waits until this many wait for the name.
async fn until_waited_for(domain: &Domain, name: &str, waiters: usize) {
    while domain.inspect(name).await.expect("an answer").waiters.len() != waiters {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The name of the first file of the stripe that a lock's name is on.
fn stripe_file(name: &str) -> String {
    format!("stripe-{:02x}.1", index_of(&Name::new(name).expect("a name")))
}

/// A stripe on which a name is held, under a fence of this wall clock.
fn stripe_with(clock: ClockIdentity, names: &[String], wall: u64) -> State {
    let mut state = State::new(clock);
    let session = Session::random();
    let now = Now { lease: super::now().lease, wall };
    for name in names {
        let (name, token) =
            (Name::new(name).expect("a name"), Token::fresh(&session, "", Duration::from_secs(10)));
        let acquire = Op::Acquire {
            token: token.clone(),
            ttl: HOUR,
            wait: Wait::No,
            polls: false,
            floor: 0,
            not_after: u64::MAX,
        };
        // Nobody lives who could hold it, so it outlives its process.
        for op in [acquire, Op::Detach { token, ttl: HOUR }] {
            state.apply(&name, op, now, &mut Vec::new());
        }
    }
    state
}

/// Puts a stripe there before anybody has opened the directory.
fn put_stripe(scratch: &Scratch, name: &str, state: &State) {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().mode(0o700).create(scratch.store()).expect("a directory");
    let file = std::fs::File::create_new(scratch.store().join(stripe_file(name))).expect("a file");
    slots::write_new(&file, 8, &state.to_bytes()).expect("to write it");
}
