//! What goes past the queue, and what only looks.

use std::sync::Arc;
use std::time::Duration;

use super::Group;
use super::hold::LONGEST_ANSWER;
use super::requests::LONGEST_SILENCE;
use super::round::Round;
use super::tally::{self, Held};
use crate::backend::{Backend, Pending, together};
use crate::core::record::{Holding, Op, Reply};
use crate::time::clock::Moment;
use crate::types::error::Error;
use crate::types::name::{Name, NameMap};
use crate::types::owner::Token;

impl Group {
    /// On every server; counts when a majority granted it and has its fence.
    pub(super) async fn take_over_with(self: &Arc<Self>, name: &Name, mut op: Op) -> Result<Reply, Error> {
        self.refuse_twins()?;
        let (Op::Adopt { token, ttl, not_after, floor, .. } | Op::TakeOver { token, ttl, not_after, floor }) =
            &mut op
        else {
            unreachable!("only for what takes a lease past the queue");
        };
        *floor = self.floor_ahead(name, *floor);
        let (token, ttl, until) = (token.clone(), *ttl, Moment::from_micros(*not_after));
        self.saw_ttl(ttl);
        self.bids.begin(&token, self.longest_ttl());
        let begun = self.clock.now();
        let (votes, all) = (self.votes(&token, &self.youths()), vec![true; self.members.len()]);
        let mut round = self.ask_but_lost(name, &token, &op);
        let limit = begun + until.since(begun) / 2;
        let is_decided = |round: &Round| {
            tally::granted(round, &votes).count() >= self.majority()
                || self.is_not_held(&Held::count(round, &all))
        };
        round.until(&self.clock, limit, is_decided).await;
        // A server may have been restarted between being asked and answering.
        let youths = self.youths();
        let grants: Vec<_> = tally::granted(&round, &self.votes(&token, &youths)).collect();
        if grants.len() < self.majority() {
            let answer = match self.is_not_held(&Held::count(&round, &all)) {
                true => Ok(Reply::NotHeld { holder: tally::other_holder(&round).map(|(token, _)| token) }),
                false => Err(self.too_few_to_grant(&round, &youths)),
            };
            match &answer {
                // It is asked again with the same token, or left.
                Err(error) if error.may_have_run() => round.rest(&self.clock),
                _ => self.undo(name, token, round).await,
            }
            return answer;
        }
        let fence = grants.iter().map(|(_, fence)| *fence).max().unwrap_or(0);
        round.rest(&self.clock);
        // Two that take_over_with at once may each be granted it by all, one after the other, and in another order on every server. So a majority
        // must still hold it when its fence is there: then one of the two met the other's.
        let raised = self.raise(name, Op::Raise { token: token.clone(), fence }).await;
        match raised {
            Ok(Reply::Granted { fence }) if self.clock.now().since(begun) <= ttl / 2 => {
                Ok(Reply::Granted { fence })
            }
            // What was taken stays for whoever asks again: a ticket is good once.
            Ok(Reply::Granted { .. }) => {
                Err(Error::unanswered("servers took too long to take the name over").fix("try again"))
            }
            Err(error) => Err(error.half_way()),
            Ok(_) => {
                self.undo(name, token, Round::new(self.members.len())).await;
                Err(Error::unanswered("another took the name over at the same time").fix("try again"))
            }
        }
    }

    /// Leaves what was taken in vain. Whoever asks again does so with the same token, and a server that has not answered by then is lost to it.
    async fn undo(self: &Arc<Self>, name: &Name, token: Token, round: Round) {
        round.rest(&self.clock);
        let leaving = self.ask_but_lost(name, &token, &Op::Leave { token: token.clone() });
        let limit = self.clock.now() + LONGEST_SILENCE;
        self.until_left(leaving, limit).await.rest(&self.clock);
    }

    /// Looks at every server; a majority must answer.
    async fn look(self: &Arc<Self>, name: &Name) -> Result<Round, Error> {
        let mut round = self.ask_all(name, &Op::Inspect);
        let limit = self.clock.now() + LONGEST_ANSWER;
        // All that are known to answer: what is shown should not change from one look to the next.
        let have_answered =
            |round: &Round| self.are_silent(round) && round.replies().count() >= self.majority();
        round.until(&self.clock, limit, have_answered).await;
        match round.replies().count() >= self.majority() {
            true => Ok(round),
            false => {
                self.saw_silence(&round);
                Err(self.too_few_answers(&round))
            }
        }
    }

    /// Each server compares the token; the fence of the lease may differ from server to server.
    pub(super) async fn break_lease(
        self: &Arc<Self>,
        name: &Name,
        token: Token,
        fence: u64,
    ) -> Result<Reply, Error> {
        let seen = self.look(name).await?;
        let is_meant = self.held_by(&seen, &token).is_some_and(|held| held.fence <= fence);
        let mut round = Round::new(self.members.len());
        for (server, reply) in seen.replies().filter(|_| is_meant) {
            if let Reply::Seen { holding: Some(holding), .. } = reply
                && holding.token == token
            {
                let op = Op::Break { token: token.clone(), fence: holding.fence };
                round.ask(server, self.ask(server, name, op));
            }
        }
        let limit = self.clock.now() + LONGEST_ANSWER;
        round.until(&self.clock, limit, |_| false).await;
        let is_gone = |server: &usize| match (&round.answers[*server], &seen.answers[*server]) {
            (Some(answer), _) => answer.is_ok(),
            (None, seen) => !round.is_pending(*server) && matches!(seen, Some(Ok(_))),
        };
        let gone = (0..self.members.len()).filter(is_gone).count();
        let done = Held::count(&round, &vec![true; self.members.len()]).done;
        if round.answers.iter().any(Option::is_some) || round.pending().next().is_some() {
            // Its holder would renew it, and be healed.
            if self.members.len() - gone >= self.majority() {
                return Err(Error::unanswered(
                    "the lease may still have a majority: too few servers ended it",
                )
                .fix("try again"));
            }
            if done > 0 {
                round.rest(&self.clock);
                return Ok(Reply::Done);
            }
        }
        let holder = self.holder(&seen).map(|holding| holding.token).filter(|holder| *holder != token);
        Ok(Reply::NotHeld { holder })
    }

    /// What a token holds: the fence that a majority of its servers have, and for how long it still has a majority.
    fn held_by(&self, seen: &Round, token: &Token) -> Option<Holding> {
        let holdings = seen.replies().filter_map(|(_, reply)| match reply {
            Reply::Seen { holding, .. } => holding.as_ref().filter(|holding| holding.token == *token),
            _ => None,
        });
        let (mut fences, mut lefts): (Vec<_>, Vec<_>) = holdings.map(|it| (it.fence, it.left)).unzip();
        fences.sort_unstable_by(|a, b| b.cmp(a));
        lefts.sort_unstable_by(|a, b| b.cmp(a));
        let last = fences.len().min(self.majority()).checked_sub(1)?;
        Some(Holding { token: token.clone(), fence: fences[last], left: lefts[last] })
    }

    /// Whoever has a majority, or may have with those who did not answer.
    fn holder(&self, seen: &Round) -> Option<Holding> {
        let tokens = seen.replies().filter_map(|(_, reply)| match reply {
            Reply::Seen { holding, .. } => holding.as_ref().map(|holding| &holding.token),
            _ => None,
        });
        let (token, count) = tally::most_common(tokens)?;
        let unknown = self.members.len() - seen.replies().count();
        (count + unknown >= self.majority()).then(|| self.held_by(seen, token))?
    }

    /// Who has a majority; and who waits, at the first server where anybody does.
    pub(super) async fn inspect(self: &Arc<Self>, name: &Name) -> Result<Reply, Error> {
        let seen = self.look(name).await?;
        let holding = self.holder(&seen);
        let mut traces = Vec::new();
        let mut waiters: Vec<(Token, u64)> = Vec::new();
        for (server, reply) in seen.replies() {
            let Reply::Seen { holding: here, waiters: behind, broken: trace } = reply else { continue };
            traces.extend(*trace);
            if !waiters.is_empty() {
                continue;
            }
            // Places are moments of the clock of their server.
            let (now, theirs) = (self.clock.now().as_micros(), self.members[server].backend.server_now(name));
            let ours = |joined_at: u64| now.saturating_sub(theirs.unwrap_or(now).saturating_sub(joined_at));
            // Whoever has this server and no majority waits for the others.
            let sits =
                here.as_ref().filter(|here| holding.as_ref().is_some_and(|held| held.token != here.token));
            waiters.extend(sits.map(|here| (here.token.clone(), ours(here.fence))));
            let is_holder = |token: &Token| holding.as_ref().is_some_and(|held| held.token == *token);
            let behind = behind.iter().filter(|(token, _)| !is_holder(token));
            waiters.extend(behind.map(|(token, joined_at)| (token.clone(), ours(*joined_at))));
        }
        seen.rest(&self.clock);
        traces.sort_unstable_by(|a, b| b.cmp(a));
        let broken = traces.len().min(self.majority()).checked_sub(1).map(|last| traces[last]);
        Ok(Reply::Seen { holding, waiters, broken })
    }

    /// The names that any server knows; a majority must answer.
    pub(super) async fn list(self: &Arc<Self>, prefix: &str) -> Result<Vec<Name>, Error> {
        let lists = self.of_all(2 * LONGEST_ANSWER, |server| server.list(prefix)).await?;
        let mut names = NameMap::default();
        names.extend(lists.into_iter().flatten().map(|name| (name, ())));
        Ok(names.into_keys().collect())
    }

    pub(super) async fn forget(self: &Arc<Self>, name: &Name) -> Result<(), Error> {
        self.of_all(LONGEST_ANSWER, |server| server.forget(name)).await.map(drop)
    }

    /// What all servers say that answer in time; a majority must.
    async fn of_all<T: Send + Unpin>(
        &self,
        longest: Duration,
        ask: impl Fn(&dyn Backend) -> Pending<T>,
    ) -> Result<Vec<T>, Error> {
        let limit = self.clock.now() + longest;
        let asked = self.members.iter().map(|member| self.clock.until(limit, ask(&*member.backend)));
        let silence = || Err(Error::unanswered("no answer"));
        let answers = together::all(asked.collect()).await.into_iter();
        let answers: Vec<_> = answers.map(|answer| answer.unwrap_or_else(silence)).collect();
        match answers.iter().filter(|answer| answer.is_ok()).count() >= self.majority() {
            true => Ok(answers.into_iter().flatten().collect()),
            false => Err(self.too_few("answered", &answers)),
        }
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let youths = self.youths();
        for (member, youth) in self.members.iter().zip(youths) {
            let label = &member.label;
            match (member.backend.outage(), youth) {
                (Some(error), _) => warnings.push(format!("{label}: {error}")),
                (None, _) if member.is_silent() => warnings.push(format!("{label}: does not answer")),
                (None, Some(age)) => warnings.push(format!(
                    "{label}: started {} s ago and may have forgotten leases; it is not counted yet",
                    age.as_secs()
                )),
                (None, None) => {}
            }
            warnings.extend(member.backend.warnings().into_iter().map(|it| format!("{label}: {it}")));
        }
        warnings
    }
}
