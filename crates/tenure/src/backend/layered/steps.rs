//! One operation on both stores, step by step.
//!
//! Every step is idempotent by its token, so that an operation whose answer was lost is asked again from the start. What a step has taken is
//! undone where the next one fails, unless whoever asked is known to ask again or to leave: then the inner lease is kept for it.

use std::time::Duration;

use super::Pair;
use crate::backoff::Backoff;
use crate::clock::Moment;
use crate::error::Error;
use crate::name::Name;
use crate::owner::Token;
use crate::record::{BEAT, Op, Reply, Wait};
use crate::url::Degrade;

/// How long an inner lease lasts while the outer one is asked and waited for: three beats, and no longer, whatever the ttl. Whoever is cut off
/// from the outer store meanwhile keeps the others of its machine waiting for so long.
const WHILE_WAITING: Duration = Duration::from_millis(1_250);
/// How long the outer store may be silent, at the most, before it is gone on without.
pub(super) const LONGEST_SILENCE: Duration = Duration::from_secs(1);

/// What an acquire asks for.
struct Ask {
    token: Token,
    ttl: Duration,
    wait: Wait,
    floor: u64,
    not_after: u64,
}

impl Pair {
    pub(super) async fn execute(&self, name: &Name, op: Op) -> Result<Reply, Error> {
        if let Some(reply) = self.refused_ticket(name, &op).await? {
            return Ok(reply);
        }
        match op {
            Op::Acquire { token, ttl, wait, floor, not_after, polls: _ } => {
                self.acquire(name, Ask { token, ttl, wait, floor, not_after }).await
            }
            Op::Renew { ref token, ttl } | Op::Detach { ref token, ttl } => {
                let token = token.clone();
                self.renew(name, &token, ttl, op).await
            }
            Op::Release { token, used } => self.release(name, token, used).await,
            Op::Leave { .. } | Op::Death { .. } => self.leave(name, op).await,
            Op::Raise { ref token, .. } => match self.outside(name, op.clone(), LONGEST_SILENCE).await? {
                Reply::Granted { fence } => self.write_back(name, token, fence).await,
                reply => Ok(reply),
            },
            Op::Adopt { .. } | Op::TakeOver { .. } => self.seize(name, op).await,
            Op::Break { token, fence } => self.break_lease(name, token, fence).await,
            Op::Inspect => self.inspect(name).await,
        }
    }

    pub(super) async fn leave(&self, name: &Name, op: Op) -> Result<Reply, Error> {
        if let Op::Leave { token } | Op::Death { token } = &op {
            self.bids.end(token);
        }
        // A silent outer store must not keep the inner lease from those of this machine.
        let limit = self.clock.now() + LONGEST_SILENCE;
        let outside = self.seen(self.ask_outside(name, op.clone(), Some(limit)).await);
        self.inside(name, op).await?;
        match outside {
            Err(error) if !self.may_go_on_without(&error) => Err(error),
            _ => Ok(Reply::Done),
        }
    }

    pub(super) async fn inside(&self, name: &Name, op: Op) -> Result<Reply, Error> {
        Ok(self.inner.execute(name, op).await?.reply)
    }

    /// Asks the outer store. Where it can be gone on without, it is asked again while that breaks off, and its silence must end before whoever
    /// asked gives up: one reply that is lost is no outage.
    pub(super) async fn outside(&self, name: &Name, op: Op, silence: Duration) -> Result<Reply, Error> {
        if self.degrade == Degrade::Never {
            return self.seen(self.ask_outside(name, op, None).await);
        }
        let limit = self.clock.now() + silence.min(LONGEST_SILENCE);
        let mut backoff = Backoff::new();
        loop {
            let answer = self.ask_outside(name, op.clone(), Some(limit)).await;
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
                Err(Error::unanswered("outer store did not answer in time; is it overloaded or cut off?"))
            }),
        };
        Ok(answer?.reply)
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

    async fn acquire(&self, name: &Name, ask: Ask) -> Result<Reply, Error> {
        // Whoever can't get the outer one must not keep others from the inner one.
        self.refuse_in_outage()?;
        let standing = self.bids.standing(&ask.token);
        let wait = |place: Option<u64>| match (ask.wait, place) {
            (Wait::No, _) => Wait::No,
            (_, Some(place)) => Wait::Keep { place },
            (_, None) => Wait::Join,
        };
        let inner = Op::Acquire {
            token: ask.token.clone(),
            ttl: WHILE_WAITING,
            wait: wait(standing.inner),
            polls: false,
            floor: ask.floor,
            not_after: ask.not_after,
        };
        let fence = match self.inside(name, inner).await? {
            Reply::Granted { fence } => fence,
            reply => {
                if let Reply::Waiting { place, .. } = reply {
                    self.bids.change(&ask.token, |standing| standing.inner = Some(place));
                }
                // Its inner lease ended while it waited outside: whoever has it now must not find this one ahead there.
                if standing.outer.is_some() {
                    self.bids.change(&ask.token, |standing| standing.outer = None);
                    match self.outside(name, Op::Leave { token: ask.token }, LONGEST_SILENCE).await {
                        Err(error) if !self.may_go_on_without(&error) => return Err(error),
                        _ => {}
                    }
                }
                return Ok(reply);
            }
        };
        let left = self.time_left(name, ask.not_after);
        let outer = Op::Acquire {
            token: ask.token.clone(),
            ttl: ask.ttl,
            wait: wait(standing.outer),
            polls: self.outer.polls(name),
            floor: ask.floor.max(fence),
            not_after: self.translated(name, ask.not_after),
        };
        match self.outside(name, outer, left / 2).await {
            Ok(Reply::Granted { fence }) => {
                self.bids.end(&ask.token);
                match self.write_back(name, &ask.token, fence).await? {
                    Reply::Granted { .. } => self.lengthen_inside(name, ask.token, ask.ttl, fence).await,
                    reply => Ok(reply),
                }
            }
            Ok(reply @ Reply::Waiting { place, .. }) => {
                self.bids.change(&ask.token, |standing| standing.outer = Some(place));
                Ok(reply)
            }
            Ok(reply) => {
                self.undo(name, ask.token).await?;
                Ok(reply)
            }
            Err(error) if self.may_go_on_without(&error) => {
                self.bids.change(&ask.token, |standing| {
                    (standing.inner, standing.outer, standing.is_degraded) = (None, None, true);
                });
                self.lengthen_inside(name, ask.token, ask.ttl, fence).await
            }
            Err(error) => {
                // Whoever beats asks again, or leaves.
                if !matches!(ask.wait, Wait::Keep { .. }) {
                    self.undo(name, ask.token).await?;
                }
                Err(error)
            }
        }
    }

    /// Makes a lease of what was held while the outer store was asked.
    async fn lengthen_inside(
        &self,
        name: &Name,
        token: Token,
        ttl: Duration,
        fence: u64,
    ) -> Result<Reply, Error> {
        match self.inside(name, Op::Renew { token: token.clone(), ttl }).await? {
            Reply::Done => Ok(Reply::Granted { fence }),
            _ => self.too_late(name, token).await,
        }
    }

    /// The inner lease ended before all was done: whoever asked took too long.
    async fn too_late(&self, name: &Name, token: Token) -> Result<Reply, Error> {
        self.leave(name, Op::Leave { token }).await?;
        Ok(Reply::TooLate)
    }

    /// Gives the inner lease back: the other one was not to be had.
    pub(super) async fn undo(&self, name: &Name, token: Token) -> Result<(), Error> {
        self.bids.end(&token);
        self.inside(name, Op::Leave { token }).await?;
        Ok(())
    }

    /// The inner record learns which fences the outer one gave (I3).
    pub(super) async fn write_back(&self, name: &Name, token: &Token, fence: u64) -> Result<Reply, Error> {
        let op = Op::Raise { token: token.clone(), fence };
        let reply = self.inside(name, op).await?;
        if let Reply::Granted { fence: start } = reply
            && start == fence
        {
            return Ok(reply);
        }
        self.too_late(name, token.clone()).await
    }

    /// Outer first: where it is out of reach and must not be, the inner lease ends no later than it would alone.
    async fn renew(&self, name: &Name, token: &Token, ttl: Duration, op: Op) -> Result<Reply, Error> {
        let is_degraded = match self.outside(name, op.clone(), ttl / 8).await {
            Ok(Reply::Done) => false,
            Ok(Reply::NotHeld { holder }) if self.outlives_outer(token, holder.as_ref()) => true,
            Ok(reply) => return Ok(reply),
            Err(error) if self.may_go_on_without(&error) => true,
            Err(error) => return Err(error),
        };
        let inner = self.inside(name, op).await?;
        if inner == Reply::Done {
            self.bids.change(token, |standing| standing.is_degraded = is_degraded);
        }
        Ok(inner)
    }

    /// Whether a lease that the outer store does not know counts by the inner one alone: one that was degraded before; or one of another client,
    /// of which that is not known here, where nobody else holds the name.
    fn outlives_outer(&self, token: &Token, holder: Option<&Token>) -> bool {
        let may_have_been = self.degrade == Degrade::Allow && self.is_foreign(token) && holder.is_none();
        self.bids.is_degraded(token) || may_have_been
    }

    /// Whether it is of another client: one that was detached.
    pub(super) fn is_foreign(&self, token: &Token) -> bool {
        token.session().as_ref() != Some(self.inner.session().id())
    }

    /// Outer first: nobody may have the inner lease and find the outer one still taken by the one before on its own machine.
    async fn release(&self, name: &Name, token: Token, used: u64) -> Result<Reply, Error> {
        let op = || Op::Release { token: token.clone(), used };
        let outer = match self.release_outside(name, op()).await {
            Ok(reply) => reply,
            Err(error) if self.may_go_on_without(&error) => Reply::Done,
            Err(error) => return Err(error),
        };
        let outlives =
            matches!(&outer, Reply::NotHeld { holder } if self.outlives_outer(&token, holder.as_ref()));
        let inner = self.inside(name, op()).await?;
        let was_degraded = self.bids.end(&token).is_degraded || outlives;
        Ok(if inner == Reply::Done && !was_degraded { outer } else { inner })
    }

    /// As [`outside`](Self::outside), but that what is gone after an answer that did not come was given back by that request.
    async fn release_outside(&self, name: &Name, op: Op) -> Result<Reply, Error> {
        if self.degrade == Degrade::Never {
            return self.seen(self.ask_outside(name, op, None).await);
        }
        let limit = self.clock.now() + LONGEST_SILENCE;
        self.seen(match self.ask_outside(name, op.clone(), Some(limit)).await {
            Err(error) if error.may_have_run() && self.clock.now() < limit => {
                let again = self.ask_outside(name, op, Some(limit)).await;
                again.map(|_| Reply::Done)
            }
            answer => answer,
        })
    }

    /// How long whoever asked waits for an answer.
    pub(super) fn time_left(&self, name: &Name, not_after: u64) -> Duration {
        let now = self.inner.server_now(name).unwrap_or(not_after);
        Duration::from_micros(not_after.saturating_sub(now)).min(2 * LONGEST_SILENCE)
    }

    /// A moment of the inner store's clock, on the outer one's.
    pub(super) fn translated(&self, name: &Name, not_after: u64) -> u64 {
        match (self.inner.server_now(name), self.outer.server_now(name)) {
            (Some(inner), Some(outer)) => outer.saturating_add(not_after.saturating_sub(inner)),
            _ => u64::MAX,
        }
    }
}

const _: () = assert!(WHILE_WAITING.as_millis() > 3 * BEAT.as_millis());
