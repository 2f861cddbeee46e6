//! Taking a name: at the desk and on a majority.
//!
//! A name that nobody wants is asked for everywhere at once. One that was contended lately is asked for at the desk, and everywhere else when
//! it is had there. Whoever has the desk and no majority waits for the others a short while: mostly it is the one before, whose release is
//! still on its way to them, and each tells when it is there. If another holds, or may hold, a majority, it is waited for in the queue of
//! one of its servers; if nobody does, everything is left, so that somebody can get on.

mod without;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::Group;
use super::bids::Standing;
use super::round::Round;
use super::tally;
use crate::core::record::{Op, Reply, Wait};
use crate::time::backoff::{Backoff, jittered};
use crate::time::clock::Moment;
use crate::types::error::Error;
use crate::types::name::Name;
use crate::types::owner::Token;

/// How long one sits on a part of the servers while nobody has a majority: between half of it and all, by chance.
const SPLIT: Duration = Duration::from_millis(250);

/// What an acquire asks for; refused after `until`.
#[derive(Clone)]
pub(super) struct Ask {
    pub(super) token: Token,
    pub(super) ttl: Duration,
    pub(super) wait: Wait,
    pub(super) floor: u64,
    pub(super) until: Moment,
}

/// One attempt, of which the layer above may make many with one token.
struct Attempt<'a> {
    group: &'a Arc<Group>,
    name: &'a Name,
    ask: Ask,
    begun: Moment,
    standing: Standing,
    news: Arc<Notify>,
    /// Servers that count. One that was left counts again when it has said so.
    votes: Vec<bool>,
    youths: Vec<Option<Duration>>,
    round: Round,
    desk: usize,
    /// The desk granted the name.
    has_desk: bool,
    /// The others were asked to queue this bid.
    has_joined: bool,
}

/// What follows from the answers.
enum Next {
    Return(Reply),
    /// Ask those who have not granted it, at once.
    Again,
    /// Ask them when there is news.
    AwaitNews,
}

impl Group {
    pub(super) async fn acquire(self: &Arc<Self>, name: &Name, ask: Ask) -> Result<Reply, Error> {
        self.saw_ttl(ask.ttl);
        self.refuse_twins()?;
        let begun = self.clock.now();
        let (standing, news) = self.bids.begin(&ask.token, self.longest_ttl());
        let (youths, round) = (self.youths(), Round::new(self.members.len()));
        let mut attempt = Attempt {
            group: self,
            name,
            ask,
            begun,
            standing,
            news,
            votes: Vec::new(),
            youths,
            round,
            desk: 0,
            has_desk: false,
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
        let queued = self.standing.desk;
        self.desk = queued.filter(|&desk| self.is_fit_for_desk(desk)).unwrap_or_else(|| self.first_fit(0));
        self.has_desk = queued == Some(self.desk) && self.standing.pushed.has(self.desk);
        if !self.has_desk
            && (queued.is_some() || self.group.is_contended(self.name))
            && let Some(reply) = self.ask_desk().await
        {
            return Ok(reply);
        }
        let group = Arc::clone(self.group);
        let left = self.ask.until.since(self.begun);
        let split_until = self.begun + jittered(SPLIT).min(left / 2);
        let mut backoff = Backoff::new();
        loop {
            self.sweep().await;
            if let Some(reply) = self.finish().await? {
                return Ok(reply);
            }
            match self.next(split_until).await? {
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
        self.votes = self.group.votes(&self.ask.token, &self.youths);
    }

    fn is_fit_for_desk(&self, server: usize) -> bool {
        let has_failed = matches!(self.round.answers[server], Some(Err(_)));
        self.votes[server] && !has_failed && self.group.members[server].is_in_reach()
    }

    /// The first server where one can queue; or else `other`.
    fn first_fit(&self, other: usize) -> usize {
        (0..self.votes.len()).find(|&server| self.is_fit_for_desk(server)).unwrap_or(other)
    }

    fn op(&self, server: usize, wait: Wait, floor: u64) -> Op {
        let Ask { token, ttl, until, .. } = self.ask.clone();
        let wait = match (wait, self.standing.places[server]) {
            (Wait::No, _) => Wait::No,
            (_, Some(joined_at)) => Wait::Keep { joined_at },
            (_, None) => Wait::Join,
        };
        let polls = self.group.members[server].backend.polls(self.name);
        Op::Acquire { token, ttl, wait, polls, floor, not_after: until.as_micros() }
    }

    fn limit(&self) -> Moment {
        self.group.clock.now() + self.group.silence(self.ask.ttl, self.ask.until)
    }

    /// Asks at the desk alone; a reply when it is not had there, or not in time.
    async fn ask_desk(&mut self) -> Option<Reply> {
        for _ in 0..self.votes.len() {
            let desk = self.desk;
            if self.group.bids.lost(&self.ask.token).has(desk) {
                return None;
            }
            let op = self.op(desk, self.ask.wait, self.ask.floor);
            self.round.ask(desk, self.group.ask(desk, self.name, op));
            let limit = self.limit();
            self.round.until(&self.group.clock, limit, |_| false).await;
            self.group.saw_silence(&self.round);
            match self.round.answers[desk].clone() {
                Some(Ok(Reply::Granted { .. })) => {
                    self.has_desk = true;
                    return None;
                }
                Some(Ok(reply @ (Reply::Waiting { .. } | Reply::Busy { .. }))) => {
                    return self.at_desk(reply).await;
                }
                Some(Ok(reply)) => return Some(reply),
                Some(Err(_)) | None => {
                    let next = self.first_fit(desk);
                    if next == desk {
                        return None;
                    }
                    self.desk = next;
                }
            }
        }
        None
    }

    /// Another has the desk: whatever was got elsewhere is left. Nothing to return when the desk has granted it meanwhile.
    async fn at_desk(&mut self, reply: Reply) -> Option<Reply> {
        let desk = self.desk;
        self.group.saw_contended(self.name);
        match reply {
            Reply::Waiting { joined_at, .. } => {
                self.leave(Some(desk)).await;
                self.queue(desk, joined_at);
                // A push is good for one question: what has come of it since is what the desk says then.
                let was_pushed = |standing: &mut Standing| {
                    let was_pushed = standing.pushed.has(desk);
                    standing.pushed.remove(desk);
                    was_pushed
                };
                if self.group.bids.change(&self.ask.token, was_pushed) == Some(true) {
                    self.has_desk = true;
                    return None;
                }
            }
            _ => self.end().await,
        }
        Some(reply)
    }

    fn queue(&mut self, desk: usize, joined_at: u64) {
        self.standing.desk = Some(desk);
        self.standing.places[desk] = Some(joined_at);
        self.group.bids.change(&self.ask.token, |standing| {
            standing.desk = Some(desk);
            standing.places[desk] = Some(joined_at);
        });
    }

    /// Asks all that have not granted it yet.
    async fn sweep(&mut self) {
        let begun = self.group.clock.now();
        let lost = self.group.bids.lost(&self.ask.token);
        self.count_votes();
        let floor = self.group.floor_ahead(self.name, self.ask.floor);
        for server in 0..self.votes.len() {
            if lost.has(server) || self.round.is_pending(server) || self.is_granted(server) {
                continue;
            }
            let wait = if server == self.desk || self.has_desk { self.ask.wait } else { Wait::No };
            let op = self.op(server, wait, floor);
            self.round.ask(server, self.group.ask(server, self.name, op));
        }
        let (group, majority) = (self.group, self.group.majority());
        let (votes, desk, limit) = (self.votes.clone(), self.desk, self.limit());
        let is_decided = |round: &Round| {
            let granted = tally::granted(round, &votes).count();
            let may_grant = |server: &usize| votes[*server] && !group.members[*server].is_silent();
            let may_be = granted + round.pending().filter(may_grant).count() >= majority;
            let desk_refused =
                matches!(&round.answers[desk], Some(Ok(reply)) if tally::holding(reply).is_some());
            granted >= majority || desk_refused || !may_be && !round.is_pending(desk)
        };
        self.round.until(&group.clock, limit, is_decided).await;
        self.saw_places();
        if tally::granted(&self.round, &self.votes).count() >= majority {
            group.saw_pace(group.clock.now().since(begun));
        } else if group.clock.now() >= limit {
            group.saw_silence(&self.round);
        }
    }

    fn saw_places(&mut self) {
        let places: Vec<_> = self
            .round
            .replies()
            .filter_map(|(server, reply)| match reply {
                Reply::Waiting { joined_at, .. } => Some((server, *joined_at)),
                _ => None,
            })
            .collect();
        for (server, joined_at) in places {
            self.standing.places[server] = Some(joined_at);
            self.group.bids.change(&self.ask.token, |standing| standing.places[server] = Some(joined_at));
        }
    }

    /// Makes a lease of a majority of grants: their highest fence is on a majority, and there is time left. `None` without a majority.
    async fn finish(&mut self) -> Result<Option<Reply>, Error> {
        let (group, majority) = (Arc::clone(self.group), self.group.majority());
        // A server may have been restarted between being asked and answering.
        self.youths = group.youths();
        self.count_votes();
        let grants: Vec<_> = tally::granted(&self.round, &self.votes).collect();
        if grants.len() < majority {
            return Ok(None);
        }
        let token = self.ask.token.clone();
        let Some(fence) = group.write_back(self.name, &token, &grants, self.limit()).await else {
            self.leave(None).await;
            return Err(Error::unanswered(
                "fewer than a majority of the servers took the fence of the grant",
            )
            .fix("is one overloaded or cut off?"));
        };
        if group.clock.now().since(self.begun) > self.ask.ttl / 2 {
            self.leave(None).await;
            return Ok(Some(Reply::TooLate));
        }
        group.bids.change(&token, |standing| {
            standing.fence = Some(fence);
            standing.desk = None;
        });
        Ok(Some(Reply::Granted { fence }))
    }
}
