//! One request to one server, and what must happen if it is answered late, never, or dropped by its caller.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Group;
use super::member::WarmUp;
use super::round::{Asking, Round};
use crate::core::record::{Op, Reply};
use crate::time::clock::{Moment, micros};
use crate::types::error::Error;
use crate::types::name::Name;
use crate::types::owner::Token;

/// How long a server may be silent, at most, before the group continues without it.
pub(super) const LONGEST_SILENCE: Duration = Duration::from_millis(500);
/// How long a compensation is worth sending, at least.
const SHORTEST_COMPENSATION: Duration = Duration::from_secs(10);

impl Group {
    /// A request to one server. It is sent when it is first polled.
    pub(super) fn ask(self: &Arc<Self>, server: usize, name: &Name, op: Op) -> Asking {
        match &op {
            Op::Acquire { token, not_after, .. }
            | Op::Adopt { token, not_after, .. }
            | Op::TakeOver { token, not_after, .. } => {
                let (token, until) = (token.clone(), Moment::from_micros(*not_after));
                self.ask_to_take(server, name.clone(), op, token, until)
            }
            Op::Leave { token } => {
                self.bids.leave_sent(token, server);
                self.ask_to_end(server, name.clone(), op)
            }
            Op::Release { .. } => self.ask_to_end(server, name.clone(), op),
            _ => {
                let (group, name) = (Arc::clone(self), name.clone());
                Box::pin(async move { group.send(server, &name, op).await })
            }
        }
    }

    async fn send(&self, server: usize, name: &Name, op: Op) -> Result<Reply, Error> {
        let member = &self.members[server];
        let answer = member.backend.execute(name, op).await;
        if answer.is_ok() {
            member.answered();
        }
        Ok(answer?.reply)
    }

    /// The server may execute a request that takes something until the moment that it carries.
    fn ask_to_take(
        self: &Arc<Self>,
        server: usize,
        name: Name,
        mut op: Op,
        token: Token,
        until: Moment,
    ) -> Asking {
        self.bids.request_sent(&token, server, until);
        let group = Arc::clone(self);
        Box::pin(async move {
            if let Op::Acquire { not_after, .. }
            | Op::Adopt { not_after, .. }
            | Op::TakeOver { not_after, .. } = &mut op
            {
                *not_after = group.members[server].translated(&name, until);
            }
            let answer = group.send(server, &name, op).await;
            if !matches!(&answer, Err(error) if error.may_have_run()) {
                group.bids.request_answered(&token, server, until);
            }
            // Its bid ended while it was under way.
            if let Ok(Reply::Granted { .. } | Reply::Waiting { .. }) = &answer
                && !group.bids.is_live(&token)
            {
                group.undo_now(server, &name, Op::Leave { token });
            }
            answer
        })
    }

    /// A request that ends something is repeated until the server answers it.
    fn ask_to_end(self: &Arc<Self>, server: usize, name: Name, op: Op) -> Asking {
        let group = Arc::clone(self);
        let mut ending = Ending { group, server, name, unanswered: Some(op.clone()) };
        Box::pin(async move {
            let answer = ending.group.send(server, &ending.name, op).await;
            if answer.is_ok()
                && let Some(Op::Leave { token }) = ending.unanswered.take()
            {
                ending.group.bids.leave_answered(&token, server);
            }
            answer
        })
    }

    /// Undoes something on a server as soon as that answers.
    pub(super) fn undo_now(&self, server: usize, name: &Name, undo: Op) {
        self.will_undo(server, &undo);
        self.members[server].compensations.undo_now(name, undo, self.longest_compensation());
    }

    fn will_undo(&self, server: usize, undo: &Op) {
        if let Op::Leave { token } = undo {
            self.bids.make_unusable(token, server);
        }
    }

    fn longest_compensation(&self) -> Duration {
        self.longest_ttl().max(SHORTEST_COMPENSATION)
    }

    /// The bid is over: undoes its unacknowledged requests once they can't be executed any more (rule 6 of waiting). After a release, `undo`
    /// is that release: it may be the first that a server hears of the end, and only a release gives unused fences back.
    pub(super) fn end(&self, name: &Name, token: &Token, undo: &Op) {
        for (server, until) in self.bids.end(token) {
            let compensations = &self.members[server].compensations;
            if compensations.is_needed_after(until) {
                self.will_undo(server, undo);
                compensations.undo_after(until, name, undo.clone(), self.longest_compensation());
            }
        }
    }

    /// Asks every server on which the token is usable. On the others nothing may be taken, and a leave is pending already.
    pub(super) fn ask_usable(self: &Arc<Self>, name: &Name, token: &Token, op: &Op) -> Round {
        let unusable = self.bids.unusable(token);
        let mut round = Round::new(self.members.len());
        for server in (0..self.members.len()).filter(|server| !unusable.has(*server)) {
            round.ask(server, self.ask(server, name, op.clone()));
        }
        round
    }

    /// Asks every server the same.
    pub(super) fn ask_all(self: &Arc<Self>, name: &Name, op: &Op) -> Round {
        let mut round = Round::new(self.members.len());
        for server in 0..self.members.len() {
            round.ask(server, self.ask(server, name, op.clone()));
        }
        round
    }

    /// Waits for the answers to a leave, from all servers that are known to answer: an unwanted position in a queue is visible, and counts,
    /// on any server.
    pub(super) async fn until_left(&self, mut leaving: Round, limit: Moment) -> Round {
        leaving.until(&self.clock, limit, |round| self.are_silent(round)).await;
        if self.clock.now() >= limit {
            self.note_silence(&leaving);
        }
        leaving
    }

    /// Whether no server is pending that is known to answer.
    pub(super) fn are_silent(&self, round: &Round) -> bool {
        round.pending().all(|server| self.members[server].is_silent())
    }

    /// Marks the servers that have not answered. The group does not wait for them until they do.
    pub(super) fn note_silence(&self, round: &Round) {
        for server in round.pending() {
            if !self.members[server].is_silent.swap(true, Ordering::Relaxed) {
                tracing::debug!(target: "tenure", server = self.members[server].label, "server does not answer");
            }
        }
    }

    /// How long servers may take to answer: an eighth of the ttl, so that most of it is left after two rounds; a third of the time that the
    /// caller waits; half a second. The group does not wait for a slower server the next time.
    pub(super) fn silence(&self, ttl: Duration, until: Moment) -> Duration {
        let left = until.since(self.clock.now());
        (ttl / 8).min(left / 3).clamp(Duration::from_millis(2), LONGEST_SILENCE)
    }

    /// The servers whose grants count for this token.
    pub(super) fn votes(&self, token: &Token, warm_ups: &[Option<WarmUp>]) -> Vec<bool> {
        let unusable = self.bids.unusable(token);
        warm_ups.iter().enumerate().map(|(server, it)| it.is_none() && !unusable.has(server)).collect()
    }

    /// A floor a little ahead of the latest of the servers' clocks, so that most servers grant the same fence.
    pub(super) fn floor_ahead(&self, name: &Name, floor: u64) -> u64 {
        let times = self.members.iter().filter_map(|member| member.backend.server_now(name));
        floor.max(times.max().unwrap_or(0) + self.head_start())
    }

    /// The time that a request takes to reach all servers, and a little.
    fn head_start(&self) -> u64 {
        const SHORTEST: u64 = 5_000;
        const LONGEST: u64 = 50_000;
        (2 * self.pace.load(Ordering::Relaxed)).clamp(SHORTEST, LONGEST)
    }

    pub(super) fn note_pace(&self, took: Duration) {
        self.pace.store(micros(took), Ordering::Relaxed);
    }
}

/// A request that ends something. Dropped without an answer, it goes to the compensation queue.
struct Ending {
    group: Arc<Group>,
    server: usize,
    name: Name,
    unanswered: Option<Op>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(op) = self.unanswered.take() {
            self.group.undo_now(self.server, &self.name, op);
        }
    }
}
