//! Without a majority: to wait for news, to queue behind whoever has one, or to leave everything, so that somebody can get on.

use super::super::round::Round;
use super::super::tally::{self, Rival};
use super::{Attempt, Next};
use crate::core::record::{Op, Reply, Wait};
use crate::time::clock::Moment;
use crate::types::error::Error;

impl Attempt<'_> {
    /// What to do without a majority.
    pub(super) async fn next(&mut self, split_until: Moment) -> Result<Next, Error> {
        let desk = self.desk;
        // A desk that is lost to the bid is never asked again: what it once said leads nowhere.
        let is_lost = self.group.bids.lost(&self.ask.token).has(desk);
        match self.round.answers[desk].clone().filter(|_| !is_lost) {
            // It became the desk after it was asked.
            Some(Ok(Reply::Busy { .. })) if self.ask.wait != Wait::No => return Ok(Next::Again),
            Some(Ok(reply @ (Reply::Waiting { .. } | Reply::Busy { .. })))
                if !self.is_behind_itself(&reply) =>
            {
                return Ok(self.at_desk(reply).await.map_or(Next::Again, Next::Return));
            }
            Some(Ok(Reply::TooLate)) => {
                self.leave(None).await;
                return Ok(Next::Return(Reply::TooLate));
            }
            Some(Ok(_)) => self.has_desk |= self.is_granted(desk),
            Some(Err(_)) | None => {
                let next = self.first_fit(desk);
                if next != desk {
                    self.desk = next;
                    self.has_desk = self.is_granted(next);
                    return Ok(Next::Again);
                }
            }
        }
        if tally::answered(&self.round, &self.votes) < self.group.majority() {
            return Err(self.fail().await);
        }
        let rival = tally::rival(&self.round, self.group.majority());
        let is_over = self.group.clock.now() >= split_until;
        match rival {
            Some(rival) if rival.has_majority || is_over => Ok(self.give_way(rival).await),
            _ if is_over => Err(self.fail().await),
            _ => Ok(Next::AwaitNews),
        }
    }

    pub(super) fn is_granted(&self, server: usize) -> bool {
        matches!(self.round.answers[server], Some(Ok(Reply::Granted { .. })))
    }

    /// Whether the desk says that it waits for itself: it was granted in between.
    fn is_behind_itself(&self, reply: &Reply) -> bool {
        tally::holding(reply).is_some_and(|holding| holding.token == self.ask.token)
    }

    /// Another holds a majority, or nobody does and this one has waited long enough.
    async fn give_way(&mut self, rival: Rival) -> Next {
        self.group.saw_contended(self.name);
        let Rival { holding, server, joined_at, waiters, may_have_majority, .. } = rival;
        if self.ask.wait == Wait::No {
            self.end().await;
            return Next::Return(Reply::Busy { holding, waiters });
        }
        match joined_at {
            // It is asked once more, to queue there.
            None if !std::mem::replace(&mut self.has_joined, true) => {
                self.has_desk = true;
                Next::Again
            }
            Some(joined_at) if may_have_majority => {
                self.leave(Some(server)).await;
                self.queue(server, joined_at);
                Next::Return(Reply::Waiting { joined_at, ahead: 0, holding })
            }
            _ => {
                self.leave(None).await;
                Next::Return(Reply::Waiting { joined_at: 1, ahead: 0, holding })
            }
        }
    }

    /// Too few servers can be counted on. What was got is left; what was not answered is asked again, or left, by whoever asked.
    async fn fail(&mut self) -> Error {
        let error = self.group.too_few_to_grant(&self.round, &self.youths);
        let has_answered = |round: &Round, server: usize| has_it(round.answers[server].as_ref());
        self.leave_those(None, has_answered).await;
        error
    }

    /// Leaves every server that may know of the bid, but one.
    pub(super) async fn leave(&mut self, but: Option<usize>) {
        let has_queued = self.standing.places.iter().map(Option::is_some).collect::<Vec<_>>();
        let members = &self.group.members;
        let may_know = |round: &Round, server: usize| match &round.answers[server] {
            Some(Err(error)) => error.may_have_run(),
            None if round.is_pending(server) => true,
            None => has_queued[server] && members[server].is_in_reach(),
            answer => has_it(answer.as_ref()),
        };
        self.leave_those(but, may_know).await;
        self.standing.desk = but;
        self.group.bids.change(&self.ask.token, |standing| standing.desk = but);
    }

    /// Leaves some servers. What they granted does not count any more.
    async fn leave_those(&mut self, but: Option<usize>, leaves: impl Fn(&Round, usize) -> bool) {
        let servers = self.votes.len();
        let mut before = std::mem::replace(&mut self.round, Round::new(servers));
        let mut leaving = Round::new(servers);
        for server in 0..servers {
            if Some(server) == but {
                self.round.answers[server] = before.answers[server].take();
            } else if leaves(&before, server) {
                let op = Op::Leave { token: self.ask.token.clone() };
                leaving.ask(server, self.group.ask(server, self.name, op));
                self.standing.places[server] = None;
            }
        }
        before.rest(&self.group.clock);
        self.group.until_left(leaving, self.limit()).await.rest(&self.group.clock);
    }

    pub(super) async fn end(&mut self) {
        self.leave(None).await;
        let token = &self.ask.token;
        self.group.end(self.name, token, &Op::Leave { token: token.clone() });
    }
}

/// Whether it may be held, or be queued, after that answer.
fn has_it(answer: Option<&Result<Reply, Error>>) -> bool {
    matches!(answer, Some(Ok(Reply::Granted { .. } | Reply::Waiting { .. })))
}
