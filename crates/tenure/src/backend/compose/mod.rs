//! Stores that are made of other stores, which they use through the trait [`Backend`](crate::backend::Backend) only.

pub(crate) mod layered;
pub(crate) mod quorum;

use std::time::Duration;

use crate::core::record::{Op, Wait};
use crate::types::owner::Token;

/// A request for a lease that respects the queue.
#[derive(Clone)]
struct Acquire {
    token: Token,
    ttl: Duration,
    wait: Wait,
    floor: u64,
    not_after: u64,
}

/// A request for a lease past the queue: with a ticket, or by force.
#[derive(Clone)]
struct Takeover {
    /// The token of the lease that it replaces.
    ticket: Option<Token>,
    token: Token,
    ttl: Duration,
    floor: u64,
    not_after: u64,
}

impl Takeover {
    fn op(&self) -> Op {
        let Takeover { ticket, token, ttl, floor, not_after } = self.clone();
        match ticket {
            Some(from) => Op::Adopt { from, token, ttl, floor, not_after },
            None => Op::TakeOver { token, ttl, floor, not_after },
        }
    }
}

/// How a bid waits in one of the stores, if it has this position in the queue there.
fn wait_from(wait: Wait, joined_at: Option<u64>) -> Wait {
    match (wait, joined_at) {
        (Wait::No, _) => Wait::No,
        (_, Some(joined_at)) => Wait::Keep { joined_at },
        (_, None) => Wait::Join,
    }
}

/// The token that an operation is for.
fn token_of(op: &Op) -> Option<&Token> {
    match op {
        Op::Acquire { token, .. }
        | Op::Renew { token, .. }
        | Op::Detach { token, .. }
        | Op::Raise { token, .. }
        | Op::Release { token, .. }
        | Op::Leave { token }
        | Op::Death { token }
        | Op::Adopt { token, .. }
        | Op::TakeOver { token, .. }
        | Op::Break { token, .. } => Some(token),
        Op::Inspect => None,
    }
}
