//! The other side: a [`Record`] that is told the times which the scripts told, and what Redis does besides: keys that end.
//!
//! Every part of a script happens between the moment at which it was sent and the one at which its keys were looked at, both on the
//! server's clock. So nothing here is "about": what Redis reads from its clock again lies in that span, and so does the difference that
//! is allowed. Where a key ends within the span nobody can say what the script saw, and the story ends there, unjudged.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::compare::{End, Span, equal, kind, millis, same_end, take_left};
use super::drafts::Draft;
use super::parts::Parts;
use super::store::{Outcome, Stored};
use crate::backend::redis::keys::Keys;
use crate::core::record::{HEARTBEAT, Holding, Notice, Now, Op, Record, Reply, Wait, pause_behind};
use crate::time::clock::micros;
use crate::types::name::Name;
use crate::types::owner::{SessionId, Token};

/// How long a queue outlives its last enqueue or beat, in ms.
const QUEUE_LIFE: u64 = 30_000;
/// How long a fence outlives its lease, in ms.
const FENCE_MEMORY: u64 = 600_000;

/// What became of a comparison.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    Equal(Seen),
    /// A key ended while the script ran.
    Unjudged,
}

/// What a comparison has shown, to tell a test that looks from one that does not.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Seen {
    pub(super) reply: &'static str,
    pub(super) messages: usize,
    pub(super) deaths: usize,
    /// Whether it was a waiter that may pause for longer than the first ones.
    pub(super) long_pauses: usize,
    /// Which keys had ended since the last operation.
    pub(super) ended: Vec<&'static str>,
    /// A lease had more left than its token says.
    pub(super) is_trimmed: bool,
}

pub(super) struct Mirror {
    name: Name,
    keys: Keys,
    record: Record,
    /// When the side keys end; those of the lock and of what was broken are in the record.
    fence_ends: Option<End>,
    queue_ends: Option<End>,
    beats_ends: Option<End>,
    record_slack: u64,
    /// The places that tokens were last told.
    places: BTreeMap<Token, u64>,
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
            places: BTreeMap::new(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.record = Record::new(0);
        (self.fence_ends, self.queue_ends, self.beats_ends) = (None, None, None);
    }

    /// The operation, with the numbers of this moment.
    pub(super) fn op(&self, draft: &Draft, now: u64) -> Op {
        draft.op(&Parts::of(&self.record), &self.places, now)
    }

    /// Does what the script was asked to do, and compares everything.
    pub(super) fn compare(
        &mut self,
        op: &Op,
        subscribed: &BTreeSet<SessionId>,
        outcome: &Outcome,
    ) -> Result<Verdict, String> {
        let stored = &outcome.stored;
        // What did not look at the clock did not need to: any time will do.
        let at = outcome.answer.server.unwrap_or(outcome.sent);
        if !(outcome.sent..=stored.at).contains(&at) {
            return Err(format!("the time {at} is not that of its execution"));
        }
        let span = Span { sent: outcome.sent / 1_000, at: at / 1_000, looked: stored.at / 1_000 };
        // A beat's key may outlast its queue's by a moment.
        let is_half_ended = match (self.queue_ends, self.beats_ends) {
            (Some(queue), Some(beats)) => queue.at_least < span.sent && span.sent <= beats.at_least,
            _ => false,
        };
        if is_half_ended || self.ends().into_iter().any(|end| span.sent <= end && end < span.looked) {
            return Ok(Verdict::Unjudged);
        }
        let ended = self.end_keys(span.sent);
        let before = Parts::of(&self.record);
        let is_trimmed = self.trim(op, at);
        let (reply, messages, deaths) = self.apply(op, at, subscribed);
        self.use_keys(op, &reply, &before, span);
        if self.ends().into_iter().any(|end| end < span.looked) {
            return Ok(Verdict::Unjudged);
        }
        self.compare_keys(stored)?;
        equal("messages", &outcome.messages, &messages)?;
        self.compare_replies(op, &outcome.answer.reply, &reply, span)?;
        if let (Reply::Waiting { joined_at, .. }, Op::Acquire { token, .. }) = (&reply, op) {
            self.places.insert(token.clone(), *joined_at);
        }
        let waits = matches!(reply, Reply::Waiting { .. });
        let is_long = waits && Parts::of(&self.record).queue.iter().any(|waiter| waiter.beat > at);
        let (reply, messages, long_pauses) = (kind(&reply), messages.len(), usize::from(is_long));
        Ok(Verdict::Equal(Seen { reply, messages, deaths, long_pauses, ended, is_trimmed }))
    }

    /// The last milliseconds of all keys.
    fn ends(&self) -> Vec<u64> {
        let parts = Parts::of(&self.record);
        let inside = [parts.holder.map(|(_, end)| end), parts.broken.map(|(_, end)| end)];
        let sides = [self.fence_ends, self.queue_ends, self.beats_ends];
        let sides = sides.into_iter().flatten().map(|end| end.at_least);
        inside.into_iter().flatten().chain(sides).collect()
    }

    /// Ends the keys whose time is over, for good: a record that was only looked at would see its holder again once the clock is set
    /// back, but Redis has deleted the key.
    fn end_keys(&mut self, now: u64) -> Vec<&'static str> {
        let (mut parts, mut ended) = (Parts::of(&self.record), Vec::new());
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

    /// Somebody else's acquire ends what a lease has left beyond the ttl in its token. Whether it had.
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

    /// Applies an operation as `MemoryStore::execute` does: whoever can't be told, and does not poll, is dead, and the next one is told.
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
            // Who lost its lease learns of it by tracking its key.
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

    /// A script learns of deaths before it answers, the record after: so what a script says of the holder, and of those ahead, is what
    /// the record would say now. This is the one thing that is translated.
    fn after_deaths(&mut self, op: &Op, reply: Reply, now: Now) -> Reply {
        let mut parts = Parts::of(&self.record);
        let holding = parts.holding(now.lease);
        match (reply, op) {
            // It may have been granted the name meanwhile, or be dead itself, as far as anybody can tell: then it names itself.
            (Reply::Waiting { joined_at, .. }, Op::Acquire { token, .. }) => {
                let itself = Holding { token: token.clone(), fence: parts.start(), left: Duration::ZERO };
                let ahead = parts.ahead_of(token);
                if let Some(waiter) = parts.queue.get_mut(ahead).filter(|it| it.token == token.as_str()) {
                    let pause = if waiter.polls { HEARTBEAT } else { pause_behind(ahead) };
                    waiter.beat = now.lease + micros(pause - HEARTBEAT);
                    self.record = parts.record();
                }
                Reply::Waiting { joined_at, ahead, holding: holding.unwrap_or(itself) }
            }
            // Nobody living is left, perhaps, and the name can be taken.
            (Reply::Busy { .. }, _) => self.record.apply(op.clone(), now, &mut Vec::new()),
            (Reply::NotHeld { .. }, _) => Reply::NotHeld { holder: holding.map(|holding| holding.token) },
            (reply, _) => reply,
        }
    }

    /// The side keys that this operation makes, uses or leaves empty.
    fn use_keys(&mut self, op: &Op, reply: &Reply, before: &Parts, span: Span) {
        let after = Parts::of(&self.record);
        let held = |token: &Token| before.holder.as_ref().is_some_and(|(holder, _)| holder == token.as_str());
        let gives_back = matches!(op, Op::Release { token, .. } | Op::Leave { token } if held(token));
        let lease = after.holder.as_ref().map_or(0, |(_, end)| end.saturating_sub(span.at));
        if after.last != before.last || gives_back {
            let ahead = (after.start() / 1_000).saturating_sub(span.at);
            self.fence_ends = Some(span.life(lease + ahead + FENCE_MEMORY));
        } else if let (Reply::Granted { .. }, Some(ends)) = (reply, &mut self.fence_ends)
            && !matches!(op, Op::Raise { .. })
        {
            // The holder's own lease was extended, and its fence outlives it.
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

    /// Compares the keys, and goes on with the ends that they really have.
    fn compare_keys(&mut self, stored: &Stored) -> Result<(), String> {
        let mut parts = Parts::of(&self.record);
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
            (waiter.token.clone(), format!("{} {ttl} {}", waiter.beat, u8::from(waiter.polls)))
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
            let (holder, end) = Parts::of(&self.record).holder.unwrap_or_default();
            // A look shows what an acquire would leave of it.
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
