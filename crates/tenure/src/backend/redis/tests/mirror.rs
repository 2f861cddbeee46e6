//! The specification's side: a [`Record`] with the times of the scripts, and with keys that expire as in Redis.
//!
//! Every part of a script happens between its sending and the reading of its keys, both on the server's clock. So comparisons are exact:
//! every further reading of the clock by Redis lies in that span, and so does the allowed difference. If a key expires within the span,
//! the test cannot know what the script saw, and the story ends there, undecided.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::compare::{End, Span, equal, kind, millis, same_end, take_left};
use super::drafts::Draft;
use super::parts::RecordParts;
use super::store::{Outcome, Stored};
use crate::backend::redis::keys::Keys;
use crate::core::record::{HEARTBEAT, Holding, Notice, Now, Op, Record, Reply, Wait, pause_behind};
use crate::time::clock::micros;
use crate::types::name::Name;
use crate::types::owner::{SessionId, Token};

/// How long a queue outlives its last heartbeat, in ms.
const QUEUE_LIFE: u64 = 30_000;
/// How long a fence outlives its lease, in ms.
const FENCE_MEMORY: u64 = 600_000;

/// The result of a comparison.
#[derive(Debug, PartialEq)]
pub(super) enum Comparison {
    Equal(Seen),
    /// A key ended while the script ran.
    Undecided,
}

/// What a comparison covered.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Seen {
    pub(super) reply: &'static str,
    pub(super) messages: usize,
    pub(super) deaths: usize,
    /// Whether a waiter may pause longer than the first ones.
    pub(super) long_pauses: usize,
    /// Which keys had expired since the last operation.
    pub(super) ended: Vec<&'static str>,
    /// A lease had more time left than its token allows.
    pub(super) is_trimmed: bool,
}

pub(super) struct Mirror {
    name: Name,
    keys: Keys,
    record: Record,
    /// When the side keys expire; the record has the times of the lock and of broken leases.
    fence_ends: Option<End>,
    queue_ends: Option<End>,
    beats_ends: Option<End>,
    record_slack: u64,
    /// When each token joined, by its last answer.
    joined_at_of: BTreeMap<Token, u64>,
}

impl Mirror {
    pub(super) fn new(name: Name) -> Self {
        Mirror {
            name,
            keys: Keys::new("tenure:"),
            record: Record::new(0),
            fence_ends: None,
            queue_ends: None,
            beats_ends: None,
            record_slack: 0,
            joined_at_of: BTreeMap::new(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.record = Record::new(0);
        (self.fence_ends, self.queue_ends, self.beats_ends) = (None, None, None);
    }

    /// The operation, with the numbers of this moment.
    pub(super) fn op(&self, draft: &Draft, now: u64) -> Op {
        draft.op(&RecordParts::of(&self.record), &self.joined_at_of, now)
    }

    /// Applies the operation to the record, and compares everything.
    pub(super) fn compare(
        &mut self,
        op: &Op,
        subscribed: &BTreeSet<SessionId>,
        outcome: &Outcome,
    ) -> Result<Comparison, String> {
        let stored = &outcome.stored;
        // A script that did not read the clock did not need it: any time fits.
        let at = outcome.answer.server.unwrap_or(outcome.sent);
        if !(outcome.sent..=stored.at).contains(&at) {
            return Err(format!("the time {at} is not that of its execution"));
        }
        let span = Span { sent: outcome.sent / 1_000, at: at / 1_000, looked: stored.at / 1_000 };
        // The heartbeats may outlive the queue by a moment.
        let is_half_ended = match (self.queue_ends, self.beats_ends) {
            (Some(queue), Some(beats)) => queue.at_least < span.sent && span.sent <= beats.at_least,
            _ => false,
        };
        if is_half_ended || self.ends().into_iter().any(|end| span.sent <= end && end < span.looked) {
            return Ok(Comparison::Undecided);
        }
        let ended = self.end_keys(span.sent);
        let before = RecordParts::of(&self.record);
        let is_trimmed = self.trim(op, at);
        let (reply, messages, deaths) = self.apply(op, at, subscribed);
        self.use_keys(op, &reply, &before, span);
        if self.ends().into_iter().any(|end| end < span.looked) {
            return Ok(Comparison::Undecided);
        }
        self.compare_keys(stored)?;
        equal("messages", &outcome.messages, &messages)?;
        self.compare_replies(op, &outcome.answer.reply, &reply, span)?;
        if let (Reply::Waiting { joined_at, .. }, Op::Acquire { token, .. }) = (&reply, op) {
            self.joined_at_of.insert(token.clone(), *joined_at);
        }
        let waits = matches!(reply, Reply::Waiting { .. });
        let is_long = waits && RecordParts::of(&self.record).queue.iter().any(|waiter| waiter.heartbeat > at);
        let (reply, messages, long_pauses) = (kind(&reply), messages.len(), usize::from(is_long));
        Ok(Comparison::Equal(Seen { reply, messages, deaths, long_pauses, ended, is_trimmed }))
    }

    /// The last milliseconds of all keys.
    fn ends(&self) -> Vec<u64> {
        let parts = RecordParts::of(&self.record);
        let inside = [parts.holder.map(|(_, end)| end), parts.broken.map(|(_, end)| end)];
        let sides = [self.fence_ends, self.queue_ends, self.beats_ends];
        let sides = sides.into_iter().flatten().map(|end| end.at_least);
        inside.into_iter().flatten().chain(sides).collect()
    }

    /// Removes expired keys for good: a record would see its holder again after the clock is set back, but Redis has deleted the key.
    fn end_keys(&mut self, now: u64) -> Vec<&'static str> {
        let (mut parts, mut ended) = (RecordParts::of(&self.record), Vec::new());
        if parts.holder.take_if(|(_, end)| *end < now).is_some() {
            ended.push("lock");
        }
        if parts.broken.take_if(|(_, end)| *end < now).is_some() {
            ended.push("broken");
        }
        if self.fence_ends.take_if(|end| end.at_least < now).is_some() {
            parts.last = 0;
            ended.push("fence");
        }
        if self.queue_ends.take_if(|end| end.at_least < now).is_some() {
            self.beats_ends = None;
            parts.queue.clear();
            ended.push("queue");
        }
        self.record = parts.record();
        ended
    }

    /// An acquire by another client shortens a lease that has more left than the ttl in its token. Returns whether it did.
    fn trim(&mut self, op: &Op, at: u64) -> bool {
        let (before, now) = (self.record.clone(), Now { lease: at, wall: at });
        if let Op::Acquire { token, not_after, .. } = op
            && at <= *not_after
            && self.record.ahead(op, now).is_none()
            && !self.record.is_held_by(token)
        {
            self.record.trim(now);
        }
        self.record != before
    }

    /// Applies an operation as `MemoryStore::execute` does: a waiter that gets no message and does not poll is dead, and the next one is
    /// notified.
    fn apply(
        &mut self,
        op: &Op,
        at: u64,
        subscribed: &BTreeSet<SessionId>,
    ) -> (Reply, Vec<(String, String)>, usize) {
        let (now, lock) = (Now { lease: at, wall: at }, self.keys.lock(&self.name));
        let (mut notices, mut messages, mut deaths) = (Vec::new(), Vec::new(), 0);
        let refusal = self.record.ahead(op, now);
        let mut reply = refusal.unwrap_or_else(|| self.record.apply(op.clone(), now, &mut notices));
        while let Some(wake) = notices.pop() {
            // A holder learns of the loss of its lease by tracking its key.
            let Notice::Granted { token, fence, at, term, polls } = wake else { continue };
            let session = token.session().expect("a token of ours");
            if subscribed.contains(&session) {
                let text = format!("{fence} {at} {} {} {lock}", millis(term), token.as_str());
                messages.push((self.keys.channel(&session, ""), text));
            } else if !polls {
                deaths += 1;
                self.record.apply(Op::Death { token }, now, &mut notices);
            }
        }
        if deaths > 0 {
            reply = self.after_deaths(op, reply, now);
        }
        (reply, messages, deaths)
    }

    /// A script learns of deaths before it answers, the record afterwards. So the answer of a script about the holder and the waiters
    /// ahead is what the record would say now. This is the only translation.
    fn after_deaths(&mut self, op: &Op, reply: Reply, now: Now) -> Reply {
        let mut parts = RecordParts::of(&self.record);
        let holding = parts.holding(now.lease);
        match (reply, op) {
            // It may have got the name meanwhile, or count as dead: then it names itself.
            (Reply::Waiting { joined_at, .. }, Op::Acquire { token, .. }) => {
                let itself = Holding { token: token.clone(), fence: parts.start(), left: Duration::ZERO };
                let ahead = parts.ahead_of(token);
                if let Some(waiter) = parts.queue.get_mut(ahead).filter(|it| it.token == token.as_str()) {
                    let pause = if waiter.polls { HEARTBEAT } else { pause_behind(ahead) };
                    waiter.heartbeat = now.lease + micros(pause - HEARTBEAT);
                    self.record = parts.record();
                }
                Reply::Waiting { joined_at, ahead, holding: holding.unwrap_or(itself) }
            }
            // Perhaps no living waiter is left, and the name can be taken.
            (Reply::Busy { .. }, _) => self.record.apply(op.clone(), now, &mut Vec::new()),
            (Reply::NotHeld { .. }, _) => Reply::NotHeld { holder: holding.map(|holding| holding.token) },
            (reply, _) => reply,
        }
    }

    /// Updates the side keys that this operation creates, uses or empties.
    fn use_keys(&mut self, op: &Op, reply: &Reply, before: &RecordParts, span: Span) {
        let after = RecordParts::of(&self.record);
        let held = |token: &Token| before.holder.as_ref().is_some_and(|(holder, _)| holder == token.as_str());
        let gives_back = matches!(op, Op::Release { token, .. } | Op::Leave { token } if held(token));
        let lease = after.holder.as_ref().map_or(0, |(_, end)| end.saturating_sub(span.at));
        if after.last != before.last || gives_back {
            let ahead = (after.start() / 1_000).saturating_sub(span.at);
            self.fence_ends = Some(span.life(lease + ahead + FENCE_MEMORY));
        } else if let (Reply::Granted { .. }, Some(ends)) = (reply, &mut self.fence_ends)
            && !matches!(op, Op::Raise { .. })
        {
            // The lease was extended, and its fence outlives it.
            let least = span.life(lease + FENCE_MEMORY);
            *ends = End { at_least: ends.at_least.max(least.at_least), slack: least.slack };
        }
        let beats =
            matches!(op, Op::Acquire { wait: Wait::Join | Wait::Keep { .. }, token, .. } if !held(token));
        if after.queue.is_empty() {
            (self.queue_ends, self.beats_ends) = (None, None);
        } else if beats && !matches!(reply, Reply::TooLate | Reply::Ahead { .. }) {
            (self.queue_ends, self.beats_ends) = (Some(span.life(QUEUE_LIFE)), Some(span.life(QUEUE_LIFE)));
        }
        self.record_slack = span.looked - span.at;
    }

    /// Compares the keys, and adopts their real expiry times.
    fn compare_keys(&mut self, stored: &Stored) -> Result<(), String> {
        let mut parts = RecordParts::of(&self.record);
        equal("holder", &stored.lock.0, &parts.holder.as_ref().map(|(token, _)| token.clone()))?;
        let lock_ends =
            parts.holder.as_ref().map(|(_, end)| End { at_least: *end, slack: self.record_slack });
        let lock_ends = same_end("lease", stored.lock.1, lock_ends)?;
        equal("broken", &stored.broken.0, &parts.broken.map(|(fence, _)| fence))?;
        let broken_ends = parts.broken.map(|(_, end)| End { at_least: end, slack: self.record_slack });
        let broken_ends = same_end("broken", stored.broken.1, broken_ends)?;
        equal("fence", &stored.fence.0, &self.fence_ends.map(|_| parts.last))?;
        self.fence_ends = same_end("fence", stored.fence.1, self.fence_ends)?;
        let queue: Vec<_> =
            parts.queue.iter().map(|waiter| (waiter.token.clone(), waiter.joined_at)).collect();
        equal("queue", &stored.queue.0, &queue)?;
        self.queue_ends = same_end("queue", stored.queue.1, self.queue_ends)?;
        let beats = parts.queue.iter().map(|waiter| {
            let ttl = millis(Duration::from_nanos(waiter.ttl));
            (waiter.token.clone(), format!("{} {ttl} {}", waiter.heartbeat, u8::from(waiter.polls)))
        });
        equal("beats", &stored.beats.0, &beats.collect())?;
        self.beats_ends = same_end("beats", stored.beats.1, self.beats_ends)?;
        let ends = [lock_ends, self.fence_ends, self.queue_ends, self.beats_ends, broken_ends];
        equal("number of keys", &stored.keys, &ends.iter().flatten().count())?;
        if let (Some((_, end)), Some(real)) = (&mut parts.holder, lock_ends) {
            *end = real.at_least;
        }
        if let (Some((_, end)), Some(real)) = (&mut parts.broken, broken_ends) {
            *end = real.at_least;
        }
        self.record = parts.record();
        Ok(())
    }

    fn compare_replies(&self, op: &Op, script: &Reply, record: &Reply, span: Span) -> Result<(), String> {
        let (mut script, mut record) = (script.clone(), record.clone());
        take_left(&mut record);
        if let Some(left) = take_left(&mut script) {
            let (holder, end) = RecordParts::of(&self.record).holder.unwrap_or_default();
            // An inspection shows what an acquire would leave of it.
            let longest = Token::from_store(&holder).ttl().filter(|_| *op == Op::Inspect);
            let [least, most] = [span.looked, span.at].map(|now| {
                Duration::from_millis(end.saturating_sub(now)).min(longest.unwrap_or(Duration::MAX))
            });
            if !(least..=most).contains(&left) {
                return Err(format!("left: {left:?} is not within {least:?} and {most:?}"));
            }
        }
        equal("reply", &script, &record)
    }
}
