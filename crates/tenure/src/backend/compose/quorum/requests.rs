//! One request to one server, with what must be known of it whatever becomes of it: answered late, never, or dropped.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Group;
use super::member::Debt;
use super::round::{Asking, Round};
use crate::core::record::{Op, Reply};
use crate::time::clock::{Moment, micros};
use crate::types::error::Error;
use crate::types::name::Name;
use crate::types::owner::Token;

/// How long a server may be silent, at the most, before it is gone on without.
pub(super) const LONGEST_SILENCE: Duration = Duration::from_millis(500);
/// What a moment that was translated may be off.
const SLACK: Duration = Duration::from_millis(20);
/// How long a debt is worth paying, at least.
const WORTH_PAYING: Duration = Duration::from_secs(10);

impl Group {
    /// A request, as one server gets it. It is sent when it is first polled.
    pub(super) fn ask(self: &Arc<Self>, server: usize, name: &Name, op: Op) -> Asking {
        match &op {
            Op::Acquire { token, not_after, .. }
            | Op::Adopt { token, not_after, .. }
            | Op::TakeOver { token, not_after, .. } => {
                let (token, until) = (token.clone(), Moment::from_micros(*not_after));
                self.ask_to_take(server, name.clone(), op, token, until)
            }
            Op::Leave { token } => {
                self.bids.leaving(token, server);
                self.ask_to_end(server, name.clone(), op)
            }
            Op::Release { .. } => self.ask_to_end(server, name.clone(), op),
            _ => {
                let (group, name) = (Arc::clone(self), name.clone());
                Box::pin(async move { group.asked(server, &name, op).await })
            }
        }
    }

    async fn asked(&self, server: usize, name: &Name, op: Op) -> Result<Reply, Error> {
        let member = &self.members[server];
        let answer = member.backend.execute(name, op).await;
        if answer.is_ok() {
            member.is_silent.store(false, Ordering::Relaxed);
        }
        Ok(answer?.reply)
    }

    /// What takes something may be executed until the moment that it carries.
    fn ask_to_take(
        self: &Arc<Self>,
        server: usize,
        name: Name,
        mut op: Op,
        token: Token,
        until: Moment,
    ) -> Asking {
        self.bids.haunt(&token, server, until);
        let group = Arc::clone(self);
        Box::pin(async move {
            if let Op::Acquire { not_after, .. }
            | Op::Adopt { not_after, .. }
            | Op::TakeOver { not_after, .. } = &mut op
            {
                *not_after = group.members[server].translated(&name, until);
            }
            let answer = group.asked(server, &name, op).await;
            if !matches!(&answer, Err(error) if error.may_have_run()) {
                group.bids.unhaunt(&token, server, until);
            }
            // Its bid ended while it was under way.
            if let Ok(Reply::Granted { .. } | Reply::Waiting { .. }) = &answer
                && !group.bids.is_live(&token)
            {
                group.owe(server, &name, Op::Leave { token }, group.clock.now());
            }
            answer
        })
    }

    /// What ends something is owed until it is answered.
    fn ask_to_end(self: &Arc<Self>, server: usize, name: Name, op: Op) -> Asking {
        let group = Arc::clone(self);
        let mut unpaid = Unpaid { group, server, name, op: Some(op) };
        Box::pin(async move {
            let op = unpaid.op.clone().expect("it is not paid yet");
            let answer = unpaid.group.asked(server, &unpaid.name, op).await;
            if answer.is_ok()
                && let Some(Op::Leave { token }) = unpaid.op.take()
            {
                unpaid.group.bids.has_left(&token, server);
            }
            answer
        })
    }

    /// Does it on that server when it answers again, not before `due`.
    pub(super) fn owe(&self, server: usize, name: &Name, op: Op, due: Moment) {
        if let Op::Leave { token } = &op {
            self.bids.lose(token, server);
        }
        let until = due + self.longest_ttl().max(WORTH_PAYING);
        self.members[server].owe(Debt { name: name.clone(), op, due, until });
    }

    /// The bid is over: what may still be executed for it is undone when that can't be any more (rule 6 of waiting). By `undo`, which is
    /// the release where there was one: it may be the first that a server hears of the end, and only a release gives unused fences back.
    pub(super) fn end(&self, name: &Name, token: &Token, undo: &Op) {
        let now = self.clock.now();
        for (server, until) in self.bids.end(token) {
            if until + SLACK > now {
                self.owe(server, name, undo.clone(), until + SLACK);
            }
        }
    }

    /// Asks every server the same but those that are lost to the token: there nothing may be taken, and what is to be left is owed.
    pub(super) fn ask_but_lost(self: &Arc<Self>, name: &Name, token: &Token, op: &Op) -> Round {
        let lost = self.bids.lost(token);
        let mut round = Round::new(self.members.len());
        for server in (0..self.members.len()).filter(|server| !lost.has(*server)) {
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

    /// Waits for the answers to a leave. A place that nobody wants is seen, and kept, at any server: so for all that are known to answer.
    pub(super) async fn until_left(&self, mut leaving: Round, limit: Moment) -> Round {
        leaving.until(&self.clock, limit, |round| self.are_silent(round)).await;
        if self.clock.now() >= limit {
            self.saw_silence(&leaving);
        }
        leaving
    }

    /// Whether nobody is left who is known to answer.
    pub(super) fn are_silent(&self, round: &Round) -> bool {
        round.pending().all(|server| self.members[server].is_silent())
    }

    /// Those that have not answered by now are not waited for until they do.
    pub(super) fn saw_silence(&self, round: &Round) {
        for server in round.pending() {
            if !self.members[server].is_silent.swap(true, Ordering::Relaxed) {
                tracing::debug!(target: "tenure", server = self.members[server].label, "does not answer");
            }
        }
    }

    /// How long servers may take to answer, where the caller waits that long: an eighth of the ttl, so that most of it is left after two
    /// rounds; a third of what whoever asked waits for; half a second. A server that needs longer is not waited for the next time.
    pub(super) fn silence(&self, ttl: Duration, until: Moment) -> Duration {
        let left = until.since(self.clock.now());
        (ttl / 8).min(left / 3).clamp(Duration::from_millis(2), LONGEST_SILENCE)
    }

    /// The servers that count for this token.
    pub(super) fn votes(&self, token: &Token, youths: &[Option<Duration>]) -> Vec<bool> {
        let lost = self.bids.lost(token);
        youths.iter().enumerate().map(|(server, youth)| youth.is_none() && !lost.has(server)).collect()
    }

    /// The floor with which all servers mostly grant the same fence: a little ahead of the latest of their clocks.
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

    pub(super) fn saw_pace(&self, took: Duration) {
        self.pace.store(micros(took), Ordering::Relaxed);
    }
}

/// A request that ends something, which was not answered.
struct Unpaid {
    group: Arc<Group>,
    server: usize,
    name: Name,
    op: Option<Op>,
}

impl Drop for Unpaid {
    fn drop(&mut self) {
        if let Some(op) = self.op.take() {
            self.group.owe(self.server, &self.name, op, self.group.clock.now());
        }
    }
}
