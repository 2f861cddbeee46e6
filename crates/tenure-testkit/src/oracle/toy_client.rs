//! The client of the simulation: asks, holds, renews, and believes until its deadline.
//!
//! The rules are those of a sound lock: the deadline counts from before the request was sent, a token is
//! used for one acquire and its retries, and what was lost stays lost. Where a flaw changes one of them,
//! it stands beside the rule.

use super::event::{Nanos, What};
use super::simulation::{Act, NAME, World};
use super::toy_store::{Command, Flaw, MS, Reply, TTL};

const MARGIN: Nanos = 3 * MS;

#[derive(Debug, Default)]
pub(super) struct Client {
    pub(super) id: String,
    /// The token of the acquire that is under way, and when it was first sent.
    pub(super) attempt: Option<(u64, Nanos)>,
    pub(super) holds: Vec<Hold>,
    pub(super) clock_behind: Nanos,
    pub(super) stopped_until: Nanos,
    pub(super) is_dead: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    token: u64,
    fence: u64,
    deadline: Nanos,
    read: u64,
}

impl World {
    pub(super) fn ask(&mut self, client: usize) {
        self.say(client, What::Requested { name: NAME.to_owned() });
        self.begin_attempt(client);
    }

    fn begin_attempt(&mut self, client: usize) {
        let token = self.below(u64::MAX);
        self.clients[client].attempt = Some((token, self.now));
        self.resend(client, token);
    }

    pub(super) fn resend(&mut self, client: usize, token: u64) {
        if self.clients[client].attempt.is_some_and(|(own, _)| own == token) {
            self.send_acquire(client, token, false);
            let delay = 20 * MS + self.below(5 * MS);
            self.later(delay, Act::Resend(client, token));
        }
    }

    fn send_acquire(&mut self, client: usize, token: u64, is_blind: bool) {
        let not_after = self.now + TTL / 2;
        self.send(client, Command::Acquire { token, not_after, is_blind });
    }

    pub(super) fn renew(&mut self, client: usize, token: u64) {
        if self.hold(client, token).is_some_and(|hold| self.now < hold.deadline) {
            self.send(client, Command::Renew { token });
            self.later(TTL / 3, Act::Renew(client, token));
        }
    }

    /// The work is done, or a deadline is due that may have moved since.
    pub(super) fn finish(&mut self, client: usize, fence: u64, is_deadline: bool) {
        let own = self.clients[client].holds.iter().find(|hold| hold.fence == fence);
        let Some(is_held) = own.map(|hold| self.now < hold.deadline) else {
            return;
        };
        if !(is_deadline && is_held) {
            self.end(client, fence, is_held);
        }
    }

    fn hold(&self, client: usize, token: u64) -> Option<Hold> {
        self.clients[client].holds.iter().rfind(|hold| hold.token == token).copied()
    }

    /// Until when the client believes an answer to what it sent at `sent`.
    fn deadline(&self, client: usize, sent: Nanos, expires: Nanos) -> Nanos {
        match self.flaw {
            Flaw::TrustsTheWallClock => expires + self.clients[client].clock_behind - MARGIN,
            Flaw::CountsFromReceipt => self.now + TTL - MARGIN,
            _ => sent + TTL - MARGIN,
        }
    }

    pub(super) fn at_client(&mut self, client: usize, reply: Reply, sent: Nanos) {
        match reply {
            Reply::Granted { token, fence, expires } => {
                let deadline = self.deadline(client, sent, expires);
                let asked = self.clients[client].attempt.filter(|(own, _)| *own == token);
                if let Some((_, first_sent)) = asked {
                    self.clients[client].attempt = None;
                    self.granted(client, Hold { token, fence, deadline, read: 0 }, first_sent);
                } else if self.flaw == Flaw::GrantsARetryTwice
                    && self.hold(client, token).is_some_and(|hold| hold.fence != fence)
                {
                    self.say(client, What::Requested { name: NAME.to_owned() });
                    self.granted(client, Hold { token, fence, deadline, read: 0 }, sent);
                }
            }
            Reply::Renewed { token, expires } => {
                let Some(hold) = self.hold(client, token).filter(|hold| self.now < hold.deadline) else {
                    return;
                };
                let deadline = hold.deadline.max(self.deadline(client, sent, expires));
                let own = self.clients[client].holds.iter_mut().find(|own| own.fence == hold.fence);
                own.into_iter().for_each(|own| own.deadline = deadline);
                self.say(client, What::Renewed { name: NAME.to_owned(), fence: hold.fence, deadline });
                self.later(deadline - self.now, Act::Deadline(client, hold.fence));
            }
            Reply::NotHeld { token } => {
                if let Some(hold) = self.hold(client, token) {
                    self.end(client, hold.fence, false);
                }
            }
            Reply::Freed => {
                if let Some((token, _)) = self.clients[client].attempt {
                    self.send_acquire(client, token, self.flaw == Flaw::DoesNotCheckAgain);
                }
            }
            Reply::Busy | Reply::Nothing => {}
        }
    }

    fn granted(&mut self, client: usize, hold: Hold, since: Nanos) {
        let (name, fence) = (NAME.to_owned(), hold.fence);
        if hold.deadline <= self.now {
            self.send(client, Command::Release { token: hold.token });
            return self.begin_attempt(client);
        }
        self.say(client, What::Granted { name, fence, deadline: hold.deadline, since: Some(since) });
        self.say(client, What::Read { name: NAME.to_owned(), value: self.counter });
        self.clients[client].holds.push(Hold { read: self.counter, ..hold });
        let length = if self.below(5) == 0 { TTL + self.below(3 * TTL) } else { MS + self.below(20 * MS) };
        self.later(length, Act::Finish(client, fence));
        self.later(TTL / 3, Act::Renew(client, hold.token));
        self.later(hold.deadline - self.now, Act::Deadline(client, fence));
    }

    /// The end of a hold: by a release, or by a loss. The fenced write is on its way in either case, as
    /// one is that left the process just before it learned of the loss.
    fn end(&mut self, client: usize, fence: u64, is_held: bool) {
        let name = NAME.to_owned();
        let holds = &mut self.clients[client].holds;
        let Some(index) = holds.iter().position(|hold| hold.fence == fence) else {
            return;
        };
        let hold = holds.remove(index);
        if is_held {
            self.counter = hold.read + 1;
            self.say(client, What::Wrote { name: name.clone(), value: self.counter });
            self.say(client, What::Released { name, fence });
        } else if self.flaw != Flaw::KeepsLossesQuiet {
            self.say(client, What::Lost { name, fence });
        }
        if let Some(delay) = self.travel() {
            self.later(delay, Act::AtResource(client, fence));
        }
        self.send(client, Command::Release { token: hold.token });
        let delay = self.below(30 * MS);
        self.later(delay, Act::Ask(client));
    }
}
