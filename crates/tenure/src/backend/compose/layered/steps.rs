//! One operation on both stores, step by step. Renewing and giving back go to the outer store first.
//!
//! Where it is out of reach and must not be, an inner lease then ends no later than it would alone; and whoever is handed the inner lease finds
//! the outer one given back.

use std::time::Duration;

use super::TimePair;
use super::acquire::Ask;
use super::outside::LONGEST_SILENCE;
use crate::core::record::{Op, Reply};
use crate::types::error::Error;
use crate::types::name::Name;
use crate::types::owner::Token;
use crate::url::Degrade;

impl TimePair {
    pub(super) async fn execute(&self, name: &Name, op: Op) -> Result<Reply, Error> {
        if let Some(reply) = self.refused_ticket(name, &op).await? {
            return Ok(reply);
        }
        match op {
            Op::Acquire { token, ttl, wait, floor, not_after, polls: _ } => {
                let reply =
                    self.acquire(name, Ask { token: token.clone(), ttl, wait, floor, not_after }).await?;
                self.answered(name, token, reply)
            }
            Op::Renew { ref token, ttl } | Op::Detach { ref token, ttl } => {
                let token = token.clone();
                self.renew(name, &token, ttl, op).await
            }
            Op::Release { token, used } => self.release(name, token, used).await,
            Op::Leave { ref token } | Op::Death { ref token } => {
                let token = token.clone();
                self.leave(name, token, op).await
            }
            Op::Raise { ref token, .. } => match self.outside(name, op.clone(), LONGEST_SILENCE).await? {
                Reply::Granted { fence } => self.write_back(name, token, fence).await,
                reply => Ok(reply),
            },
            Op::Adopt { ref token, .. } | Op::TakeOver { ref token, .. } => {
                let token = token.clone();
                let reply = self.take_over_with(name, op).await?;
                self.answered(name, token, reply)
            }
            Op::Break { token, fence } => self.break_lease(name, token, fence).await,
            Op::Inspect => self.inspect(name).await,
        }
    }

    /// Whoever asked and was refused may never come back with its token, and does not know of a request here that was not answered.
    fn answered(&self, name: &Name, token: Token, reply: Reply) -> Result<Reply, Error> {
        match reply {
            // The bid is over.
            Reply::Busy { .. } => self.clear_outside(name, &token, Op::Leave { token: token.clone() }, true),
            // It may go on, or not: that is known above, once the request is known of there.
            Reply::TooLate if self.bids.standing(&token).may_execute_until.is_some() => {
                return Err(Error::unanswered("outer store did not answer in time").fix("is it overloaded?"));
            }
            _ => {}
        }
        Ok(reply)
    }

    async fn leave(&self, name: &Name, token: Token, op: Op) -> Result<Reply, Error> {
        let leave = Op::Leave { token: token.clone() };
        let outside = self.undo_outside(name, leave.clone()).await;
        self.inside(name, op).await?;
        match outside {
            Err(error) if !self.may_go_on_without(&error) => Err(error),
            answer => {
                self.clear_outside(name, &token, leave, answer.is_ok());
                Ok(Reply::Done)
            }
        }
    }

    pub(super) async fn inside(&self, name: &Name, op: Op) -> Result<Reply, Error> {
        Ok(self.inner.execute(name, op).await?.reply)
    }

    async fn renew(&self, name: &Name, token: &Token, ttl: Duration, op: Op) -> Result<Reply, Error> {
        let sent = self.clock.now();
        let is_proven = match self.outside(name, op.clone(), self.silence(ttl)).await {
            Ok(Reply::Done) => true,
            Ok(Reply::NotHeld { holder }) if self.outlives_outer(token, holder.as_ref()) => false,
            Ok(reply) => return Ok(reply),
            Err(error) if self.may_go_on_without(&error) => false,
            Err(error) => return Err(error),
        };
        let inner = self.inside(name, op).await?;
        if inner == Reply::Done && self.degrade == Degrade::Allow {
            self.bids.change(token, sent, |standing| {
                let last = if is_proven { &mut standing.proven } else { &mut standing.missed };
                *last = (*last).max(Some(sent));
                standing.ttl = standing.ttl.max(ttl);
            });
        }
        Ok(inner)
    }

    /// Whether a lease that the outer store does not know counts by the inner one alone: one that was degraded before; or one of another client,
    /// of which that is not known here, where nobody else holds the name.
    fn outlives_outer(&self, token: &Token, holder: Option<&Token>) -> bool {
        let may_have_been = self.degrade == Degrade::Allow && self.is_foreign(token) && holder.is_none();
        self.bids.standing(token).is_degraded() || may_have_been
    }

    /// Whether it is of another client: one that was detached.
    pub(super) fn is_foreign(&self, token: &Token) -> bool {
        token.session().as_ref() != Some(self.inner.session().id())
    }

    async fn release(&self, name: &Name, token: Token, used: u64) -> Result<Reply, Error> {
        let op = || Op::Release { token: token.clone(), used };
        let silence = self.silence(self.bids.standing(&token).ttl);
        let outer = match self.release_outside(name, op(), silence).await {
            Ok(reply) => Some(reply),
            Err(error) if self.may_go_on_without(&error) => None,
            Err(error) => return Err(error),
        };
        let is_outlived =
            matches!(&outer, Some(Reply::NotHeld { holder }) if self.outlives_outer(&token, holder.as_ref()));
        let inner = self.inside(name, op()).await?;
        self.clear_outside(name, &token, op(), outer.is_some());
        Ok(match outer {
            Some(outer) if inner == Reply::Done && !is_outlived => outer,
            _ => inner,
        })
    }
}
