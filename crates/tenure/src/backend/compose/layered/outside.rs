//! Asking the outer store, and undoing what is left there.
//!
//! If the inner store continues alone, three things may be left in the outer one: a lease, a position in the queue, and an unacknowledged
//! request that is executed later. The layer above got an answer and knows nothing of them. So the pair undoes them through its
//! [compensation queue](crate::backend::compensation).

use std::time::Duration;

use super::Stores;
use crate::backend::Pending;
use crate::backend::compensation::Target;
use crate::core::record::{Op, Reply};
use crate::time::backoff::Backoff;
use crate::time::clock::Moment;
use crate::types::error::Error;
use crate::types::name::Name;
use crate::types::owner::Token;

/// How long the outer store may be silent, at most, before the inner one continues alone.
pub(super) const LONGEST_SILENCE: Duration = Duration::from_secs(1);
/// How long the caller waits for an answer, at most, if it does not say so.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// How long the outer store may execute a request that was sent before its clock was known, and so carries no last moment.
const LONGEST_UNACKNOWLEDGED: Duration = Duration::from_secs(10);
/// How long another client's lease may last in the outer store, if that is not known.
const FOREIGN_TTL: Duration = Duration::from_secs(60);
/// How long a lease of this client lasts, if that is not known: a short time.
const UNKNOWN_TTL: Duration = Duration::from_secs(2);

impl Stores {
    /// Asks the outer store. If the inner store may continue alone, the client repeats a broken request before the caller gives up: one
    /// lost reply is not an outage.
    pub(super) async fn outside(&self, name: &Name, op: Op, silence: Duration) -> Result<Reply, Error> {
        let Some(limit) = self.policy.limit(self.clock.now() + silence.min(LONGEST_SILENCE)) else {
            return self.noted(self.ask_outside(name, op, None).await);
        };
        let mut backoff = Backoff::new();
        loop {
            let mut request = Unacknowledged { stores: self, name, op: &op, is_answered: false };
            let answer = self.ask_outside(name, op.clone(), Some(limit)).await;
            request.is_answered = !answer.as_ref().is_err_and(Error::may_have_run);
            drop(request);
            let again = self.clock.now() + backoff.pause();
            match &answer {
                // A known outage is not waited out.
                Err(error)
                    if error.is_worth_asking_again() && again < limit && self.outer.outage().is_none() =>
                {
                    self.clock.sleep_until(again).await;
                }
                _ => return self.noted(answer),
            }
        }
    }

    /// Asks the outer store once.
    async fn ask_outside(&self, name: &Name, op: Op, limit: Option<Moment>) -> Result<Reply, Error> {
        let asked = self.outer.execute(name, op);
        let answer = match limit {
            None => asked.await,
            Some(limit) => self.clock.until(limit, asked).await.unwrap_or_else(|| {
                Err(Error::unanswered("outer store did not answer in time")
                    .fix("is it overloaded or cut off?"))
            }),
        };
        Ok(answer?.reply)
    }

    /// As [`outside`](Self::outside). If the first attempt was not answered and the second finds nothing, the first one released it.
    pub(super) async fn release_outside(
        &self,
        name: &Name,
        op: Op,
        silence: Duration,
    ) -> Result<Reply, Error> {
        let Some(limit) = self.policy.limit(self.clock.now() + silence) else {
            return self.noted(self.ask_outside(name, op, None).await);
        };
        self.noted(match self.ask_outside(name, op.clone(), Some(limit)).await {
            Err(error) if error.may_have_run() && self.clock.now() < limit => {
                let again = self.ask_outside(name, op, Some(limit)).await;
                again.map(|_| Reply::Done)
            }
            answer => answer,
        })
    }

    /// Asks once, with a limit under either policy: a silent outer store must not keep the inner lease from the processes of this machine.
    pub(super) async fn undo_outside(&self, name: &Name, undo: Op) -> Result<Reply, Error> {
        let limit = self.clock.now() + LONGEST_SILENCE;
        self.noted(self.ask_outside(name, undo, Some(limit)).await)
    }

    /// Leaves the outer store with the token of a bid that continues. Without an answer, that token is unusable there.
    pub(super) async fn withdraw(&self, name: &Name, token: &Token) -> Result<(), Error> {
        let mark = |is_unusable| {
            self.bids.change(token, self.clock.now(), |bid| {
                (bid.outer_joined_at, bid.is_unusable) = (None, is_unusable);
            });
        };
        mark(true);
        let left = self.undo_outside(name, Op::Leave { token: token.clone() }).await;
        if self.policy.tolerate(left)?.is_some() {
            mark(false);
        }
        Ok(())
    }

    /// # Errors
    /// If the token is unusable in the outer store.
    pub(super) fn refuse_unusable(&self, token: &Token) -> Result<(), Error> {
        match self.bids.get(token).is_unusable {
            false => Ok(()),
            true => {
                Err(Error::unavailable("outer store did not answer when a request was undone")
                    .fix("try again"))
            }
        }
    }

    /// # Errors
    /// If the outer store is known to be out of reach, and nobody may continue without it.
    pub(super) fn refuse_in_outage(&self) -> Result<(), Error> {
        match self.outer.outage().filter(|error| !self.policy.tolerates(error)) {
            None => Ok(()),
            Some(error) => {
                self.note_outer(Some(&error));
                Err(error)
            }
        }
    }

    /// Whatever becomes of the request, this is how long a lease that it takes in the outer store stays there.
    pub(super) fn note_ttl(&self, token: &Token, ttl: Duration) {
        if self.policy.may_degrade() {
            self.bids.change(token, self.clock.now(), |bid| bid.ttl = bid.ttl.max(ttl));
        }
    }

    /// The outer store did not answer a request that takes something: notes until when it may execute it.
    fn note_unacknowledged(&self, name: &Name, op: &Op) {
        let (Op::Acquire { token, not_after, .. }
        | Op::Adopt { token, not_after, .. }
        | Op::TakeOver { token, not_after, .. }) = op
        else {
            return;
        };
        let left = match self.outer.server_now(name) {
            Some(now) if *not_after < u64::MAX => Duration::from_micros(not_after.saturating_sub(now)),
            _ => LONGEST_UNACKNOWLEDGED,
        };
        let now = self.clock.now();
        let until = now + left;
        self.bids.change(token, now, |bid| bid.may_execute_until = bid.may_execute_until.max(Some(until)));
    }

    /// The bid is over: undoes in the background what may be left of it in the outer store. After a release, `undo` is that release: only
    /// a release gives unused fences back, and a leave keeps all of them reserved.
    pub(super) fn clear_outside(&self, name: &Name, token: &Token, undo: Op, was_answered: bool) {
        let bid = self.bids.end(token);
        if !self.policy.may_degrade() {
            // The caller got an error, and asks again.
            return;
        }
        let ttl = bid.ttl.max(if self.is_foreign(token) { FOREIGN_TTL } else { UNKNOWN_TTL });
        if let Some(token) = bid.replaced {
            self.compensations.undo_now(name, Op::Leave { token }, ttl);
        }
        if !(was_answered || bid.began_alone && bid.may_execute_until.is_none()) {
            self.compensations.undo_now(name, undo.clone(), ttl);
        }
        if let Some(moment) = bid.may_execute_until {
            self.compensations.undo_after(moment, name, undo, ttl);
        }
    }

    /// How long the outer store may be silent if a lease lasts for `ttl`: half of the time that the caller waits.
    pub(super) fn silence(&self, ttl: Duration) -> Duration {
        let ttl = if ttl.is_zero() { UNKNOWN_TTL } else { ttl };
        (self.timeout.unwrap_or(ttl / 4) / 2).min(LONGEST_SILENCE)
    }

    /// How long the caller waits for an answer.
    pub(super) fn time_left(&self, name: &Name, not_after: u64) -> Duration {
        let now = self.inner.server_now(name).unwrap_or(not_after);
        Duration::from_micros(not_after.saturating_sub(now)).min(LONGEST_WAIT)
    }

    /// A moment of the inner store's clock, on the outer store's.
    pub(super) fn translated(&self, name: &Name, not_after: u64) -> u64 {
        match (self.inner.server_now(name), self.outer.server_now(name)) {
            (Some(inner), Some(outer)) => outer.saturating_add(not_after.saturating_sub(inner)),
            _ => u64::MAX,
        }
    }
}

impl Target for Stores {
    fn undo(&self, name: &Name, undo: Op) -> Pending<()> {
        let Some(stores) = self.this.upgrade() else { return Pending::now(Ok(())) };
        let name = name.clone();
        Pending::Later(Box::pin(async move { stores.undo_outside(&name, undo).await.map(drop) }))
    }
}

/// A request to the outer store. The caller may drop it before the answer comes.
struct Unacknowledged<'a> {
    stores: &'a Stores,
    name: &'a Name,
    op: &'a Op,
    is_answered: bool,
}

impl Drop for Unacknowledged<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.stores.note_unacknowledged(self.name, self.op);
        }
    }
}
