//! A client that keeps to the protocol: it asks, beats, believes what the real [`Deadlines`] lets it believe, and cleans up behind itself.
//!
//! A critical section is taken to run from the moment a grant is received to the deadline, or to its release: a superset of what any
//! client does that checks its lease before it runs, however long it is paused between the two.

use std::time::Duration;

use super::Flaw;
use super::world::{Action, Answer, Ask, TIMEOUT, TTL, Violation, World};
use crate::core::deadlines::{Deadlines, Step, TimePair};
use crate::core::record::{HEARTBEAT, PROBATION};
use crate::time::clock::micros;

#[derive(Clone, Debug)]
pub(super) enum Phase {
    Idle,
    /// `place` is zero until a reply told it.
    Waiting {
        joined_at: u64,
    },
    Holding {
        lease: Deadlines,
        fence: u64,
    },
    /// Released, left or lost: the store has to forget the token. `answered` when it said so once.
    Ending {
        used: Option<u64>,
        answered: bool,
    },
    Crashed {
        buried: bool,
    },
}

/// A request that the client waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) sent: u64,
    /// Of an acquire; else zero.
    pub(super) not_after: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) phase: Phase,
    pub(super) attempt: u8,
    pub(super) attempts_left: u8,
    pub(super) asked: Option<Asked>,
    pub(super) last_sent: u64,
    pub(super) pair: Option<TimePair>,
    /// The highest fence of another that it has seen.
    pub(super) floor: u64,
    /// An acquire of this attempt that was not answered may be executed up to this time of the store.
    pub(super) requests_until: u64,
    /// The network has made a copy of an acquire of this attempt, which the client can't know of.
    pub(super) was_copied: bool,
    /// Attempts that are over, and the time of the store from which on it must have forgotten their tokens.
    pub(super) over: Vec<(u8, u64)>,
}

impl Client {
    pub(super) fn new(attempts: u8) -> Self {
        Client {
            phase: Phase::Idle,
            attempt: 0,
            attempts_left: attempts,
            asked: None,
            last_sent: 0,
            pair: None,
            floor: 0,
            requests_until: 0,
            was_copied: false,
            over: Vec::new(),
        }
    }

    pub(super) fn sending(&mut self, ask: &Ask, sent: u64) {
        self.abandon();
        let not_after = if let Ask::Acquire { not_after, .. } = ask { *not_after } else { 0 };
        self.asked = Some(Asked { sent, not_after });
        self.last_sent = sent;
    }

    /// Waits no longer for an answer. What was asked may still be executed.
    fn abandon(&mut self) {
        if let Some(asked) = self.asked.take() {
            self.requests_until = self.requests_until.max(asked.not_after);
        }
    }

    pub(super) fn would_time_out(&self, now: u64) -> bool {
        self.asked.is_some_and(|asked| now - asked.sent >= micros(TIMEOUT))
    }

    pub(super) fn waits(&self) -> bool {
        matches!(self.phase, Phase::Waiting { .. })
    }

    /// Whether a request of this client runs into its timeout, now.
    pub(super) fn gives_up_on_an_answer(&mut self, client: u8, now: u64) -> bool {
        let timed_out = self.would_time_out(now);
        if timed_out {
            self.abandon();
            if let Phase::Holding { lease, .. } = &mut self.phase {
                lease.not_answered(World::moment(client, now));
            }
        }
        timed_out
    }

    pub(super) fn is_waiting_for(&self, attempt: u8, sent: u64) -> bool {
        attempt == self.attempt && self.asked.is_some_and(|asked| asked.sent == sent)
    }

    /// Whether it may still ask for the name with the token of this attempt.
    pub(super) fn may_acquire(&self, attempt: u8) -> bool {
        attempt == self.attempt && self.waits()
    }

    pub(super) fn believes(&self, client: u8, now: u64) -> bool {
        match &self.phase {
            Phase::Holding { lease, .. } => {
                !matches!(lease.step(World::moment(client, now)), Step::Over { .. })
            }
            _ => false,
        }
    }

    /// What this client may do now.
    pub(super) fn actions(&self, client: u8, world: &World, actions: &mut Vec<Action>) {
        let free = self.asked.is_none();
        match &self.phase {
            Phase::Idle => {
                if self.attempts_left > 0 {
                    actions.push(Action::Join(client));
                }
            }
            Phase::Waiting { .. } => {
                let rested = world.now - self.last_sent >= micros(HEARTBEAT + world.scope.pause);
                if free && rested && world.scope.flaw != Some(Flaw::NoBeats) {
                    actions.push(Action::Beat(client));
                }
                if world.budget.cancels > 0 {
                    actions.push(Action::GiveUp(client));
                }
            }
            Phase::Holding { lease, .. } => {
                match lease.step(World::moment(client, world.now)) {
                    Step::Over { .. } => {
                        actions.push(Action::Lose(client));
                        return;
                    }
                    Step::Renew { .. } if free => actions.push(Action::Renew(client)),
                    _ => {}
                }
                if free && world.scope.renews_longer {
                    actions.push(Action::RenewLonger(client));
                }
                actions.push(Action::Release(client));
            }
            Phase::Ending { answered, .. } => {
                // Once it was answered, only a ghost is a reason to leave again, and only when no more of them can come.
                if free && (!answered || World::store_at(world.now) > self.requests_until) {
                    actions.push(Action::End(client));
                }
            }
            Phase::Crashed { .. } => {}
        }
    }

    fn end(&mut self, used: Option<u64>) {
        self.abandon();
        if let Phase::Holding { fence, .. } = self.phase {
            self.floor = self.floor.max(fence);
        }
        self.phase = Phase::Ending { used, answered: false };
    }
}

impl World {
    pub(super) fn client_acts(&mut self, client: u8, action: Action) {
        let now = World::moment(client, self.now);
        let not_after = World::store_at(self.now) + micros(TIMEOUT);
        let state = &mut self.clients[usize::from(client)];
        let floor = state.floor;
        let ask = match (action, &mut state.phase) {
            (Action::Join(_), phase) => {
                state.attempts_left -= 1;
                *phase = Phase::Waiting { joined_at: 0 };
                Ask::Acquire { joined_at: 0, floor, not_after }
            }
            (Action::Beat(_), Phase::Waiting { joined_at }) => {
                Ask::Acquire { joined_at: *joined_at, floor, not_after }
            }
            (Action::Renew(_), Phase::Holding { lease, .. }) => match lease.step(now) {
                Step::Renew { ttl } => Ask::Renew { ttl },
                other => unreachable!("{other:?}"),
            },
            (Action::RenewLonger(_), Phase::Holding { .. }) => Ask::Renew { ttl: 2 * TTL },
            (Action::Release(_), Phase::Holding { fence, .. }) => {
                let used = *fence;
                state.end(Some(used));
                Ask::Release { used }
            }
            (Action::Lose(_), Phase::Holding { .. }) => {
                state.end(None);
                return;
            }
            (Action::GiveUp(_), Phase::Waiting { .. }) => {
                self.budget.cancels -= 1;
                state.end(None);
                Ask::Leave
            }
            (Action::End(_), Phase::Ending { used: Some(used), answered: false }) => {
                Ask::Release { used: *used }
            }
            (Action::End(_), Phase::Ending { .. }) => Ask::Leave,
            (action, phase) => unreachable!("{action:?} in {phase:?}"),
        };
        self.send(client, ask);
    }

    pub(super) fn reply_arrives(&mut self, client: u8, sent: u64, ask: &Ask, answer: &Answer, server: u64) {
        let (flaw, now) = (self.scope.flaw, World::moment(client, self.now));
        let from = if flaw == Some(Flaw::ReceiveBasedDeadline) { now } else { World::moment(client, sent) };
        let state = &mut self.clients[usize::from(client)];
        if state.asked.is_some_and(|asked| asked.sent == sent) {
            state.asked = None;
        }
        if matches!(answer, Answer::TooLate) {
            return;
        }
        state.pair = Some(TimePair { sent: World::moment(client, sent), server, connection: 0 });
        let granted = Deadlines::granted(&World::terms(), from);
        match (&mut state.phase, ask, answer) {
            (Phase::Waiting { joined_at: known }, _, Answer::Waiting { joined_at, seen }) => {
                *known = *joined_at;
                state.floor = state.floor.max(*seen);
            }
            (Phase::Waiting { .. }, _, Answer::Granted { fence }) => self.hold(client, granted, *fence),
            (Phase::Holding { lease, .. }, Ask::Renew { ttl }, Answer::Done) => lease.renewed(from, *ttl),
            (Phase::Holding { lease, fence: known }, Ask::Acquire { .. }, Answer::Granted { fence }) => {
                if known == fence {
                    lease.renewed(from, TTL);
                } else if *known < *fence {
                    // Its own late beat took the name anew: another lease.
                    self.hold(client, granted, *fence);
                }
            }
            (Phase::Holding { .. }, Ask::Renew { .. }, Answer::NotHeld) => state.end(None),
            (Phase::Ending { answered, .. }, Ask::Release { .. } | Ask::Leave, _) => {
                *answered = true;
                // A release does not take a ghost out of the queue; a leave does, once no more of them can come.
                let is_clean =
                    state.requests_until == 0 || matches!(ask, Ask::Leave) && server > state.requests_until;
                if is_clean || flaw == Some(Flaw::LeavesOnce) {
                    self.finish(client);
                }
            }
            _ => {}
        }
    }

    /// The store has forgotten this token for good: the next attempt is under another.
    fn finish(&mut self, client: u8) {
        let now = World::store_at(self.now);
        let state = &mut self.clients[usize::from(client)];
        // An unknown copy is bounded by its not_after, a lapse and a probation.
        let haunting = micros(TIMEOUT + super::LAPSE + self.scope.pause + PROBATION);
        let forgotten = if state.was_copied { now + haunting } else { now };
        let (attempt, left, floor) = (state.attempt, state.attempts_left, state.floor);
        let mut over = std::mem::take(&mut state.over);
        *state = Client { attempt, floor, ..Client::new(left) };
        if self.scope.flaw != Some(Flaw::ReusedToken) {
            over.push((attempt, forgotten));
            state.attempt += 1;
        }
        state.over = over;
    }

    pub(super) fn push_arrives(&mut self, client: u8, fence: u64, at: u64, term: Duration) {
        let now = World::moment(client, self.now);
        let state = &self.clients[usize::from(client)];
        let pair = if self.scope.flaw == Some(Flaw::PushBelievedFromReceipt) {
            Some(TimePair { sent: now, server: at, connection: 0 })
        } else {
            state.pair
        };
        // Without a pair, or under a fence that is not above the floor, the next beat confirms it.
        let Some(pair) = pair.filter(|_| fence > state.floor) else {
            return;
        };
        if let (Phase::Waiting { .. }, Some(lease)) =
            (&state.phase, Deadlines::pushed(&World::terms(), pair, at, term, now))
        {
            self.hold(client, lease, fence);
        }
    }

    /// The check before the critical section runs.
    fn hold(&mut self, client: u8, lease: Deadlines, fence: u64) {
        if matches!(lease.step(World::moment(client, self.now)), Step::Over { .. }) {
            return;
        }
        if fence <= self.ran {
            self.violation.get_or_insert(Violation::FenceWentBack);
        }
        self.ran = fence;
        self.clients[usize::from(client)].phase = Phase::Holding { lease, fence };
    }
}
