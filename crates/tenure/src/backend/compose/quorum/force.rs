//! Operations that pass the queue, and inspection.

use std::sync::Arc;
use std::time::Duration;

use super::Group;
use super::hold::LONGEST_ANSWER;
use super::member::WarmUp;
use super::requests::LONGEST_SILENCE;
use super::round::Round;
use super::tally::{self, Held};
use crate::backend::compose::Takeover;
use crate::backend::{Component, Pending, together};
use crate::core::record::{Holding, Op, Reply};
use crate::time::clock::Moment;
use crate::types::error::Error;
use crate::types::name::{Name, NameMap};
use crate::types::owner::Token;

impl Group {
    /// Takes a lease past the queue on every server. It counts if a majority granted it and has its fence.
    pub(super) async fn take_over(
        self: &Arc<Self>,
        name: &Name,
        mut request: Takeover,
    ) -> Result<Reply, Error> {
        self.refuse_duplicates()?;
        request.floor = self.floor_ahead(name, request.floor);
        let Takeover { ref token, ttl, not_after, .. } = request;
        self.note_ttl(ttl);
        self.bids.begin(token, self.longest_ttl());
        let begun = self.clock.now();
        let (votes, all) = (self.votes(token, &self.warm_ups()), vec![true; self.members.len()]);
        let mut round = self.ask_usable(name, token, &request.op());
        let limit = begun + Moment::from_micros(not_after).since(begun) / 2;
        let is_decided = |round: &Round| {
            tally::granted(round, &votes).count() >= self.majority()
                || self.is_not_held(&Held::count(round, &all))
        };
        round.until(&self.clock, limit, is_decided).await;
        // A server may have restarted between the request and its answer.
        let warm_ups = self.warm_ups();
        let grants: Vec<_> = tally::granted(&round, &self.votes(token, &warm_ups)).collect();
        if grants.len() < self.majority() {
            let answer = match self.is_not_held(&Held::count(&round, &all)) {
                true => Ok(Reply::NotHeld { holder: tally::other_holder(&round).map(|(token, _)| token) }),
                false => Err(self.too_few_to_grant(&round, &warm_ups)),
            };
            match &answer {
                // The caller asks again with the same token, or leaves.
                Err(error) if error.may_have_run() => round.rest(&self.clock),
                _ => self.undo_take_over(name, token, round).await,
            }
            return answer;
        }
        let fence = grants.iter().map(|(_, fence)| *fence).max().unwrap_or(0);
        round.rest(&self.clock);
        // If two clients take over at once, every server may grant it to both, one after the other, in its own order. So a majority must
        // still hold it when it has the fence: then one of the two met the other's.
        let raised = self.raise(name, token, fence).await;
        match raised {
            Ok(Reply::Granted { fence }) if self.clock.now().since(begun) <= ttl / 2 => {
                Ok(Reply::Granted { fence })
            }
            // The lease stays for the caller's next attempt: a ticket is good once.
            Ok(Reply::Granted { .. }) => {
                Err(Error::unanswered("servers took too long to take the name over").fix("try again"))
            }
            Err(error) => Err(error.half_way()),
            Ok(_) => {
                self.undo_take_over(name, token, Round::new(self.members.len())).await;
                Err(Error::unanswered("another client took the name over at the same time").fix("try again"))
            }
        }
    }

    /// Leaves what was taken in vain. The caller may ask again with the same token, which is unusable on servers that have not answered by then.
    async fn undo_take_over(self: &Arc<Self>, name: &Name, token: &Token, round: Round) {
        round.rest(&self.clock);
        let leaving = self.ask_usable(name, token, &Op::Leave { token: token.clone() });
        let limit = self.clock.now() + LONGEST_SILENCE;
        self.until_left(leaving, limit).await.rest(&self.clock);
    }

    /// Asks every server what it shows; a majority must answer.
    async fn look(self: &Arc<Self>, name: &Name) -> Result<Round, Error> {
        let mut round = self.ask_all(name, &Op::Inspect);
        let limit = self.clock.now() + LONGEST_ANSWER;
        // It waits for all servers that are known to answer, so that two looks show the same.
        let have_answered =
            |round: &Round| self.are_silent(round) && round.replies().count() >= self.majority();
        round.until(&self.clock, limit, have_answered).await;
        match round.replies().count() >= self.majority() {
            true => Ok(round),
            false => {
                self.note_silence(&round);
                Err(self.too_few_answers(&round))
            }
        }
    }

    /// Each server compares the token. The fence of the lease may differ from server to server.
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
            // Its holder would renew it, and heal the servers that ended it.
            if self.members.len() - gone >= self.majority() {
                return Err(Error::unanswered(
                    "too few servers ended the lease: it may still have a majority",
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

    /// The lease of a token: the fence that a majority of the servers have, and how long it still has a majority.
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

    /// The holder of a majority, or of what would be one with the servers that did not answer.
    fn holder(&self, seen: &Round) -> Option<Holding> {
        let tokens = seen.replies().filter_map(|(_, reply)| match reply {
            Reply::Seen { holding, .. } => holding.as_ref().map(|holding| &holding.token),
            _ => None,
        });
        let (token, count) = tally::most_common(tokens)?;
        let unknown = self.members.len() - seen.replies().count();
        (count + unknown >= self.majority()).then(|| self.held_by(seen, token))?
    }

    /// The holder of a majority; and the waiters of the first server that has any.
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
            // `joined_at` is a moment of the clock of its server.
            let (now, theirs) = (self.clock.now().as_micros(), self.members[server].backend.server_now(name));
            let ours = |joined_at: u64| now.saturating_sub(theirs.unwrap_or(now).saturating_sub(joined_at));
            // A client that holds this server and no majority waits for the others.
            let partial =
                here.as_ref().filter(|here| holding.as_ref().is_some_and(|held| held.token != here.token));
            waiters.extend(partial.map(|here| (here.token.clone(), ours(here.fence))));
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

    /// The answers of all servers that answer in time; a majority must.
    async fn of_all<T: Send + Unpin>(
        &self,
        longest: Duration,
        ask: impl Fn(&dyn Component) -> Pending<T>,
    ) -> Result<Vec<T>, Error> {
        let limit = self.clock.now() + longest;
        let asked = self.members.iter().map(|member| self.clock.until(limit, ask(&*member.backend)));
        let answers = together::all(asked.collect()).await.into_iter().zip(&self.members);
        let answers: Vec<_> = answers
            .map(|(answer, member)| {
                answer.unwrap_or_else(|| Err(Error::unanswered("no answer").of(&member.label)))
            })
            .collect();
        match answers.iter().filter(|answer| answer.is_ok()).count() >= self.majority() {
            true => Ok(answers.into_iter().flatten().collect()),
            false => {
                let outcomes: Vec<_> = answers.into_iter().map(|answer| answer.map(drop)).collect();
                Err(self.too_few("answered", &outcomes))
            }
        }
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (member, warm_up) in self.members.iter().zip(self.warm_ups()) {
            let label = &member.label;
            match (member.backend.outage(), warm_up) {
                (Some(error), _) => warnings.push(format!("{label}: {error}")),
                (None, _) if member.is_silent() => warnings.push(format!("{label}: does not answer")),
                (None, Some(WarmUp { age, left })) => warnings.push(format!(
                    "{label}: started {} s ago and may have forgotten leases; it counts in {} s",
                    age.as_secs(),
                    left.as_secs()
                )),
                (None, None) => {}
            }
            warnings.extend(member.backend.warnings().into_iter().map(|it| format!("{label}: {it}")));
        }
        warnings
    }
}
