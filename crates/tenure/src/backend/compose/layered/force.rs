//! Operations that pass the queue, and inspection: on both stores.
//!
//! Each store compares what it knows of a lease. The outer store goes first: it is the one that may be out of reach, and if it refuses, nobody
//! on this machine loses anything.

use std::time::Duration;

use super::Stores;
use super::outside::LONGEST_SILENCE;
use crate::backend::compose::Takeover;
use crate::core::record::{Op, Reply};
use crate::types::error::Error;
use crate::types::name::Name;
use crate::types::owner::Token;

impl Stores {
    /// Another client's lease is operated on with a ticket.
    pub(super) async fn refused_foreign(&self, name: &Name, token: &Token) -> Result<Option<Reply>, Error> {
        match self.is_foreign(token) {
            true => self.refused_ticket(name, token, None).await,
            false => Ok(None),
        }
    }

    /// A ticket is valid on the machine whose inner store holds its lease. Another machine refuses it before it changes the outer store.
    pub(super) async fn refused_ticket(
        &self,
        name: &Name,
        ticket: &Token,
        successor: Option<&Token>,
    ) -> Result<Option<Reply>, Error> {
        self.refuse_in_outage()?;
        let holder = match self.inside(name, Op::Inspect).await? {
            Reply::Seen { holding, .. } => holding.map(|holding| holding.token),
            _ => None,
        };
        let is_valid = holder.as_ref().is_some_and(|holder| holder == ticket || Some(holder) == successor);
        Ok(if is_valid { None } else { Some(Reply::NotHeld { holder }) })
    }

    pub(super) async fn take_over(&self, name: &Name, request: Takeover) -> Result<Reply, Error> {
        let Takeover { ticket, token, ttl, not_after, .. } = request.clone();
        let left = self.time_left(name, not_after);
        let sent = self.clock.now();
        self.note_ttl(&token, ttl);
        let asked = match self.refuse_unusable(&token) {
            Ok(()) => {
                let request = Takeover { not_after: self.translated(name, not_after), ..request.clone() };
                self.outside(name, request.op(), left / 2).await
            }
            Err(unusable) => Err(unusable),
        };
        match self.policy.tolerate(asked)? {
            Some(Reply::Granted { fence }) => {
                let request = Takeover { floor: request.floor.max(fence), ..request };
                let reply = self.take_over_inside(name, &request, left / 2).await;
                if let Ok(Reply::Granted { .. }) = reply {
                    self.holds_both(&token, ttl, sent);
                }
                reply.map_err(Error::half_way)
            }
            // The lease of a ticket may have been degraded, and so be in the inner store alone.
            Some(Reply::NotHeld { holder: None }) if self.policy.may_degrade() => {
                self.take_over_inner_only(name, request, ticket).await
            }
            Some(reply) => Ok(reply),
            None => self.take_over_inner_only(name, request, ticket).await,
        }
    }

    async fn take_over_inner_only(
        &self,
        name: &Name,
        request: Takeover,
        ticket: Option<Token>,
    ) -> Result<Reply, Error> {
        let reply = self.inside(name, request.op()).await?;
        if let Reply::Granted { .. } = reply {
            self.holds_inner_only(&request.token, request.ttl);
            self.bids.change(&request.token, self.clock.now(), |bid| bid.replaced = ticket);
        }
        Ok(reply)
    }

    /// The outer store has granted it. Each store gave a range of fences of its own: the higher one counts in both.
    async fn take_over_inside(
        &self,
        name: &Name,
        request: &Takeover,
        silence: Duration,
    ) -> Result<Reply, Error> {
        let token = &request.token;
        let fence = match self.inside(name, request.op()).await? {
            Reply::Granted { fence } => fence,
            reply => {
                self.withdraw(name, token).await?;
                return Ok(reply);
            }
        };
        match self.outside(name, Op::Raise { token: token.clone(), fence }, silence).await? {
            Reply::Granted { fence } => self.write_back(name, token, fence).await,
            // Another client took it over in between.
            reply => {
                self.leave_inside(name, token.clone()).await?;
                Ok(reply)
            }
        }
    }

    /// Each store compares what it knows of the lease, which may have different fences in the two.
    pub(super) async fn break_lease(&self, name: &Name, token: Token, fence: u64) -> Result<Reply, Error> {
        let outer = self.outside(name, Op::Break { token: token.clone(), fence }, LONGEST_SILENCE).await;
        let outer = self.policy.tolerate(outer)?;
        let held_inside = match self.inside(name, Op::Inspect).await? {
            Reply::Seen { holding, .. } => holding.filter(|holding| holding.token == token),
            _ => None,
        };
        let inner = match held_inside {
            // The caller may have inspected the inner lease alone.
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

    /// The holder in the outer store, or else in the inner one. Those who wait outside are ahead of those who wait on this machine.
    pub(super) async fn inspect(&self, name: &Name) -> Result<Reply, Error> {
        let outer = self.policy.tolerate(self.outside(name, Op::Inspect, LONGEST_SILENCE).await)?;
        let inner = self.inside(name, Op::Inspect).await?;
        let (
            Some(Reply::Seen { holding, mut waiters, broken }),
            Reply::Seen { holding: inside, waiters: behind, broken: inside_broken },
        ) = (outer, inner.clone())
        else {
            return Ok(inner);
        };
        let holding = match holding {
            Some(holding) if self.ends_dead(name, &holding).await => None,
            holding => holding,
        };
        // `joined_at` is a moment of the clock of its store.
        let now = (self.inner.server_now(name).unwrap_or(0), self.outer.server_now(name).unwrap_or(0));
        for (_, joined_at) in &mut waiters {
            *joined_at = now.0.saturating_sub(now.1.saturating_sub(*joined_at));
        }
        // The holder of the inner lease that waits outside is listed there.
        let inside = inside.filter(|inside| waiters.iter().all(|(token, _)| *token != inside.token));
        waiters.extend(behind);
        Ok(Reply::Seen { holding: holding.or(inside), waiters, broken: broken.or(inside_broken) })
    }
}
