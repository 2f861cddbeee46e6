//! The corner cases of a directory: deaths, damage, reboots, limits, and unfit directories.

mod boots;
mod damage;
mod deaths;
mod directories;
mod groups;
mod limits;
mod power;
mod reboots;

use std::time::Duration;

use super::copies;
use super::open_directory::index_of;
use super::platform::ClockIdentity;
use super::state::State;
use super::torture::{Scratch, test_process::TestProcess};
use crate::core::record::{Now, Op, Wait};
use crate::types::name::Name;
use crate::types::owner::{Session, Token};
use crate::{Attempt, Domain, Guard};

const NAME: &str = "orders/42";
const HOUR: Duration = Duration::from_secs(3_600);
/// Others see a death within 50 ms on an idle machine; tests share theirs.
const SEEN: Duration = Duration::from_secs(2);

async fn open(scratch: &Scratch) -> Domain {
    Domain::open(&scratch.url()).await.expect("a directory that is fit")
}

async fn hold(domain: &Domain, name: &str) -> Guard {
    domain.lock(name).ttl(Duration::from_secs(60)).acquire().await.expect("a free name")
}

/// Whether another client has the name.
async fn is_busy(domain: &Domain, name: &str) -> bool {
    matches!(domain.lock(name).try_acquire().await.expect("an answer"), Attempt::Busy(_))
}

/// Waits until the name has this many waiters.
async fn until_waited_for(domain: &Domain, name: &str, waiters: usize) {
    while domain.inspect(name).await.expect("an answer").waiters.len() != waiters {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The first file of the stripe of a lock's name.
fn stripe_file(name: &str) -> String {
    format!("stripe-{:02x}.1", index_of(&Name::new(name).expect("a name")))
}

/// A stripe with a detached lease on each of these names, with a fence of this wall clock.
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
        // Detached, because no living process holds it.
        for op in [acquire, Op::Detach { token, ttl: HOUR }] {
            state.apply(&name, op, now, &mut Vec::new());
        }
    }
    state
}

/// Makes a stripe before any client has opened the directory.
fn put_stripe(scratch: &Scratch, name: &str, state: &State) {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().mode(0o700).create(scratch.store()).expect("a directory");
    let file = std::fs::File::create_new(scratch.store().join(stripe_file(name))).expect("a file");
    copies::write_new(&file, 8, &state.to_bytes()).expect("to write it");
}
