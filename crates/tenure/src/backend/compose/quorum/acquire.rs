//! Acquiring a name: at the queue server and on a majority.
//!
//! A client asks every server at once for a name that nobody wants. If the name was contended lately, it asks the queue server first, and the
//! others once it has the name there. If it has the queue server but no majority, it waits a short while: usually the release of the
//! previous holder is still on its way to the others, and each of them pushes when it arrives. If another client holds a majority, or may hold
//! one, it waits in the queue of one of that client's servers. If nobody does, it leaves everything, so that another client gets on.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::Group;
use super::bids::QuorumBid;
use super::member::WarmUp;
use super::round::Round;
use super::tally::{self, Rival};
use crate::backend::compose::{Acquire, wait_from};
use crate::core::record::{Op, Reply, Wait};
use crate::time::backoff::{Backoff, jittered};
use crate::time::clock::Moment;
use crate::types::error::Error;
use crate::types::name::Name;

/// How long a client keeps a part of the servers while nobody has a majority: a random time between half of this and all of it.
const SPLIT: Duration = Duration::from_millis(250);

/// One attempt. The layer above may make many with one token.
struct Attempt<'a> {
    group: &'a Arc<Group>,
    name: &'a Name,
    request: Acquire,
    /// The store refuses the request after this moment.
    until: Moment,
    begun: Moment,
    bid: QuorumBid,
    news: Arc<Notify>,
    /// The servers that count. A server that was left counts again once it has answered the leave.
    votes: Vec<bool>,
    warm_ups: Vec<Option<WarmUp>>,
    round: Round,
    queue_server: usize,
    /// The queue server granted the name.
    has_queue_server: bool,
    /// The client asked the others to queue this bid.
    has_joined: bool,
}

/// What follows from the answers.
enum Next {
    Return(Reply),
    /// Ask the servers that have not granted it, at once.
    Again,
    /// Ask them when there is news.
    AwaitNews,
}

impl Group {
    pub(super) async fn acquire(self: &Arc<Self>, name: &Name, request: Acquire) -> Result<Reply, Error> {
        self.note_ttl(request.ttl);
        self.refuse_duplicates()?;
        let (begun, until) = (self.clock.now(), Moment::from_micros(request.not_after));
        let (bid, news) = self.bids.begin(&request.token, self.longest_ttl());
        let (warm_ups, round) = (self.warm_ups(), Round::new(self.members.len()));
        let mut attempt = Attempt {
            group: self,
            name,
            request,
            until,
            begun,
            bid,
            news,
            votes: Vec::new(),
            warm_ups,
            round,
            queue_server: 0,
            has_queue_server: false,
            has_joined: false,
        };
        attempt.count_votes();
        let answer = attempt.run().await;
        let Attempt { round, .. } = attempt;
        round.rest(&self.clock);
        answer
    }
}

impl Attempt<'_> {
    async fn run(&mut self) -> Result<Reply, Error> {
        let queued = self.bid.queue_server;
        self.queue_server =
            queued.filter(|&server| self.can_queue_at(server)).unwrap_or_else(|| self.first_to_queue_at(0));
        self.has_queue_server = queued == Some(self.queue_server) && self.bid.pushed.has(self.queue_server);
        if !self.has_queue_server
            && (queued.is_some() || self.group.is_contended(self.name))
            && let Some(reply) = self.ask_queue_server().await
        {
            return Ok(reply);
        }
        let group = Arc::clone(self.group);
        let left = self.until.since(self.begun);
        let split_until = self.begun + jittered(SPLIT).min(left / 2);
        let mut backoff = Backoff::new();
        loop {
            self.ask_the_rest().await;
            if let Some(reply) = self.finish().await? {
                return Ok(reply);
            }
            match self.without_majority(split_until).await? {
                Next::Return(reply) => return Ok(reply),
                Next::Again => {}
                Next::AwaitNews => {
                    let until = (group.clock.now() + backoff.pause() / 2).min(split_until);
                    group.clock.until(until, self.news.notified()).await;
                }
            }
        }
    }

    fn count_votes(&mut self) {
        self.votes = self.group.votes(&self.request.token, &self.warm_ups);
    }

    fn can_queue_at(&self, server: usize) -> bool {
        let has_failed = matches!(self.round.answers[server], Some(Err(_)));
        self.votes[server] && !has_failed && self.group.members[server].is_in_reach()
    }

    /// The first server with a queue that can be used, or else `other`.
    fn first_to_queue_at(&self, other: usize) -> usize {
        (0..self.votes.len()).find(|&server| self.can_queue_at(server)).unwrap_or(other)
    }

    fn op(&self, server: usize, wait: Wait, floor: u64) -> Op {
        let Acquire { token, ttl, not_after, .. } = self.request.clone();
        let wait = wait_from(wait, self.bid.joined_at[server]);
        let polls = self.group.members[server].backend.polls(self.name);
        Op::Acquire { token, ttl, wait, polls, floor, not_after }
    }

    fn limit(&self) -> Moment {
        self.group.clock.now() + self.group.silence(self.request.ttl, self.until)
    }

    /// Asks the queue server alone; returns its reply if it does not grant the name.
    async fn ask_queue_server(&mut self) -> Option<Reply> {
        for _ in 0..self.votes.len() {
            let server = self.queue_server;
            if self.group.bids.unusable(&self.request.token).has(server) {
                return None;
            }
            let op = self.op(server, self.request.wait, self.request.floor);
            self.round.ask(server, self.group.ask(server, self.name, op));
            let limit = self.limit();
            self.round.until(&self.group.clock, limit, |_| false).await;
            self.group.note_silence(&self.round);
            match self.round.answers[server].clone() {
                Some(Ok(Reply::Granted { .. })) => {
                    self.has_queue_server = true;
                    return None;
                }
                Some(Ok(reply @ (Reply::Waiting { .. } | Reply::Busy { .. }))) => {
                    return self.refused_by_queue_server(reply).await;
                }
                Some(Ok(reply)) => return Some(reply),
                Some(Err(_)) | None => {
                    let next = self.first_to_queue_at(server);
                    if next == server {
                        return None;
                    }
                    self.queue_server = next;
                }
            }
        }
        None
    }

    /// Another client has the queue server: leaves the other servers. Returns nothing if the queue server has granted it meanwhile.
    async fn refused_by_queue_server(&mut self, reply: Reply) -> Option<Reply> {
        let server = self.queue_server;
        self.group.note_contended(self.name);
        match reply {
            Reply::Waiting { joined_at, .. } => {
                self.leave(Some(server)).await;
                self.queue_at(server, joined_at);
                // A push justifies one question. The answer to that one is newer than the push.
                let was_pushed = |bid: &mut QuorumBid| {
                    let was_pushed = bid.pushed.has(server);
                    bid.pushed.remove(server);
                    was_pushed
                };
                if self.group.bids.change(&self.request.token, was_pushed) == Some(true) {
                    self.has_queue_server = true;
                    return None;
                }
            }
            _ => self.end().await,
        }
        Some(reply)
    }

    fn queue_at(&mut self, server: usize, joined_at: u64) {
        self.bid.queue_server = Some(server);
        self.bid.joined_at[server] = Some(joined_at);
        self.group.bids.change(&self.request.token, |bid| {
            bid.queue_server = Some(server);
            bid.joined_at[server] = Some(joined_at);
        });
    }

    /// Asks all servers that have not granted it yet.
    async fn ask_the_rest(&mut self) {
        let begun = self.group.clock.now();
        let unusable = self.group.bids.unusable(&self.request.token);
        self.count_votes();
        let floor = self.group.floor_ahead(self.name, self.request.floor);
        for server in 0..self.votes.len() {
            if unusable.has(server) || self.round.is_pending(server) || self.is_granted(server) {
                continue;
            }
            let joins = server == self.queue_server || self.has_queue_server;
            let wait = if joins { self.request.wait } else { Wait::No };
            let op = self.op(server, wait, floor);
            self.round.ask(server, self.group.ask(server, self.name, op));
        }
        let (group, majority) = (self.group, self.group.majority());
        let (votes, queue_server, limit) = (self.votes.clone(), self.queue_server, self.limit());
        let is_decided = |round: &Round| {
            let granted = tally::granted(round, &votes).count();
            let may_grant = |server: &usize| votes[*server] && !group.members[*server].is_silent();
            let may_be = granted + round.pending().filter(may_grant).count() >= majority;
            let is_refused =
                matches!(&round.answers[queue_server], Some(Ok(reply)) if tally::holding(reply).is_some());
            granted >= majority || is_refused || !may_be && !round.is_pending(queue_server)
        };
        self.round.until(&group.clock, limit, is_decided).await;
        self.note_positions();
        if tally::granted(&self.round, &self.votes).count() >= majority {
            group.note_pace(group.clock.now().since(begun));
        } else if group.clock.now() >= limit {
            group.note_silence(&self.round);
        }
    }

    fn note_positions(&mut self) {
        let positions: Vec<_> = self
            .round
            .replies()
            .filter_map(|(server, reply)| match reply {
                Reply::Waiting { joined_at, .. } => Some((server, *joined_at)),
                _ => None,
            })
            .collect();
        for (server, joined_at) in positions {
            self.bid.joined_at[server] = Some(joined_at);
            self.group.bids.change(&self.request.token, |bid| bid.joined_at[server] = Some(joined_at));
        }
    }

    /// Makes a lease of a majority of grants: a majority has their highest fence, and there is time left. `None` without a majority.
    async fn finish(&mut self) -> Result<Option<Reply>, Error> {
        let (group, majority) = (Arc::clone(self.group), self.group.majority());
        // A server may have restarted between the request and its answer.
        self.warm_ups = group.warm_ups();
        self.count_votes();
        let grants: Vec<_> = tally::granted(&self.round, &self.votes).collect();
        if grants.len() < majority {
            return Ok(None);
        }
        let token = self.request.token.clone();
        let Some(fence) = group.write_back(self.name, &token, &grants, self.limit()).await else {
            self.leave(None).await;
            return Err(Error::unanswered(
                "fewer than a majority of the servers took the fence of the grant",
            )
            .fix("is one overloaded or cut off?"));
        };
        if group.clock.now().since(self.begun) > self.request.ttl / 2 {
            self.leave(None).await;
            return Ok(Some(Reply::TooLate));
        }
        group.bids.change(&token, |bid| {
            bid.fence = Some(fence);
            bid.queue_server = None;
        });
        Ok(Some(Reply::Granted { fence }))
    }

    /// Waits for news, queues behind the holder of a majority, or leaves everything.
    async fn without_majority(&mut self, split_until: Moment) -> Result<Next, Error> {
        let server = self.queue_server;
        // The client never asks a server again on which the token is unusable, so its old answer leads nowhere.
        let is_unusable = self.group.bids.unusable(&self.request.token).has(server);
        match self.round.answers[server].clone().filter(|_| !is_unusable) {
            // It became the queue server after this answer.
            Some(Ok(Reply::Busy { .. })) if self.request.wait != Wait::No => return Ok(Next::Again),
            Some(Ok(reply @ (Reply::Waiting { .. } | Reply::Busy { .. })))
                if !self.is_behind_itself(&reply) =>
            {
                return Ok(self.refused_by_queue_server(reply).await.map_or(Next::Again, Next::Return));
            }
            Some(Ok(Reply::TooLate)) => {
                self.leave(None).await;
                return Ok(Next::Return(Reply::TooLate));
            }
            Some(Ok(_)) => self.has_queue_server |= self.is_granted(server),
            Some(Err(_)) | None => {
                let next = self.first_to_queue_at(server);
                if next != server {
                    self.queue_server = next;
                    self.has_queue_server = self.is_granted(next);
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

    fn is_granted(&self, server: usize) -> bool {
        matches!(self.round.answers[server], Some(Ok(Reply::Granted { .. })))
    }

    /// Whether the queue server says that the bid waits for itself: it was granted in between.
    fn is_behind_itself(&self, reply: &Reply) -> bool {
        tally::holding(reply).is_some_and(|holding| holding.token == self.request.token)
    }

    /// Another client holds a majority; or nobody does, and this one has waited long enough.
    async fn give_way(&mut self, rival: Rival) -> Next {
        self.group.note_contended(self.name);
        let Rival { holding, server, joined_at, waiters, may_have_majority, .. } = rival;
        if self.request.wait == Wait::No {
            self.end().await;
            return Next::Return(Reply::Busy { holding, waiters });
        }
        match joined_at {
            // Asks once more, to join the queue there.
            None if !std::mem::replace(&mut self.has_joined, true) => {
                self.has_queue_server = true;
                Next::Again
            }
            Some(joined_at) if may_have_majority => {
                self.leave(Some(server)).await;
                self.queue_at(server, joined_at);
                Next::Return(Reply::Waiting { joined_at, ahead: 0, holding })
            }
            _ => {
                self.leave(None).await;
                Next::Return(Reply::Waiting { joined_at: 1, ahead: 0, holding })
            }
        }
    }

    /// Too few servers count. Leaves the servers that granted or queued it. The caller asks the silent ones again, or leaves them.
    async fn fail(&mut self) -> Error {
        let error = self.group.too_few_to_grant(&self.round, &self.warm_ups);
        let has_answered = |round: &Round, server: usize| has_it(round.answers[server].as_ref());
        self.leave_those(None, has_answered).await;
        error
    }

    /// Leaves every server that may know of the bid, except one.
    async fn leave(&mut self, except: Option<usize>) {
        let has_queued = self.bid.joined_at.iter().map(Option::is_some).collect::<Vec<_>>();
        let members = &self.group.members;
        let may_know = |round: &Round, server: usize| match &round.answers[server] {
            Some(Err(error)) => error.may_have_run(),
            None if round.is_pending(server) => true,
            None => has_queued[server] && members[server].is_in_reach(),
            answer => has_it(answer.as_ref()),
        };
        self.leave_those(except, may_know).await;
        self.bid.queue_server = except;
        self.group.bids.change(&self.request.token, |bid| bid.queue_server = except);
    }

    /// Leaves some servers. Their grants do not count any more.
    async fn leave_those(&mut self, except: Option<usize>, leaves: impl Fn(&Round, usize) -> bool) {
        let servers = self.votes.len();
        let mut before = std::mem::replace(&mut self.round, Round::new(servers));
        let mut leaving = Round::new(servers);
        for server in 0..servers {
            if Some(server) == except {
                self.round.answers[server] = before.answers[server].take();
            } else if leaves(&before, server) {
                let op = Op::Leave { token: self.request.token.clone() };
                leaving.ask(server, self.group.ask(server, self.name, op));
                self.bid.joined_at[server] = None;
            }
        }
        before.rest(&self.group.clock);
        self.group.until_left(leaving, self.limit()).await.rest(&self.group.clock);
    }

    async fn end(&mut self) {
        self.leave(None).await;
        let token = &self.request.token;
        self.group.end(self.name, token, &Op::Leave { token: token.clone() });
    }
}

/// Whether the server may hold or queue the bid after that answer.
fn has_it(answer: Option<&Result<Reply, Error>>) -> bool {
    matches!(answer, Some(Ok(Reply::Granted { .. } | Reply::Waiting { .. })))
}
