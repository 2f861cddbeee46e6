//! Renewing and releasing a lease on a majority.
//!
//! Neither waits for a server that does not change the outcome. If a majority renewed a lease which a server does not know, the client *heals*
//! that server: it acquires the lease there again, with its fence, in the background.

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

/// How long a majority may take to answer a request that no ttl bounds.
pub(super) const LONGEST_ANSWER: Duration = Duration::from_secs(1);

impl Group {
    /// Whether the answers decide about a lease: a majority holds it, or so many servers do not that no majority can.
    fn is_settled(&self, round: &Round, votes: &[bool]) -> bool {
        let held = Held::count(round, votes);
        held.done >= self.majority() || self.is_not_held(&held)
    }

    /// Even if all other servers held it, they would be no majority.
    pub(super) fn is_not_held(&self, held: &Held) -> bool {
        self.members.len() - held.not_held < self.majority()
    }

    /// Renews or detaches a lease, as `op` says.
    pub(super) async fn renew(
        self: &Arc<Self>,
        name: &Name,
        token: Token,
        ttl: Duration,
        op: &Op,
    ) -> Result<Reply, Error> {
        self.note_ttl(ttl);
        self.bids.touch(&token);
        let votes = self.votes_to_hold(&token);
        let mut round = self.ask_all(name, op);
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
        self.note_silence(&round);
        Err(self.too_few_holders(&round, &votes))
    }

    /// A server counts during its warm-up for a lease that it has.
    fn votes_to_hold(&self, token: &Token) -> Vec<bool> {
        self.votes(token, &vec![None; self.members.len()])
    }

    fn not_held(&self, round: &Round) -> Reply {
        let unknown = self.members.len() - round.replies().count();
        let holder = other_holder(round).filter(|(_, count)| count + unknown >= self.majority());
        Reply::NotHeld { holder: holder.map(|(token, _)| token) }
    }

    /// Acquires a lease again on a server where nobody has the name. A majority holds it already, so this changes nothing for others.
    fn heal(self: &Arc<Self>, server: usize, name: &Name, token: &Token, ttl: Duration) {
        let Some(fence) = self.bids.fence(token) else { return };
        if self.bids.unusable(token).has(server) {
            return;
        }
        let (token, floor) = (token.clone(), fence.saturating_sub(1));
        let not_after = (self.clock.now() + LONGEST_SILENCE.min(ttl / 8)).as_micros();
        let op = Op::Acquire { token, ttl, wait: Wait::No, polls: false, floor, not_after };
        let mut healing = Round::new(self.members.len());
        healing.ask(server, self.ask(server, name, op));
        healing.rest(&self.clock);
    }

    /// Makes a majority have the highest fence of some grants, and returns that fence; `None` if it takes too long.
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

    /// Gives a held lease a higher fence.
    pub(super) async fn raise(
        self: &Arc<Self>,
        name: &Name,
        token: &Token,
        fence: u64,
    ) -> Result<Reply, Error> {
        let votes = self.votes_to_hold(token);
        let mut round = self.ask_all(name, &Op::Raise { token: token.clone(), fence });
        let limit = self.clock.now() + LONGEST_ANSWER;
        round.until(&self.clock, limit, |round| self.is_settled(round, &votes)).await;
        let held = Held::count(&round, &votes);
        if held.done < self.majority() {
            return match self.is_not_held(&held) {
                true => Ok(self.not_held(&round)),
                false => Err(self.too_few_holders(&round, &votes)),
            };
        }
        // Some servers may have a higher fence already.
        let fences: Vec<_> = tally::granted(&round, &votes).collect();
        round.rest(&self.clock);
        let limit = self.clock.now() + LONGEST_ANSWER;
        let Some(fence) = self.write_back(name, token, &fences, limit).await else {
            return Err(
                Error::unanswered("fewer than a majority of the servers took the fence").fix("try again")
            );
        };
        self.bids.change(token, |bid| bid.fence = Some(fence));
        Ok(Reply::Granted { fence })
    }

    pub(super) async fn release(
        self: &Arc<Self>,
        name: &Name,
        token: &Token,
        used: u64,
    ) -> Result<Reply, Error> {
        let op = Op::Release { token: token.clone(), used };
        self.end(name, token, &op);
        let mut round = self.ask_all(name, &op);
        let limit = self.clock.now() + LONGEST_ANSWER;
        let all = vec![true; self.members.len()];
        round.until(&self.clock, limit, |round| self.is_settled(round, &all)).await;
        let held = Held::count(&round, &all);
        if held.done + held.not_held < self.majority() {
            self.note_silence(&round);
            // Some servers may have executed it, or will when they can be reached.
            return Err(self.too_few_answers(&round).half_way());
        }
        let is_anothers = other_holder(&round).is_some_and(|(_, count)| count >= self.majority());
        let was_held = held.done >= self.majority() || held.done > 0 && !is_anothers;
        let reply = if was_held { Reply::Done } else { self.not_held(&round) };
        round.rest(&self.clock);
        Ok(reply)
    }

    /// Leaves every server, as `op` says: a leave, or the death of the client.
    pub(super) async fn leave(self: &Arc<Self>, name: &Name, token: &Token, op: &Op) -> Result<Reply, Error> {
        let round = self.ask_all(name, op);
        self.end(name, token, &Op::Leave { token: token.clone() });
        let round = self.until_left(round, self.clock.now() + LONGEST_SILENCE).await;
        if round.replies().count() < self.majority() {
            return Err(self.too_few_answers(&round));
        }
        round.rest(&self.clock);
        Ok(Reply::Done)
    }
}
