//! What goes past the queue, and what only looks: on both stores.
//!
//! Each store compares what it knows of a lease. The outer one is asked first: it is the one that may be out of reach, and where it
//! refuses, nobody on this machine loses anything.

use std::time::Duration;

use super::TimePair;
use super::outside::LONGEST_SILENCE;
use crate::core::record::{Op, Reply};
use crate::types::error::Error;
use crate::types::name::Name;
use crate::types::owner::Token;
use crate::url::Degrade;

impl TimePair {
    /// A ticket is good where its lease is held inside. On another machine it is refused before anything is changed outside.
    pub(super) async fn refused_ticket(&self, name: &Name, op: &Op) -> Result<Option<Reply>, Error> {
        let (ticket, successor) = match op {
            Op::Adopt { from, token, .. } => (from, Some(token)),
            Op::Detach { token, .. } | Op::Release { token, .. } if self.is_foreign(token) => (token, None),
            _ => return Ok(None),
        };
        self.refuse_in_outage()?;
        let holder = match self.inside(name, Op::Inspect).await? {
            Reply::Seen { holding, .. } => holding.map(|holding| holding.token),
            _ => None,
        };
        let is_good = holder.as_ref().is_some_and(|holder| holder == ticket || Some(holder) == successor);
        Ok(if is_good { None } else { Some(Reply::NotHeld { holder }) })
    }

    /// Outer first: where it is out of reach, or refuses, nobody on this machine loses anything.
    pub(super) async fn take_over_with(&self, name: &Name, op: Op) -> Result<Reply, Error> {
        let (Op::Adopt { token, ttl, not_after, .. } | Op::TakeOver { token, ttl, not_after, .. }) = &op
        else {
            unreachable!("only for what takes a lease past the queue");
        };
        let (token, ttl, left) = (token.clone(), *ttl, self.time_left(name, *not_after));
        let sent = self.clock.now();
        self.note_ttl(&token, ttl);
        let asked = match self.refuse_spent(&token) {
            Ok(()) => self.outside(name, self.with(name, op.clone(), 0, true), left / 2).await,
            Err(spent) => Err(spent),
        };
        let outer = match asked {
            Ok(Reply::Granted { fence }) => Some(fence),
            Ok(Reply::NotHeld { holder: None }) if self.degrade == Degrade::Allow => None,
            Ok(reply) => return Ok(reply),
            Err(error) if self.may_go_on_without(&error) => None,
            Err(error) => return Err(error),
        };
        let Some(fence) = outer else {
            let replaced = if let Op::Adopt { from, .. } = &op { Some(from.clone()) } else { None };
            let reply = self.inside(name, self.with(name, op, 0, false)).await?;
            if let Reply::Granted { .. } = reply {
                self.holds_alone(&token, ttl);
                self.bids.change(&token, sent, |standing| standing.replaced = replaced);
            }
            return Ok(reply);
        };
        let reply = self.seize_inside(name, &token, self.with(name, op, fence, false), left / 2).await;
        if let Ok(Reply::Granted { .. }) = reply {
            self.holds_both(&token, ttl, sent);
        }
        reply.map_err(Error::half_way)
    }

    /// The outer store has granted it. Each store gave a range of its own: the higher one counts in both.
    async fn seize_inside(
        &self,
        name: &Name,
        token: &Token,
        op: Op,
        silence: Duration,
    ) -> Result<Reply, Error> {
        let fence = match self.inside(name, op).await? {
            Reply::Granted { fence } => fence,
            reply => {
                self.withdraw(name, token).await?;
                return Ok(reply);
            }
        };
        match self.outside(name, Op::Raise { token: token.clone(), fence }, silence).await? {
            Reply::Granted { fence } => self.write_back(name, token, fence).await,
            // Another one seized it in between.
            reply => {
                self.undo(name, token.clone()).await?;
                Ok(reply)
            }
        }
    }

    /// An operation that seizes, as it goes to one of the stores.
    fn with(&self, name: &Name, mut op: Op, seen: u64, is_outer: bool) -> Op {
        if let Op::Adopt { floor, not_after, .. } | Op::TakeOver { floor, not_after, .. } = &mut op {
            *floor = (*floor).max(seen);
            if is_outer {
                *not_after = self.translated(name, *not_after);
            }
        }
        op
    }

    /// Each store compares what it knows of the lease; its fence in the inner one is another.
    pub(super) async fn break_lease(&self, name: &Name, token: Token, fence: u64) -> Result<Reply, Error> {
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
    pub(super) async fn inspect(&self, name: &Name) -> Result<Reply, Error> {
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
        let holding = match holding {
            Some(holding) if self.ends_dead(name, &holding).await => None,
            holding => holding,
        };
        // Places are moments of the clock of their store.
        let now = (self.inner.server_now(name).unwrap_or(0), self.outer.server_now(name).unwrap_or(0));
        for (_, joined_at) in &mut waiters {
            *joined_at = now.0.saturating_sub(now.1.saturating_sub(*joined_at));
        }
        // Whoever holds the inner one and waits outside is seen there.
        let inside = inside.filter(|inside| waiters.iter().all(|(token, _)| *token != inside.token));
        waiters.extend(behind);
        Ok(Reply::Seen { holding: holding.or(inside), waiters, broken: broken.or(inside_broken) })
    }
}
