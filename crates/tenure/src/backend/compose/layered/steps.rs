//! One operation on both stores, step by step. Renewals and releases go to the outer store first.
//!
//! So if the outer store is required and out of reach, the inner lease ends no later than it would alone; and a process that is handed the
//! inner lease finds the outer one released.

use std::time::Duration;

use super::Stores;
use super::outside::LONGEST_SILENCE;
use crate::backend::compose::{Acquire, Takeover};
use crate::core::record::{Op, Reply};
use crate::types::error::Error;
use crate::types::name::Name;
use crate::types::owner::Token;

impl Stores {
    pub(super) async fn execute(&self, name: &Name, op: Op) -> Result<Reply, Error> {
        match op {
            Op::Acquire { token, ttl, wait, floor, not_after, polls: _ } => {
                let request = Acquire { token: token.clone(), ttl, wait, floor, not_after };
                let reply = self.acquire(name, request).await?;
                self.answered(name, token, reply)
            }
            Op::Adopt { from, token, ttl, floor, not_after } => {
                if let Some(reply) = self.refused_ticket(name, &from, Some(&token)).await? {
                    return Ok(reply);
                }
                let request = Takeover { ticket: Some(from), token: token.clone(), ttl, floor, not_after };
                let reply = self.take_over(name, request).await?;
                self.answered(name, token, reply)
            }
            Op::TakeOver { token, ttl, floor, not_after } => {
                let request = Takeover { ticket: None, token: token.clone(), ttl, floor, not_after };
                let reply = self.take_over(name, request).await?;
                self.answered(name, token, reply)
            }
            Op::Renew { ref token, ttl } => self.renew(name, token, ttl, op.clone()).await,
            Op::Detach { ref token, ttl } => match self.refused_foreign(name, token).await? {
                Some(reply) => Ok(reply),
                None => self.renew(name, token, ttl, op.clone()).await,
            },
            Op::Release { token, used } => match self.refused_foreign(name, &token).await? {
                Some(reply) => Ok(reply),
                None => self.release(name, token, used).await,
            },
            Op::Leave { ref token } | Op::Death { ref token } => self.leave(name, token, op.clone()).await,
            Op::Raise { ref token, .. } => match self.outside(name, op.clone(), LONGEST_SILENCE).await? {
                Reply::Granted { fence } => self.write_back(name, token, fence).await,
                reply => Ok(reply),
            },
            Op::Break { token, fence } => self.break_lease(name, token, fence).await,
            Op::Inspect => self.inspect(name).await,
        }
    }

    /// A refused caller may never come back with its token, and does not know of an unacknowledged request to the outer store.
    fn answered(&self, name: &Name, token: Token, reply: Reply) -> Result<Reply, Error> {
        match reply {
            Reply::Busy { .. } => self.clear_outside(name, &token, Op::Leave { token: token.clone() }, true),
            // The layer above decides whether the bid continues. It must know of the unacknowledged request.
            Reply::TooLate if self.bids.get(&token).may_execute_until.is_some() => {
                return Err(Error::unanswered("outer store did not answer in time").fix("is it overloaded?"));
            }
            _ => {}
        }
        Ok(reply)
    }

    async fn leave(&self, name: &Name, token: &Token, op: Op) -> Result<Reply, Error> {
        let leave = Op::Leave { token: token.clone() };
        let outside = self.undo_outside(name, leave.clone()).await;
        self.inside(name, op).await?;
        let outside = self.policy.tolerate(outside)?;
        self.clear_outside(name, token, leave, outside.is_some());
        Ok(Reply::Done)
    }

    pub(super) async fn inside(&self, name: &Name, op: Op) -> Result<Reply, Error> {
        Ok(self.inner.execute(name, op).await?.reply)
    }

    async fn renew(&self, name: &Name, token: &Token, ttl: Duration, op: Op) -> Result<Reply, Error> {
        let sent = self.clock.now();
        let outside = self.outside(name, op.clone(), self.silence(ttl)).await;
        let is_proven = match self.policy.tolerate(outside)? {
            Some(Reply::Done) => true,
            Some(Reply::NotHeld { holder }) if self.outlives_outer(token, holder.as_ref()) => false,
            Some(reply) => return Ok(reply),
            None => false,
        };
        let inner = self.inside(name, op).await?;
        if inner == Reply::Done && self.policy.may_degrade() {
            self.bids.change(token, sent, |bid| {
                let last = if is_proven { &mut bid.proven } else { &mut bid.missed };
                *last = (*last).max(Some(sent));
                bid.ttl = bid.ttl.max(ttl);
            });
        }
        Ok(inner)
    }

    /// Whether the inner lease alone counts although the outer store does not know it: it was degraded before; or it is another client's,
    /// which may have been degraded, and nobody else holds the name.
    fn outlives_outer(&self, token: &Token, holder: Option<&Token>) -> bool {
        let may_have_been = self.policy.may_degrade() && self.is_foreign(token) && holder.is_none();
        self.bids.get(token).is_degraded() || may_have_been
    }

    /// Whether another client acquired the lease, and detached it.
    pub(super) fn is_foreign(&self, token: &Token) -> bool {
        token.session().as_ref() != Some(self.inner.session().id())
    }

    async fn release(&self, name: &Name, token: Token, used: u64) -> Result<Reply, Error> {
        let op = || Op::Release { token: token.clone(), used };
        let silence = self.silence(self.bids.get(&token).ttl);
        let outer = self.policy.tolerate(self.release_outside(name, op(), silence).await)?;
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
