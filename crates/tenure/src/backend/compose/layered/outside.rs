//! Asking the outer store, and taking back what was asked for there.
//!
//! Three things may be left outside when the inner store goes on without it: a lease that could not be given back, a place in the queue, and a
//! *ghost*, a request that was not answered and is executed later. The layer above knows nothing of them, because it got an answer. So
//! they are left in the background, until the outer store answers or all of it has ended by itself; and once more when a ghost
//! can't come any longer.

use std::sync::Weak;
use std::time::Duration;

use tokio::runtime::Handle;

use super::TimePair;
use crate::core::record::{Op, Reply};
use crate::time::backoff::Backoff;
use crate::time::clock::Moment;
use crate::types::error::Error;
use crate::types::name::Name;
use crate::types::owner::Token;
use crate::url::Degrade;

/// How long the outer store may be silent, at the most, before it is gone on without.
pub(super) const LONGEST_SILENCE: Duration = Duration::from_secs(1);
/// The longest that an answer is waited for, where whoever asked did not say.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// How long a request is minded that was sent before the outer store's clock was known, and does not say when it is too late.
const LONGEST_GHOST: Duration = Duration::from_secs(10);
/// How long a lease of another client may last outside, where that is not known.
const FOREIGN_TTL: Duration = Duration::from_secs(60);
const UNKNOWN_TTL: Duration = Duration::from_secs(2);
/// What clocks may be off where the end of a ghost is waited for.
const SLACK: Duration = Duration::from_millis(10);

impl TimePair {
    /// Asks the outer store. Where it can be gone on without, it is asked again while that breaks off, and its silence must end before whoever
    /// asked gives up: one reply that is lost is no outage.
    pub(super) async fn outside(&self, name: &Name, op: Op, silence: Duration) -> Result<Reply, Error> {
        if self.degrade == Degrade::Never {
            return self.seen(self.ask_outside(name, op, None).await);
        }
        let limit = self.clock.now() + silence.min(LONGEST_SILENCE);
        let mut backoff = Backoff::new();
        loop {
            let mut under_way = UnderWay { pair: self, name, op: &op, may_come: true };
            let answer = self.ask_outside(name, op.clone(), Some(limit)).await;
            under_way.may_come = answer.as_ref().is_err_and(Error::may_have_run);
            drop(under_way);
            let again = self.clock.now() + backoff.pause();
            match &answer {
                // An outage that is known is not waited out.
                Err(error)
                    if error.is_worth_asking_again() && again < limit && self.outer.outage().is_none() =>
                {
                    self.clock.sleep_until(again).await;
                }
                _ => return self.seen(answer),
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

    /// As [`outside`](Self::outside), but that what is gone after an answer that did not come was given back by that request.
    pub(super) async fn release_outside(
        &self,
        name: &Name,
        op: Op,
        silence: Duration,
    ) -> Result<Reply, Error> {
        if self.degrade == Degrade::Never {
            return self.seen(self.ask_outside(name, op, None).await);
        }
        let limit = self.clock.now() + silence;
        self.seen(match self.ask_outside(name, op.clone(), Some(limit)).await {
            Err(error) if error.may_have_run() && self.clock.now() < limit => {
                let again = self.ask_outside(name, op, Some(limit)).await;
                again.map(|_| Reply::Done)
            }
            answer => answer,
        })
    }

    /// Asks once, also where nobody may go on without an answer: a silent outer store must not keep the inner lease from those of this machine.
    pub(super) async fn undo_outside(&self, name: &Name, undo: Op) -> Result<Reply, Error> {
        let limit = self.clock.now() + LONGEST_SILENCE;
        self.seen(self.ask_outside(name, undo, Some(limit)).await)
    }

    /// Leaves outside with the token of a bid that goes on. Without an answer that token is of no use there any more.
    pub(super) async fn withdraw(&self, name: &Name, token: &Token) -> Result<(), Error> {
        let mark = |is_unusable| {
            self.bids.change(token, self.clock.now(), |standing| {
                (standing.outer, standing.is_unusable) = (None, is_unusable);
            });
        };
        mark(true);
        match self.undo_outside(name, Op::Leave { token: token.clone() }).await {
            Ok(_) => mark(false),
            Err(error) if self.may_go_on_without(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// An error where the outer store is not to be asked with this token.
    pub(super) fn refuse_spent(&self, token: &Token) -> Result<(), Error> {
        match self.bids.standing(token).is_unusable {
            false => Ok(()),
            true => Err(Error::unavailable("outer store did not answer when a request was taken back")
                .fix("try again")),
        }
    }

    /// An error where the outer store may not be missed and is known to be out of reach.
    pub(super) fn refuse_in_outage(&self) -> Result<(), Error> {
        match self.outer.outage().filter(|_| self.degrade == Degrade::Never) {
            None => Ok(()),
            Some(error) => {
                self.saw_outer(Some(&error));
                Err(error)
            }
        }
    }

    /// Whatever becomes of the request, this is how long what it takes outside would stay there.
    pub(super) fn note_ttl(&self, token: &Token, ttl: Duration) {
        if self.degrade == Degrade::Allow {
            self.bids.change(token, self.clock.now(), |standing| standing.ttl = standing.ttl.max(ttl));
        }
    }

    /// A request that takes something was not answered: until when it may still be executed.
    fn mind_ghost(&self, name: &Name, op: &Op) {
        let (Op::Acquire { token, not_after, .. }
        | Op::Adopt { token, not_after, .. }
        | Op::TakeOver { token, not_after, .. }) = op
        else {
            return;
        };
        let left = match self.outer.server_now(name) {
            Some(now) if *not_after < u64::MAX => Duration::from_micros(not_after.saturating_sub(now)),
            _ => LONGEST_GHOST,
        };
        let now = self.clock.now();
        let until = now + left;
        self.bids.change(token, now, |standing| {
            standing.may_execute_until = standing.may_execute_until.max(Some(until))
        });
    }

    /// The bid is over: takes back, in the background, what may be there of it outside. By `undo`, which is the release where there was one:
    /// only a release gives unused fences back, and a leave keeps all of them reserved.
    pub(super) fn clear_outside(&self, name: &Name, token: &Token, undo: Op, was_answered: bool) {
        let standing = self.bids.end(token);
        if self.degrade == Degrade::Never {
            // Whoever asked got an error, and asks again.
            return;
        }
        let now = self.clock.now();
        let ghost = standing.may_execute_until.map(|until| until + SLACK).filter(|until| now < *until);
        let is_clear = was_answered || (standing.began_alone && standing.may_execute_until.is_none());
        let Ok(runtime) = Handle::try_current() else { return };
        if is_clear && ghost.is_none() && standing.replaced.is_none() {
            return;
        }
        let ttl = if self.is_foreign(token) { standing.ttl.max(FOREIGN_TTL) } else { standing.ttl };
        let (pair, name) = (self.this.clone(), name.clone());
        runtime.spawn(async move {
            if let Some(replaced) = standing.replaced {
                undo_from(&pair, &name, &Op::Leave { token: replaced }, now, ttl).await;
            }
            if !is_clear {
                undo_from(&pair, &name, &undo, now, ttl).await;
            }
            if let Some(ghost) = ghost {
                undo_from(&pair, &name, &undo, ghost, ttl).await;
            }
        });
    }

    /// How long the outer store may be silent where a lease lasts for `ttl`: for half of the time that whoever asked waits. Where the ttl is not
    /// known, as that of a ticket, a short one is assumed.
    pub(super) fn silence(&self, ttl: Duration) -> Duration {
        let ttl = if ttl.is_zero() { UNKNOWN_TTL } else { ttl };
        (self.timeout.unwrap_or(ttl / 4) / 2).min(LONGEST_SILENCE)
    }

    /// How long whoever asked waits for an answer.
    pub(super) fn time_left(&self, name: &Name, not_after: u64) -> Duration {
        let now = self.inner.server_now(name).unwrap_or(not_after);
        Duration::from_micros(not_after.saturating_sub(now)).min(LONGEST_WAIT)
    }

    /// A moment of the inner store's clock, on the outer one's.
    pub(super) fn translated(&self, name: &Name, not_after: u64) -> u64 {
        match (self.inner.server_now(name), self.outer.server_now(name)) {
            (Some(inner), Some(outer)) => outer.saturating_add(not_after.saturating_sub(inner)),
            _ => u64::MAX,
        }
    }
}

/// A request to the outer store. Whoever asked may go away before the answer: then it may come as a ghost, too.
struct UnderWay<'a> {
    pair: &'a TimePair,
    name: &'a Name,
    op: &'a Op,
    may_come: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if self.may_come {
            self.pair.mind_ghost(self.name, self.op);
        }
    }
}

/// Undoes it outside from that moment on, until that is answered, or what is there has ended by itself. Keeps nothing open.
async fn undo_from(pair: &Weak<TimePair>, name: &Name, undo: &Op, from: Moment, ttl: Duration) {
    let Some(clock) = pair.upgrade().map(|pair| pair.clock.clone()) else { return };
    clock.sleep_until(from).await;
    let mut backoff = Backoff::new();
    loop {
        let Some(pair) = pair.upgrade() else { return };
        if pair.undo_outside(name, undo.clone()).await.is_ok() || clock.now() >= from + ttl {
            return;
        }
        drop(pair);
        clock.sleep_until(clock.now() + backoff.pause()).await;
    }
}
