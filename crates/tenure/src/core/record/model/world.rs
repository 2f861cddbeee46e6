//! A small world: one real [`Record`], a few clients, and the messages between them.
//!
//! Nothing forces anybody to do anything. A message that is not delivered is delayed, or lost; a client that does not act is paused,
//! or slow; so every delay, loss and pause is a schedule among the others and needs no step of its own. What is left to be counted,
//! to keep the world finite, are requests that go unanswered, messages that arrive twice, crashes and cancelled waits. A request
//! whose client no longer waits for it stays in the network for ever, as a ghost; its reply finds nobody.

use std::time::Duration;

use super::client::{Client, Phase};
use super::{Flaw, Scope};
use crate::core::deadlines::Terms;
use crate::core::record::{Notice, Now, Op, Record, Reply, Wait};
use crate::time::clock::{Moment, micros};
use crate::types::owner::Token;

/// Just below a second, so that the store's expiry and the holder's deadline fall into the same tick when nothing is delayed.
pub(super) const TTL: Duration = Duration::from_millis(999);
/// How long a request may go unanswered, and how long the store accepts an acquire: half of the ttl, the most that is allowed, up to
/// the next tick.
pub(super) const TIMEOUT: Duration = Duration::from_millis(500);
/// Where the store's clocks start.
const STORE: u64 = 1_000_000_000_000;
const WALL: u64 = 1_700_000_000_000_000;
/// How far the wall clock is set back, once.
const SET_BACK: u64 = 700_000;

/// What is asked of the store, with the attempt (the token) it is asked for.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    /// `place` is zero for the first.
    Acquire {
        joined_at: u64,
        floor: u64,
        not_after: u64,
    },
    Renew {
        ttl: Duration,
    },
    Release {
        used: u64,
    },
    Leave,
}

/// What a client needs to know of a reply.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Granted { fence: u64 },
    Waiting { joined_at: u64, seen: u64 },
    NotHeld,
    Done,
    TooLate,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Request(Ask),
    Reply { ask: Ask, answer: Answer, server: u64 },
    Push { fence: u64, at: u64, term: Duration },
}

#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) client: u8,
    pub(super) attempt: u8,
    /// When the request was sent, on the world's clock; of a push, when it was made.
    pub(super) sent: u64,
    pub(super) body: Body,
}

/// One step of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Tick,
    Deliver(u8),
    Duplicate(u8),
    Join(u8),
    Beat(u8),
    Renew(u8),
    /// A renewal by hand that asks for longer.
    RenewLonger(u8),
    Release(u8),
    /// The deadline is past, and the client notices.
    Lose(u8),
    GiveUp(u8),
    /// Release or leave again.
    End(u8),
    Crash(u8),
    /// The store notices that a crashed client is dead.
    Bury(u8),
    SetWallBack,
    /// Somebody who has no part in this touches the name.
    Touch,
}

/// What must not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Violation {
    /// S1, I1: two clients believe that they hold the name.
    TwoBelieve,
    /// I2: a client believes what the store does not know any more.
    Baseless,
    /// I3: a critical section ran under a fence that was not above all before it.
    FenceWentBack,
    /// I5: a token that its client has done with is in the record again.
    Haunted,
    /// A living waiter does not get the name, or the record does not empty, although nothing fails any more.
    Stuck,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    pub(super) unanswered: u8,
    pub(super) duplicates: u8,
    pub(super) crashes: u8,
    pub(super) cancels: u8,
    pub(super) set_backs: u8,
}

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) scope: &'static Scope,
    /// µs since the world began. All clocks run at this speed, each from a start of its own.
    pub(super) now: u64,
    pub(super) wall_set_back: u64,
    pub(super) record: Record,
    pub(super) clients: Vec<Client>,
    pub(super) messages: Vec<Message>,
    pub(super) budget: Budget,
    /// The highest fence that a critical section ran under.
    pub(super) ran: u64,
    pub(super) violation: Option<Violation>,
}

impl World {
    pub(super) fn new(scope: &'static Scope) -> Self {
        World {
            scope,
            now: 0,
            wall_set_back: 0,
            record: Record::new(0),
            clients: vec![Client::new(scope.attempts); usize::from(scope.clients)],
            messages: Vec::new(),
            budget: scope.budget,
            ran: 0,
            violation: None,
        }
    }

    pub(super) fn terms() -> Terms {
        Terms::new(TTL, Some(TIMEOUT))
    }

    /// The store's clocks.
    pub(super) fn store_now(&self) -> Now {
        Now { lease: STORE + self.now, wall: WALL + self.now - self.wall_set_back }
    }

    /// The store's time of a moment of this world: what a client computes from a pair.
    pub(super) fn store_at(at: u64) -> u64 {
        STORE + at
    }

    /// A client's own clock.
    pub(super) fn moment(client: u8, at: u64) -> Moment {
        Moment::from_micros(u64::from(client + 1) * 1_000_000_000 + at)
    }

    pub(super) fn send(&mut self, client: u8, ask: Ask) {
        let sent = self.now;
        let state = &mut self.clients[usize::from(client)];
        state.sending(&ask, sent);
        let attempt = state.attempt;
        self.messages.push(Message { client, attempt, sent, body: Body::Request(ask) });
    }

    /// The step, and what must hold after it.
    pub(super) fn act(&mut self, action: Action) {
        match action {
            Action::Tick => self.tick(),
            Action::Deliver(index) => {
                let message = self.messages.remove(usize::from(index));
                self.deliver(message);
            }
            Action::Duplicate(index) => {
                self.budget.duplicates -= 1;
                let copy = self.messages[usize::from(index)].clone();
                let client = &mut self.clients[usize::from(copy.client)];
                client.was_copied |= copy.attempt == client.attempt;
                self.messages.push(copy);
            }
            Action::Crash(client) => {
                self.budget.crashes -= 1;
                let state = &mut self.clients[usize::from(client)];
                state.phase = Phase::Crashed { buried: false };
                (state.asked, state.requests_until, state.attempts_left) = (None, 0, 0);
            }
            Action::Bury(client) => {
                let state = &mut self.clients[usize::from(client)];
                state.phase = Phase::Crashed { buried: true };
                let token = token(client, state.attempt);
                self.apply(Op::Death { token });
            }
            Action::Touch => {
                let token = Token::from_store("stranger");
                self.apply(Op::Leave { token });
            }
            Action::SetWallBack => {
                self.budget.set_backs -= 1;
                self.wall_set_back = SET_BACK;
            }
            Action::Join(client)
            | Action::Beat(client)
            | Action::Renew(client)
            | Action::RenewLonger(client)
            | Action::Release(client)
            | Action::Lose(client)
            | Action::GiveUp(client)
            | Action::End(client) => self.client_acts(client, action),
        }
        self.prune();
        self.check();
    }

    fn tick(&mut self) {
        self.now += micros(self.scope.tick);
        for (client, state) in (0..).zip(&mut self.clients) {
            if state.gives_up_on_an_answer(client, self.now) {
                self.budget.unanswered -= 1;
            }
        }
    }

    fn deliver(&mut self, message: Message) {
        match message.body {
            Body::Request(ask) => {
                let token = token(message.client, message.attempt);
                let op = self.op(&ask, token.clone());
                let reply = self.apply(op);
                self.put_forward(&token, &reply);
                if self.scope.flaw == Some(Flaw::ShorteningRenewal) {
                    self.shorten(&token, &ask);
                }
                let answer = match reply {
                    Reply::Granted { fence } => Answer::Granted { fence },
                    Reply::Waiting { joined_at, holding, .. } => {
                        Answer::Waiting { joined_at, seen: holding.fence }
                    }
                    Reply::NotHeld { .. } => Answer::NotHeld,
                    Reply::Done => Answer::Done,
                    Reply::TooLate => Answer::TooLate,
                    other => unreachable!("{other:?}"),
                };
                let server = self.store_now().lease;
                let body = Body::Reply { ask, answer, server };
                self.messages.push(Message { body, ..message });
            }
            Body::Reply { ask, answer, server } => {
                self.reply_arrives(message.client, message.sent, &ask, &answer, server);
            }
            Body::Push { fence, at, term } => self.push_arrives(message.client, fence, at, term),
        }
    }

    fn op(&self, ask: &Ask, token: Token) -> Op {
        match *ask {
            Ask::Acquire { joined_at, floor, not_after } => Op::Acquire {
                token,
                ttl: TTL,
                wait: if joined_at == 0 { Wait::Join } else { Wait::Keep { joined_at } },
                polls: false,
                floor,
                not_after: if self.scope.flaw == Some(Flaw::NoNotAfter) { u64::MAX } else { not_after },
            },
            Ask::Renew { ttl } => Op::Renew { token, ttl },
            Ask::Release { used } => Op::Release { token, used },
            Ask::Leave => Op::Leave { token },
        }
    }

    fn apply(&mut self, op: Op) -> Reply {
        if self.scope.flaw == Some(Flaw::FenceByClockAlone) {
            self.record.last = 0;
        }
        let mut notices = Vec::new();
        let reply = self.record.apply(op, self.store_now(), &mut notices);
        for wake in notices {
            let Notice::Granted { token, fence, at, term, .. } = wake else {
                unreachable!("nobody takes over")
            };
            let (client, attempt) = owner(&token);
            self.messages.push(Message {
                client,
                attempt,
                sent: self.now,
                body: Body::Push { fence, at, term },
            });
        }
        reply
    }

    /// What a store does with the beat of a waiter that is far from the head: it may pause for longer.
    fn put_forward(&mut self, token: &Token, reply: &Reply) {
        let waiter = self.record.queue.iter_mut().find(|waiter| waiter.token == *token);
        if let (Reply::Waiting { .. }, Some(waiter)) = (reply, waiter) {
            waiter.beat += micros(self.scope.pause);
        }
    }

    /// What a store does that sets the expiry without looking whether it gets earlier.
    fn shorten(&mut self, token: &Token, ask: &Ask) {
        let ttl = match ask {
            Ask::Acquire { .. } => TTL,
            Ask::Renew { ttl } => *ttl,
            _ => return,
        };
        let now = self.store_now().lease / 1_000;
        if let Some(holder) = self.record.holder.as_mut().filter(|holder| holder.token == *token) {
            holder.expires = now + micros(ttl) / 1_000;
        }
    }

    /// Drops what can't matter any more, so that worlds that differ only in it are one.
    fn prune(&mut self) {
        let mut messages = std::mem::take(&mut self.messages);
        for index in (0..messages.len()).rev() {
            if !self.matters(&messages[index], &messages) {
                messages.remove(index);
            }
        }
        self.messages = messages;
    }

    fn matters(&self, message: &Message, messages: &[Message]) -> bool {
        let client = &self.clients[usize::from(message.client)];
        let is_awaited = client.is_waiting_for(message.attempt, message.sent);
        match &message.body {
            // A reply that comes after its client has given up on it finds nobody.
            Body::Reply { .. } => is_awaited,
            // A push that is older than its lease, by more than a moment, is as good as one that is lost.
            Body::Push { term, .. } => {
                let old = micros(*term + 2 * self.scope.tick);
                client.may_acquire(message.attempt) && self.now - message.sent < old
            }
            // An acquire that comes too late changes nothing: tried for a tick, and then taken for granted.
            Body::Request(Ask::Acquire { not_after, .. }) => {
                let refused = not_after + micros(self.scope.tick);
                is_awaited || self.scope.flaw == Some(Flaw::NoNotAfter) || self.store_now().lease <= refused
            }
            // A token that is in no queue and can't come back is a stranger's; what strangers do is a step of its own.
            Body::Request(_) => {
                let it = (message.client, message.attempt);
                is_awaited
                    || client.may_acquire(message.attempt)
                    || self.scope.flaw == Some(Flaw::ReusedToken)
                    || self.record.holder.iter().any(|holder| owner(&holder.token) == it)
                    || self.record.queue.iter().any(|waiter| owner(&waiter.token) == it)
                    || messages.iter().any(|other| other.is_acquire_of(it))
            }
        }
    }
}

impl Message {
    fn is_acquire_of(&self, it: (u8, u8)) -> bool {
        let is_acquire = matches!(self.body, Body::Request(Ask::Acquire { .. }));
        is_acquire && (self.client, self.attempt) == it
    }
}

/// Tokens are two digits: the client and its attempt.
pub(super) fn token(client: u8, attempt: u8) -> Token {
    let digits = [b'0' + client, b'0' + attempt];
    Token::from_store(std::str::from_utf8(&digits).expect("digits"))
}

pub(super) fn owner(token: &Token) -> (u8, u8) {
    let digits = token.as_str().as_bytes();
    (digits[0] - b'0', digits[1] - b'0')
}
