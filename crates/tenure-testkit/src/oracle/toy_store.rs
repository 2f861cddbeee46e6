//! The store of the simulation: one name, small enough to be seen to be right, with the flaws built in.
//!
//! It shares nothing with the lock that the oracle is for. Each flaw is one that locks in use have had, and
//! sits beside the line that is right, so that the difference between the two is nothing but the flaw.

use super::event::Nanos;

pub(super) const MS: Nanos = 1_000_000;
pub(super) const TTL: Nanos = 100 * MS;

/// What is wrong with the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    None,
    /// A release deletes the lease, whoever's it is.
    DeletesWithoutToken,
    /// The deadline is the store's, looked at on the client's wall clock, which may be behind.
    TrustsTheWallClock,
    /// A waiter that hears of a release takes the lock without looking.
    DoesNotCheckAgain,
    /// Fences are a counter, which starts again when the store loses its data.
    CountsFences,
    /// A retried acquire is a second acquire.
    GrantsARetryTwice,
    /// The deadline counts from when the answer arrived.
    CountsFromReceipt,
    /// A lease has no end of its own.
    NeverExpires,
    /// A holder whose deadline passed is not told.
    KeepsLossesQuiet,
    /// The resource does not look at fences.
    TakesStaleWrites,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Command {
    Acquire { token: u64, not_after: Nanos, is_blind: bool },
    Renew { token: u64 },
    Release { token: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Granted {
        token: u64,
        fence: u64,
        expires: Nanos,
    },
    Renewed {
        token: u64,
        expires: Nanos,
    },
    NotHeld {
        token: u64,
    },
    Busy,
    /// Nothing to say to the sender, but the name is free now.
    Freed,
    Nothing,
}

#[derive(Debug)]
pub(super) struct Store {
    flaw: Flaw,
    lease: Option<(u64, u64, Nanos)>,
    last: u64,
}

impl Store {
    pub(super) fn new(flaw: Flaw) -> Self {
        Self { flaw, lease: None, last: 0 }
    }

    pub(super) fn lose_data(&mut self) {
        (self.lease, self.last) = (None, 0);
    }

    pub(super) fn execute(&mut self, command: Command, now: Nanos) -> Reply {
        self.lease = self.lease.filter(|(.., expires)| now < *expires);
        match command {
            Command::Acquire { not_after, .. } if now > not_after => Reply::Nothing,
            Command::Acquire { token, is_blind, .. } => self.acquire(token, is_blind, now),
            Command::Renew { token } => match &mut self.lease {
                Some((holder, _, expires)) if *holder == token => {
                    *expires = (*expires).max(now + TTL);
                    Reply::Renewed { token, expires: *expires }
                }
                _ => Reply::NotHeld { token },
            },
            Command::Release { token } => {
                let is_holder = self.lease.is_some_and(|(holder, ..)| holder == token);
                if is_holder || self.flaw == Flaw::DeletesWithoutToken {
                    self.lease = None;
                    return Reply::Freed;
                }
                Reply::Nothing
            }
        }
    }

    fn acquire(&mut self, token: u64, is_blind: bool, now: Nanos) -> Reply {
        let expires = if self.flaw == Flaw::NeverExpires { Nanos::MAX } else { now + TTL };
        match self.lease {
            Some((holder, fence, until)) if holder == token && self.flaw != Flaw::GrantsARetryTwice => {
                let expires = until.max(expires);
                self.lease = Some((token, fence, expires));
                Reply::Granted { token, fence, expires }
            }
            Some((holder, ..)) if holder != token && !is_blind => Reply::Busy,
            _ => {
                let by_clock = if self.flaw == Flaw::CountsFences { 0 } else { now / 1_000 };
                self.last = by_clock.max(self.last + 1);
                self.lease = Some((token, self.last, expires));
                Reply::Granted { token, fence: self.last, expires }
            }
        }
    }
}
