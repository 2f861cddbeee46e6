//! Keeping a lease and giving it back, on a majority.
//!
//! Neither waits for a server that is not needed for the outcome. A server that does not know a lease which a majority renewed is *healed*:
//! the lease is acquired there again, with the fence that it has, without anybody waiting for it.

use std::sync::Arc;
use std::time::Duration;

use super::Group;
use super::requests::LONGEST_SILENCE;
use super::round::Round;
use super::tally::{self, Held, other_holder};
use crate::core::record::{Op, Reply, Wait};
use crate::time::clock::Moment;
use crate::types::error::Error;
use crate::types::name::Name;
use crate::types::owner::Token;

/// How long a majority may take to answer what is not bounded by a ttl.
pub(super) const LONGEST_ANSWER: Duration = Duration::from_secs(1);

impl Group {
    /// Whether the answers say what becomes of a lease: a majority did it, or so many did not that none can.
    fn is_settled(&self, round: &Round, votes: &[bool]) -> bool {
        let held = Held::count(round, votes);
        held.done >= self.majority() || self.is_not_held(&held)
    }

    /// Even if all others held it, they would be no majority.
    pub(super) fn is_not_held(&self, held: &Held) -> bool {
        self.members.len() - held.not_held < self.majority()
    }

    pub(super) async fn renew(self: &Arc<Self>, name: &Name, op: Op) -> Result<Reply, Error> {
        let (Op::Renew { token, ttl } | Op::Detach { token, ttl }) = &op else {
            unreachable!("only for what makes a lease last longer");
        };
        let (token, ttl) = (token.clone(), *ttl);
        self.saw_ttl(ttl);
        self.bids.touch(&token);
        let votes = self.votes_to_hold(&token);
        let mut round = self.ask_all(name, &op);
        let limit = self.clock.now() + (ttl / 4).clamp(Duration::from_millis(5), 2 * LONGEST_ANSWER);
        round.until(&self.clock, limit, |round| self.is_settled(round, &votes)).await;
        let held = Held::count(&round, &votes);
        if held.done >= self.majority() {
            let (group, name) = (Arc::clone(self), name.clone());
            round.rest_and(&self.clock, move |server, answer| {
                if let Ok(Reply::NotHeld { holder: None }) = answer {
                    group.heal(server, &name, &token, ttl);
                }
            });
            return Ok(Reply::Done);
        }
        if self.is_not_held(&held) {
            let reply = self.not_held(&round);
            round.rest(&self.clock);
            return Ok(reply);
        }
        self.saw_silence(&round);
        Err(self.too_few_holders(&round, &votes))
    }

    /// A server that is young counts for a lease that it has.
    fn votes_to_hold(&self, token: &Token) -> Vec<bool> {
        self.votes(token, &vec![None; self.members.len()])
    }

    fn not_held(&self, round: &Round) -> Reply {
        let unknown = self.members.len() - round.replies().count();
        let holder = other_holder(round).filter(|(_, count)| count + unknown >= self.majority());
        Reply::NotHeld { holder: holder.map(|(token, _)| token) }
    }

    /// Acquires the lease again where nobody has the name. It is a majority's already, so this changes nothing for others.
    fn heal(self: &Arc<Self>, server: usize, name: &Name, token: &Token, ttl: Duration) {
        let Some(fence) = self.bids.fence(token) else { return };
        if self.bids.lost(token).has(server) {
            return;
        }
        let (token, floor) = (token.clone(), fence.saturating_sub(1));
        let not_after = (self.clock.now() + LONGEST_SILENCE.min(ttl / 8)).as_micros();
        let op = Op::Acquire { token, ttl, wait: Wait::No, polls: false, floor, not_after };
        let mut healing = Round::new(self.members.len());
        healing.ask(server, self.ask(server, name, op));
        healing.rest(&self.clock);
    }

    /// Sees to it that a majority has the highest fence of some grants, and returns it; `None` when that takes too long.
    pub(super) async fn write_back(
        self: &Arc<Self>,
        name: &Name,
        token: &Token,
        grants: &[(usize, u64)],
        limit: Moment,
    ) -> Option<u64> {
        let highest = grants.iter().map(|(_, fence)| *fence).max()?;
        let (ahead, behind): (Vec<_>, Vec<_>) = grants.iter().partition(|(_, fence)| *fence == highest);
        let needed = self.majority().saturating_sub(ahead.len());
        if needed == 0 {
            return Some(highest);
        }
        let mut round = Round::new(self.members.len());
        for (server, _) in behind {
            let op = Op::Raise { token: token.clone(), fence: highest };
            round.ask(server, self.ask(server, name, op));
        }
        let took = |round: &Round| {
            let has_it = |reply: &Reply| matches!(reply, Reply::Granted { fence } if *fence >= highest);
            round.replies().filter(|(_, reply)| has_it(reply)).count()
        };
        round.until(&self.clock, limit, |round| took(round) >= needed).await;
        let is_enough = took(&round) >= needed;
        round.rest(&self.clock);
        is_enough.then_some(highest)
    }

    /// Another store reserved a higher fence for the lease.
    pub(super) async fn raise(self: &Arc<Self>, name: &Name, op: Op) -> Result<Reply, Error> {
        let Op::Raise { token, .. } = &op else { unreachable!("only for a raise") };
        let votes = self.votes_to_hold(token);
        let mut round = self.ask_all(name, &op);
        let limit = self.clock.now() + LONGEST_ANSWER;
        round.until(&self.clock, limit, |round| self.is_settled(round, &votes)).await;
        let held = Held::count(&round, &votes);
        if held.done < self.majority() {
            return match self.is_not_held(&held) {
                true => Ok(self.not_held(&round)),
                false => Err(self.too_few_holders(&round, &votes)),
            };
        }
        // Some may have started higher already.
        let starts: Vec<_> = tally::granted(&round, &votes).collect();
        round.rest(&self.clock);
        let limit = self.clock.now() + LONGEST_ANSWER;
        let Some(fence) = self.write_back(name, token, &starts, limit).await else {
            return Err(
                Error::unanswered("fewer than a majority of the servers took the fence").fix("try again")
            );
        };
        self.bids.change(token, |standing| standing.fence = Some(fence));
        Ok(Reply::Granted { fence })
    }

    pub(super) async fn release(self: &Arc<Self>, name: &Name, op: Op) -> Result<Reply, Error> {
        let Op::Release { token, .. } = &op else { unreachable!("only for a release") };
        self.end(name, token, &op);
        let mut round = self.ask_all(name, &op);
        let limit = self.clock.now() + LONGEST_ANSWER;
        let all = vec![true; self.members.len()];
        round.until(&self.clock, limit, |round| self.is_settled(round, &all)).await;
        let held = Held::count(&round, &all);
        if held.done + held.not_held < self.majority() {
            self.saw_silence(&round);
            // Some servers may have executed it, or will when they can be reached.
            return Err(self.too_few_answers(&round).half_way());
        }
        let is_anothers = other_holder(&round).is_some_and(|(_, count)| count >= self.majority());
        let was_held = held.done >= self.majority() || held.done > 0 && !is_anothers;
        let reply = if was_held { Reply::Done } else { self.not_held(&round) };
        round.rest(&self.clock);
        Ok(reply)
    }

    pub(super) async fn leave(self: &Arc<Self>, name: &Name, op: Op) -> Result<Reply, Error> {
        let (Op::Leave { token } | Op::Death { token }) = &op else {
            unreachable!("only for what leaves");
        };
        let round = self.ask_all(name, &op);
        self.end(name, token, &Op::Leave { token: token.clone() });
        let round = self.until_left(round, self.clock.now() + LONGEST_SILENCE).await;
        if round.replies().count() < self.majority() {
            return Err(self.too_few_answers(&round));
        }
        round.rest(&self.clock);
        Ok(Reply::Done)
    }
}
