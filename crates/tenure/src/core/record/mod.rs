//! The state of one name, and every operation on it. Pure: no I/O, no clock, no randomness.
//!
//! This is the specification of every store. The memory domain is a map of records, the file domain keeps them on disk, and the
//! Redis scripts are the same transitions in Lua, kept equal by a test. So it is written in plain steps that Lua can mirror: a
//! number, a string, a list in the order of joining, and no more.
//!
//! The rules:
//! - An operation that changes a name first settles it: it ends an expired lease and grants a free name to the first living waiter.
//! - A hand-over is on probation: the next waiter gets a short term, and its first renewal makes it a full lease. A waiter that died
//!   unnoticed costs one probation, not a ttl.
//! - Waiters near the head send heartbeats often, waiters far from it rarely. Both sides derive the pause from the position in the reply, so
//!   the store does not take a waiter that moves up quickly for silent.
//! - The store drops a waiter that is silent for too long. The waiter knows when it joined, and its next heartbeat brings it back to its
//!   position. So order survives the loss of the whole queue.
//! - Every operation is idempotent by token, because a client sends an unacknowledged request again, which may have been executed.
//!
//! Keeps I1 (a name has one holder) and I3 (fences only grow).

mod bytes;
#[cfg(test)]
mod model;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
mod transitions;

use std::time::{Duration, SystemTime};

use crate::types::fence::Fence;
use crate::types::owner::Token;
use crate::types::status;

/// How many fences a grant reserves, for the tasks of one process that take turns on the lease.
pub(crate) const RANGE: u64 = 64;
/// The first term of a lease that was handed over; longer than two heartbeats.
pub(crate) const PROBATION: Duration = Duration::from_secs(1);
/// How long the record remembers which lease was ended by force.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(60);
/// How far, in µs, a client's floor may be above the clock of a server and the last fence: a year. A clock that is further behind is wrong.
pub(crate) const MOST_AHEAD: u64 = 365 * 86_400_000_000;
/// The pause between two heartbeats of a waiter near the head of the queue.
pub(crate) const HEARTBEAT: Duration = Duration::from_millis(400);
/// How much each waiter ahead adds to the pause between two heartbeats, and the longest pause.
const HEARTBEAT_PER_WAITER: Duration = Duration::from_millis(50);
pub(crate) const LONGEST_HEARTBEAT: Duration = Duration::from_secs(12);

/// The pause before the next heartbeat of a waiter with so many ahead of it. Waiter and store both use it.
pub(crate) fn pause_behind(ahead: usize) -> Duration {
    let position = u32::try_from(ahead).unwrap_or(u32::MAX).saturating_add(1);
    HEARTBEAT_PER_WAITER.saturating_mul(position).clamp(HEARTBEAT, LONGEST_HEARTBEAT)
}

/// The store's time, read once per operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Now {
    /// The clock for leases, heartbeats and the order of the queue, in µs.
    pub(crate) lease: u64,
    /// µs since 1970, for fences.
    pub(crate) wall: u64,
}

impl Now {
    /// Expiry is kept in whole milliseconds, as Redis keeps it.
    fn millis(self) -> u64 {
        self.lease / 1_000
    }
}

/// Whether and where an acquire waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Wait {
    /// Take it now or not at all.
    No,
    /// Join the end of the queue.
    Join,
    /// A heartbeat of a waiter that joined at this time: keep its position, or give it back.
    Keep { joined_at: u64 },
}

/// What can be done to a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    /// Take the name, or wait for it. The holder's own acquire extends its lease; a waiter's is its heartbeat.
    Acquire {
        token: Token,
        ttl: Duration,
        wait: Wait,
        /// The waiter polls: it need not be reachable by a push.
        polls: bool,
        /// The highest fence that the client has seen.
        floor: u64,
        /// The store refuses it later than this, by its lease clock: the client has given up.
        not_after: u64,
    },
    /// Make the lease last at least `ttl` from now. Only looks at the holder: it settles nothing.
    Renew { token: Token, ttl: Duration },
    /// A renewal after which the lease outlives the process that took it.
    Detach { token: Token, ttl: Duration },
    /// The holder's range starts at `fence`, unless it starts higher already: what another store reserved for the same lease.
    Raise { token: Token, fence: u64 },
    /// Give the lease back, having used the fences up to `used`.
    Release { token: Token, used: u64 },
    /// Leave the queue; if the name was granted meanwhile, give it back.
    Leave { token: Token },
    /// Replace the token of a lease, under a new fence.
    Adopt { from: Token, token: Token, ttl: Duration, floor: u64, not_after: u64 },
    /// End the present lease and take its place, ahead of the queue.
    TakeOver { token: Token, ttl: Duration, floor: u64, not_after: u64 },
    /// End the lease that was inspected.
    Break { token: Token, fence: u64 },
    /// The process that held, or waited, with this token is dead or can't be reached.
    Death { token: Token },
    /// Look, and change nothing.
    Inspect,
}

/// The answer to an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reply {
    /// The name is held with the token that asked; `fence` starts its range.
    Granted { fence: u64 },
    /// In the queue, with `ahead` waiters before it.
    Waiting { joined_at: u64, ahead: usize, holding: Holding },
    /// Not taken, and not waiting.
    Busy { holding: Holding, waiters: usize },
    /// The token does not hold the name; who does, if anyone.
    NotHeld { holder: Option<Token> },
    /// Done: renewed, released, left or broken.
    Done,
    /// Refused, because it came after `not_after`.
    TooLate,
    /// Refused, because the client's floor is so many µs above the store's clock and the last fence.
    Ahead { by: u64 },
    /// The holder, the living waiters with the times at which they joined, and the fence of the lease that was last ended by force.
    Seen { holding: Option<Holding>, waiters: Vec<(Token, u64)>, broken: Option<u64> },
}

/// A lease, seen from outside.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Holding {
    pub(crate) token: Token,
    /// The start of its range.
    pub(crate) fence: u64,
    /// How long it still lasts, in whole milliseconds.
    pub(crate) left: Duration,
}

impl From<Holding> for status::Holder {
    fn from(holding: Holding) -> Self {
        status::Holder {
            owner: holding.token.owner(),
            fence: Fence::new(holding.fence),
            since: SystemTime::UNIX_EPOCH + Duration::from_micros(holding.fence),
            remaining: holding.left,
            token: holding.token,
        }
    }
}

/// Whom the store must notify of a transition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Notice {
    /// A waiter was granted the name, at the store's time `at`, for `term`. If it can't be notified and does not poll, it is dead.
    Granted { token: Token, fence: u64, at: u64, term: Duration, polls: bool },
    /// Another client ended the holder's lease.
    Revoked { token: Token },
}

/// Who holds a name, who waits for it, and the last fence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    /// The last fence that is used or reserved.
    last: u64,
    holder: Option<Holder>,
    /// In the order of joining.
    queue: Vec<Waiter>,
    /// The lease that was last ended by force. It is only shown; no operation depends on it.
    broken: Option<Trace>,
}

/// A lease that was broken or taken over.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Trace {
    /// The start of its range.
    fence: u64,
    /// The last millisecond of the lease clock at which it is remembered.
    until: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Holder {
    token: Token,
    /// The last millisecond of the lease clock at which the lease is alive.
    expires: u64,
    detached: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiter {
    token: Token,
    joined_at: u64,
    /// The time of its last heartbeat, plus what its next pause has beyond [`HEARTBEAT`]: so one limit for silence fits all.
    beat: u64,
    ttl: Duration,
    polls: bool,
}
