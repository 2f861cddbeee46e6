//! One operation on both stores, step by step.
//!
//! Every step is idempotent by its token, so that an operation whose answer was lost is asked again from the start. What a step has taken is
//! undone where the next one fails, unless whoever asked is known to ask again or to leave: then the inner lease is kept for it.

use std::time::Duration;

use super::Pair;
use crate::error::Error;
use crate::name::Name;
use crate::owner::Token;
use crate::record::{BEAT, Op, Reply, Wait};
use crate::url::Degrade;

/// How long an inner lease lasts at least while the outer one is waited for: several beats.
const WHILE_WAITING: Duration = Duration::from_secs(3);
/// How long the outer store may be silent, at the most, before it is gone on without.
const LONGEST_SILENCE: Duration = Duration::from_secs(1);

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
        match op {
            Op::Acquire { token, ttl, wait, floor, not_after, polls: _ } => {
                self.acquire(name, Ask { token, ttl, wait, floor, not_after }).await
            }
            Op::Renew { ref token, ttl } | Op::Detach { ref token, ttl } => {
                let token = token.clone();
                self.renew(name, &token, ttl, op).await
            }
            Op::Release { token, used } => self.release(name, token, used).await,
            Op::Leave { ref token } | Op::Death { ref token } => {
                self.bids.end(token);
                let outside = self.outside(name, op.clone(), LONGEST_SILENCE).await;
                self.inside(name, op).await?;
                match outside {
                    Err(error) if !self.may_go_on_without(&error) => Err(error),
                    _ => Ok(Reply::Done),
                }
            }
            Op::Raise { ref token, .. } => match self.outside(name, op.clone(), LONGEST_SILENCE).await? {
                Reply::Granted { fence } => self.write_back(name, token, fence).await,
                reply => Ok(reply),
            },
            Op::Adopt { .. } | Op::TakeOver { .. } => self.seize(name, op).await,
            Op::Break { token, fence } => self.break_lease(name, token, fence).await,
            Op::Inspect => self.inspect(name).await,
        }
    }

    async fn inside(&self, name: &Name, op: Op) -> Result<Reply, Error> {
        Ok(self.inner.execute(name, op).await?.reply)
    }

    /// Asks the outer store. Where it can be gone on without, its silence must end before whoever asked gives up.
    async fn outside(&self, name: &Name, op: Op, silence: Duration) -> Result<Reply, Error> {
        let asked = self.outer.execute(name, op);
        let answer = match self.degrade {
            Degrade::Never => asked.await,
            Degrade::Allow => {
                let limit = self.clock.now() + silence.min(LONGEST_SILENCE);
                self.clock.until(limit, asked).await.unwrap_or_else(|| {
                    Err(Error::unanswered(format!(
                        "outer store did not answer within {silence:?}; is it cut off?"
                    )))
                })
            }
        };
        self.saw_outer(answer.as_ref().err());
        Ok(answer?.reply)
    }

    async fn acquire(&self, name: &Name, ask: Ask) -> Result<Reply, Error> {
        // Whoever can't get the outer one must not keep others from the inner one.
        if self.degrade == Degrade::Never
            && let Some(error) = self.outer.outage()
        {
            self.saw_outer(Some(&error));
            return Err(error);
        }
        let standing = self.bids.standing(&ask.token);
        let wait = |place: Option<u64>| match (ask.wait, place) {
            (Wait::No, _) => Wait::No,
            (_, Some(place)) => Wait::Keep { place },
            (_, None) => Wait::Join,
        };
        let ttl = if ask.wait == Wait::No { ask.ttl } else { ask.ttl.max(WHILE_WAITING) };
        let inner = Op::Acquire {
            token: ask.token.clone(),
            ttl,
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
                    self.outside(name, Op::Leave { token: ask.token }, LONGEST_SILENCE).await?;
                }
                return Ok(reply);
            }
        };
        let left = self.time_left(ask.not_after);
        let outer = Op::Acquire {
            token: ask.token.clone(),
            ttl: ask.ttl,
            wait: wait(standing.outer),
            polls: self.outer.polls(),
            floor: ask.floor.max(fence),
            not_after: self.translated(ask.not_after),
        };
        match self.outside(name, outer, left / 2).await {
            Ok(Reply::Granted { fence }) => {
                self.bids.end(&ask.token);
                self.write_back(name, &ask.token, fence).await
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
                Ok(Reply::Granted { fence })
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

    /// Gives the inner lease back: the other one was not to be had.
    async fn undo(&self, name: &Name, token: Token) -> Result<(), Error> {
        self.bids.end(&token);
        self.inside(name, Op::Leave { token }).await?;
        Ok(())
    }

    /// The inner record learns which fences the outer one gave (I3).
    async fn write_back(&self, name: &Name, token: &Token, fence: u64) -> Result<Reply, Error> {
        let op = Op::Raise { token: token.clone(), fence };
        let reply = self.inside(name, op).await?;
        if let Reply::Granted { fence: start } = reply
            && start == fence
        {
            return Ok(reply);
        }
        // It ended in between.
        let op = Op::Leave { token: token.clone() };
        self.inside(name, op.clone()).await?;
        self.outside(name, op, LONGEST_SILENCE).await?;
        Err(Error::unavailable("inner lease ended while the outer one was asked for; try again"))
    }

    async fn renew(&self, name: &Name, token: &Token, ttl: Duration, op: Op) -> Result<Reply, Error> {
        let inner = self.inside(name, op.clone()).await?;
        if inner != Reply::Done {
            return Ok(inner);
        }
        match self.outside(name, op, ttl / 8).await {
            Ok(Reply::Done) => {
                self.bids.change(token, |standing| standing.is_degraded = false);
                Ok(Reply::Done)
            }
            Ok(Reply::NotHeld { .. }) if self.bids.is_degraded(token) => Ok(Reply::Done),
            Ok(reply) => Ok(reply),
            Err(error) if self.may_go_on_without(&error) => {
                self.bids.change(token, |standing| standing.is_degraded = true);
                Ok(Reply::Done)
            }
            Err(error) => Err(error),
        }
    }

    /// Outer first: nobody may have the inner lease and find the outer one still taken by the one before on its own machine.
    async fn release(&self, name: &Name, token: Token, used: u64) -> Result<Reply, Error> {
        let op = || Op::Release { token: token.clone(), used };
        let outer = match self.outside(name, op(), LONGEST_SILENCE).await {
            Ok(reply) => reply,
            Err(error) if self.may_go_on_without(&error) => Reply::Done,
            Err(error) => return Err(error),
        };
        let was_degraded = self.bids.end(&token).is_degraded;
        let inner = self.inside(name, op()).await?;
        Ok(if inner == Reply::Done && !was_degraded { outer } else { inner })
    }

    /// Outer first: where it is out of reach, or refuses, nobody on this machine loses anything.
    async fn seize(&self, name: &Name, op: Op) -> Result<Reply, Error> {
        let (Op::Adopt { token, not_after, .. } | Op::TakeOver { token, not_after, .. }) = &op else {
            unreachable!("only for what takes a lease past the queue");
        };
        let (token, left) = (token.clone(), self.time_left(*not_after));
        let outer = match self.outside(name, self.with(op.clone(), None, true), left / 2).await {
            Ok(Reply::Granted { fence }) => Some(fence),
            Ok(reply) => return Ok(reply),
            Err(error) if self.may_go_on_without(&error) => None,
            Err(error) => return Err(error),
        };
        let inner = match self.inside(name, self.with(op, outer, false)).await? {
            Reply::Granted { fence } => fence,
            reply => {
                self.outside(name, Op::Leave { token }, LONGEST_SILENCE).await?;
                return Ok(reply);
            }
        };
        let Some(_) = outer else {
            self.bids.change(&token, |standing| standing.is_degraded = true);
            return Ok(Reply::Granted { fence: inner });
        };
        match self.outside(name, Op::Raise { token: token.clone(), fence: inner }, left / 2).await? {
            Reply::Granted { fence } => self.write_back(name, &token, fence).await,
            // Another one seized it in between.
            reply => {
                self.undo(name, token).await?;
                Ok(reply)
            }
        }
    }

    /// An operation that seizes, as it goes to one of the stores.
    fn with(&self, mut op: Op, seen: Option<u64>, is_outer: bool) -> Op {
        if let Op::Adopt { floor, not_after, .. } | Op::TakeOver { floor, not_after, .. } = &mut op {
            *floor = (*floor).max(seen.unwrap_or(0));
            if is_outer {
                *not_after = self.translated(*not_after);
            }
        }
        op
    }

    /// Each store compares what it knows of the lease; its fence in the inner one is another.
    async fn break_lease(&self, name: &Name, token: Token, fence: u64) -> Result<Reply, Error> {
        let outer = match self.outside(name, Op::Break { token: token.clone(), fence }, LONGEST_SILENCE).await
        {
            Ok(reply) => Some(reply),
            Err(error) if self.may_go_on_without(&error) => None,
            Err(error) => return Err(error),
        };
        let held_inside = match self.inside(name, Op::Inspect).await? {
            Reply::Seen { holding, .. } => holding.filter(|holding| holding.token == token),
            _ => None,
        };
        let inner = match held_inside {
            // What was inspected may have been the inner lease alone.
            Some(holding) if outer == Some(Reply::Done) || holding.fence == fence => {
                Some(self.inside(name, Op::Break { token, fence: holding.fence }).await?)
            }
            _ => None,
        };
        Ok(match (outer, inner) {
            (Some(Reply::Done), _) | (_, Some(Reply::Done)) => Reply::Done,
            (Some(reply), _) | (None, Some(reply)) => reply,
            (None, None) => Reply::NotHeld { holder: None },
        })
    }

    /// Who holds it outside; or, where nobody does, inside. Who waits outside is ahead of those who wait here.
    async fn inspect(&self, name: &Name) -> Result<Reply, Error> {
        let outer = match self.outside(name, Op::Inspect, LONGEST_SILENCE).await {
            Ok(reply) => Some(reply),
            Err(error) if self.may_go_on_without(&error) => None,
            Err(error) => return Err(error),
        };
        let inner = self.inside(name, Op::Inspect).await?;
        let (
            Some(Reply::Seen { holding, mut waiters, broken }),
            Reply::Seen { holding: inside, waiters: behind, broken: inside_broken },
        ) = (outer, inner.clone())
        else {
            return Ok(inner);
        };
        // Places are moments of the clock of their store.
        let now = (self.inner.server_now().unwrap_or(0), self.outer.server_now().unwrap_or(0));
        for (_, place) in &mut waiters {
            *place = now.0.saturating_sub(now.1.saturating_sub(*place));
        }
        // Whoever holds the inner one and waits outside is seen there.
        let inside = inside.filter(|inside| waiters.iter().all(|(token, _)| *token != inside.token));
        waiters.extend(behind);
        Ok(Reply::Seen { holding: holding.or(inside), waiters, broken: broken.or(inside_broken) })
    }

    /// How long whoever asked waits for an answer.
    fn time_left(&self, not_after: u64) -> Duration {
        let now = self.inner.server_now().unwrap_or(not_after);
        Duration::from_micros(not_after.saturating_sub(now)).min(2 * LONGEST_SILENCE)
    }

    /// A moment of the inner store's clock, on the outer one's.
    fn translated(&self, not_after: u64) -> u64 {
        match (self.inner.server_now(), self.outer.server_now()) {
            (Some(inner), Some(outer)) => outer.saturating_add(not_after.saturating_sub(inner)),
            _ => u64::MAX,
        }
    }
}

const _: () = assert!(WHILE_WAITING.as_millis() > 3 * BEAT.as_millis());
