//! The transitions of a [`Record`], one method per operation, each ending in a settled record.

use std::time::Duration;

use super::{
    HEARTBEAT, Holder, Holding, MOST_AHEAD, Notice, Now, Op, PROBATION, RANGE, REMEMBERED, Record, Reply,
    Trace, Wait, Waiter, pause_behind,
};
use crate::time::clock::micros;
use crate::types::duration::millis;
use crate::types::owner::Token;

/// A waiter that was silent for longer than this, in µs, is dropped: its heartbeat is this late, less [`HEARTBEAT`].
const LAPSE: i64 = 1_500_000;
/// A client that the store heard of within this time, in µs, is not suspected to be dead.
const QUIET: i64 = 5_000;
/// A living waiter has sent a heartbeat since any grant that is older than this, in µs: two heartbeats.
const TWO_HEARTBEATS: i64 = 800_000;

impl Record {
    /// A name that is not in use; `floor` is the highest fence that the store remembers.
    pub(crate) fn new(floor: u64) -> Self {
        Record { last: floor, holder: None, queue: Vec::new(), broken: None }
    }

    /// The last fence that is used or reserved: what a store must remember when it drops the record.
    pub(crate) fn last_fence(&self) -> u64 {
        self.last
    }

    /// Whether nobody holds the name or waits for it.
    pub(crate) fn is_idle(&self, now: Now) -> bool {
        self.holding(now).is_none() && self.queue.iter().all(|waiter| waiter.silence(now) > LAPSE)
    }

    /// Whether there is nothing to remember but the last fence, so that the record can be dropped.
    pub(crate) fn is_over(&self, now: Now) -> bool {
        self.is_idle(now) && self.broken(now).is_none()
    }

    /// Whether it has no holder and no waiters, living or dead.
    pub(crate) fn is_vacant(&self) -> bool {
        self.holder.is_none() && self.queue.is_empty()
    }

    /// The token that holds the name, unless its lease outlives its process.
    pub(crate) fn process_bound_holder(&self, now: Now) -> Option<&Token> {
        let holder = self.holder.as_ref().filter(|holder| now.millis() <= holder.expires && !holder.detached);
        holder.map(|holder| &holder.token)
    }

    /// For how long the lease runs on, if it outlives its process.
    pub(crate) fn detached_for(&self, now: Now) -> Option<Duration> {
        let holder = self.holder.as_ref().filter(|holder| holder.detached)?;
        holder.expires.checked_sub(now.millis()).map(Duration::from_millis)
    }

    /// The waiter next ahead, or else the holder of a process-bound lease, if the store has not heard of it for a while.
    pub(crate) fn silent_ahead_of(&self, token: &Token, now: Now) -> Option<&Token> {
        let index = self.queue.iter().position(|waiter| waiter.token == *token)?;
        match index.checked_sub(1) {
            Some(ahead) => {
                Some(&self.queue[ahead]).filter(|ahead| ahead.silence(now) > QUIET).map(|ahead| &ahead.token)
            }
            None => self
                .process_bound_holder(now)
                .filter(|_| now.wall.wrapping_sub(self.range_start()).cast_signed() > QUIET),
        }
    }

    /// The tokens of the queue, in its order.
    pub(crate) fn waiting(&self) -> impl DoubleEndedIterator<Item = &Token> {
        self.queue.iter().map(|waiter| &waiter.token)
    }

    /// Cuts a lease to the ttl in its token. Only a clock that was set back can have lengthened it: no client asks for more, so none believes in
    /// more than a ttl from now (I2). A store does this when a client asks for a name that another holds; looking shows the same and changes
    /// nothing. A lease whose token has no ttl is left alone.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "Redis does it in Lua; no clock of another store can be set")
    )]
    pub(crate) fn trim(&mut self, now: Now) {
        if let Some(holder) = &mut self.holder
            && let Some(ttl) = holder.token.ttl()
        {
            holder.expires = holder.expires.min(now.millis() + millis(ttl));
        }
    }

    /// The reply to an operation whose floor no clock explains: the store refuses it before it changes anything (I3), because every later fence
    /// would be above that floor. Stores on this machine do not check this: their clients use the same clock, they remember their fences, and
    /// a machine without a battery may start in 1970.
    #[cfg_attr(not(test), expect(dead_code, reason = "Redis does it in Lua"))]
    pub(crate) fn ahead(&self, op: &Op, now: Now) -> Option<Reply> {
        let (Op::Acquire { floor, not_after, .. }
        | Op::Adopt { floor, not_after, .. }
        | Op::TakeOver { floor, not_after, .. }) = op
        else {
            return None;
        };
        let by = floor.saturating_sub(now.wall.max(self.last));
        (now.lease <= *not_after && by > MOST_AHEAD).then_some(Reply::Ahead { by })
    }

    /// Applies one operation. Returns the reply, and appends whom to notify.
    pub(crate) fn apply(&mut self, op: Op, now: Now, notices: &mut Vec<Notice>) -> Reply {
        match op {
            Op::Acquire { not_after, .. } | Op::Adopt { not_after, .. } | Op::TakeOver { not_after, .. }
                if now.lease > not_after =>
            {
                Reply::TooLate
            }
            Op::Acquire { token, ttl, wait, polls, floor, .. } => self.acquire(
                Waiter { token, joined_at: 0, beat: now.lease, ttl, polls },
                wait,
                floor,
                now,
                notices,
            ),
            Op::Renew { token, ttl } => self.renew(&token, ttl, now),
            Op::Detach { token, ttl } => self.detach(&token, ttl, now),
            Op::Raise { token, fence } => self.raise(&token, fence, now),
            Op::Release { token, used } => self.release(&token, used, now, notices),
            Op::Leave { token } => self.leave(&token, now, notices),
            Op::Adopt { from, token, ttl, floor, .. } => self.adopt(&from, token, ttl, floor, now, notices),
            Op::TakeOver { token, ttl, floor, .. } => self.take_over(token, ttl, floor, now, notices),
            Op::Break { token, fence } => self.break_lease(token, fence, now, notices),
            Op::Death { token } => self.reap(&token, now, notices),
            Op::Inspect => self.inspect(now),
        }
    }

    fn acquire(
        &mut self,
        mut asker: Waiter,
        wait: Wait,
        floor: u64,
        now: Now,
        notices: &mut Vec<Notice>,
    ) -> Reply {
        self.expire(now);
        if self.is_held_by(&asker.token) {
            return self.extend(asker.ttl, floor, now);
        }
        if let Wait::Keep { joined_at } = wait {
            asker.joined_at = joined_at;
            if let Some(reply) = self.beat(&asker, now) {
                return reply;
            }
        }
        // Out and in again: a second acquire and a heartbeat keep the position that the queue knows.
        if let Some(known) = self.dequeue(&asker.token) {
            asker.joined_at = known.joined_at;
        }
        if wait == Wait::No {
            // A try takes the name only if no living waiter is in the queue.
            self.settle(self.silence_allowed_after_expiry(now), now, notices);
            return match self.holding(now) {
                None => self.grant(asker.token, asker.ttl, floor, now),
                Some(holding) => Reply::Busy { holding, waiters: self.queue.len() },
            };
        }
        let (token, ttl, polls) = (asker.token.clone(), asker.ttl, asker.polls);
        let joined_at = self.enqueue(asker, now);
        if self.holder.is_none() {
            self.drop_silent(self.silence_allowed_after_expiry(now), now);
            if self.queue[0].token == token {
                self.queue.remove(0);
                return self.grant(token, ttl, floor, now);
            }
            self.hand_over(now, notices);
        }
        let ahead = self.queue.partition_point(|waiter| waiter.rank() < (joined_at, &token));
        self.queue[ahead].beat = heartbeat_of(ahead, polls, now);
        let holding = self.holding(now).expect("a free name was given to the first of the queue");
        Reply::Waiting { joined_at, ahead, holding }
    }

    /// The heartbeat of a waiter in the queue while another client holds the name, without a search through the queue.
    fn beat(&mut self, asker: &Waiter, now: Now) -> Option<Reply> {
        let holding = self.holding(now)?;
        let ahead = self.queue.binary_search_by(|waiter| waiter.rank().cmp(&asker.rank())).ok()?;
        let waiter = &mut self.queue[ahead];
        (waiter.ttl, waiter.polls) = (asker.ttl, asker.polls);
        waiter.beat = heartbeat_of(ahead, asker.polls, now);
        Some(Reply::Waiting { joined_at: asker.joined_at, ahead, holding })
    }

    fn renew(&mut self, token: &Token, ttl: Duration, now: Now) -> Reply {
        match self.holding(now) {
            Some(holding) if holding.token == *token => {
                self.lengthen(ttl, now);
                Reply::Done
            }
            other => Reply::NotHeld { holder: other.map(|holding| holding.token) },
        }
    }

    fn detach(&mut self, token: &Token, ttl: Duration, now: Now) -> Reply {
        let reply = self.renew(token, ttl, now);
        if let (Reply::Done, Some(holder)) = (&reply, &mut self.holder) {
            holder.detached = true;
        }
        reply
    }

    fn raise(&mut self, token: &Token, fence: u64, now: Now) -> Reply {
        match self.holding(now) {
            Some(holding) if holding.token == *token => {
                self.last = self.last.max(fence.saturating_add(RANGE - 1));
                Reply::Granted { fence: self.range_start() }
            }
            other => Reply::NotHeld { holder: other.map(|holding| holding.token) },
        }
    }

    fn release(&mut self, token: &Token, used: u64, now: Now, notices: &mut Vec<Notice>) -> Reply {
        self.expire(now);
        // A late acquire of it may have joined the queue after its first release, whose answer was lost.
        self.dequeue(token);
        if !self.is_held_by(token) {
            return self.not_held(now, notices);
        }
        // Unused fences go back, or ranges would outrun the clock.
        self.last = used.clamp(self.range_start(), self.last);
        self.vacate(now, notices)
    }

    fn leave(&mut self, token: &Token, now: Now, notices: &mut Vec<Notice>) -> Reply {
        // Mostly its waiter never used it. But in a majority of stores, this may be the store that no release has reached. What was used of its
        // range is not known, so all of it stays reserved.
        self.release(token, u64::MAX, now, notices);
        Reply::Done
    }

    fn adopt(
        &mut self,
        from: &Token,
        token: Token,
        ttl: Duration,
        floor: u64,
        now: Now,
        notices: &mut Vec<Notice>,
    ) -> Reply {
        self.expire(now);
        if self.is_held_by(&token) {
            return self.extend(ttl, floor, now);
        }
        if !self.is_held_by(from) {
            return self.not_held(now, notices);
        }
        self.dequeue(&token);
        self.grant(token, ttl, floor, now)
    }

    fn take_over(
        &mut self,
        token: Token,
        ttl: Duration,
        floor: u64,
        now: Now,
        notices: &mut Vec<Notice>,
    ) -> Reply {
        self.expire(now);
        if self.is_held_by(&token) {
            return self.extend(ttl, floor, now);
        }
        self.dequeue(&token);
        if let Some(holder) = self.holder.take() {
            self.remember_broken(now);
            notices.push(Notice::Revoked { token: holder.token });
        }
        self.grant(token, ttl, floor, now)
    }

    fn break_lease(&mut self, token: Token, fence: u64, now: Now, notices: &mut Vec<Notice>) -> Reply {
        self.expire(now);
        if !self.is_held_by(&token) || self.range_start() != fence {
            return self.not_held(now, notices);
        }
        // What it used of its range is not known: all of it stays reserved.
        self.remember_broken(now);
        notices.push(Notice::Revoked { token });
        self.vacate(now, notices)
    }

    fn reap(&mut self, token: &Token, now: Now, notices: &mut Vec<Notice>) -> Reply {
        self.expire(now);
        self.dequeue(token);
        if self.holder.as_ref().is_some_and(|holder| holder.token == *token && !holder.detached) {
            return self.vacate(now, notices);
        }
        self.settle(self.silence_allowed_after_expiry(now), now, notices);
        Reply::Done
    }

    fn inspect(&self, now: Now) -> Reply {
        let living = self.queue.iter().filter(|waiter| waiter.silence(now) <= LAPSE);
        let waiters = living.map(|waiter| (waiter.token.clone(), waiter.joined_at)).collect();
        Reply::Seen { holding: self.holding(now), waiters, broken: self.broken(now) }
    }

    // The parts that operations are made of.

    /// Ends a lease whose time is over, and forgets what is not shown any more.
    fn expire(&mut self, now: Now) {
        self.holder.take_if(|holder| now.millis() > holder.expires);
        self.broken.take_if(|trace| now.millis() > trace.until);
    }

    /// Ends the present lease by force.
    fn remember_broken(&mut self, now: Now) {
        let until = now.millis() + millis(REMEMBERED);
        self.broken = Some(Trace { fence: self.range_start(), until });
    }

    /// The fence of the lease that was last ended by force, while the record remembers it.
    pub(super) fn broken(&self, now: Now) -> Option<u64> {
        self.broken.as_ref().filter(|trace| now.millis() <= trace.until).map(|trace| trace.fence)
    }

    /// Ends the lease, and grants the name to the next waiter.
    fn vacate(&mut self, now: Now, notices: &mut Vec<Notice>) -> Reply {
        self.holder = None;
        self.settle(LAPSE, now, notices);
        Reply::Done
    }

    fn not_held(&mut self, now: Now, notices: &mut Vec<Notice>) -> Reply {
        self.settle(self.silence_allowed_after_expiry(now), now, notices);
        Reply::NotHeld { holder: self.holder.as_ref().map(|holder| holder.token.clone()) }
    }

    /// Grants a free name to the first waiter that was silent for no longer than `silence`.
    fn settle(&mut self, silence: i64, now: Now, notices: &mut Vec<Notice>) {
        if self.holder.is_none() {
            self.drop_silent(silence, now);
            if !self.queue.is_empty() {
                self.hand_over(now, notices);
            }
        }
    }

    /// Drops the waiters at the head that were silent for too long. A heartbeat brings a living one back.
    fn drop_silent(&mut self, silence: i64, now: Now) {
        let living = self.queue.iter().position(|waiter| waiter.silence(now) <= silence);
        self.queue.drain(..living.unwrap_or(self.queue.len()));
    }

    /// After an expiry, a living waiter has sent a heartbeat since the last grant. A grant younger than two heartbeats says nothing. Nor does a
    /// grant from the future, which a clock that was set back leaves behind: it must not block all waiters.
    fn silence_allowed_after_expiry(&self, now: Now) -> i64 {
        let since_last_grant = now.wall.wrapping_sub(self.range_start()).cast_signed();
        if since_last_grant < TWO_HEARTBEATS { LAPSE } else { LAPSE.min(since_last_grant) }
    }

    /// Grants the name to the first of the queue, on probation.
    fn hand_over(&mut self, now: Now, notices: &mut Vec<Notice>) {
        let next = self.queue.remove(0);
        let term = next.ttl.min(PROBATION);
        if let Reply::Granted { fence } = self.grant(next.token.clone(), term, 0, now) {
            notices.push(Notice::Granted {
                token: next.token,
                fence,
                at: now.lease,
                term,
                polls: next.polls,
            });
        }
    }

    /// A new lease under the next range of fences (I3).
    fn grant(&mut self, token: Token, term: Duration, floor: u64, now: Now) -> Reply {
        self.holder = Some(Holder { token, expires: now.millis() + millis(term), detached: false });
        self.reserve(floor, now)
    }

    /// The holder's own lease, for at least `ttl` from now: never shorter than it was.
    fn extend(&mut self, ttl: Duration, floor: u64, now: Now) -> Reply {
        self.lengthen(ttl, now);
        if floor < self.range_start() {
            return Reply::Granted { fence: self.range_start() };
        }
        self.reserve(floor, now)
    }

    fn lengthen(&mut self, ttl: Duration, now: Now) {
        if let Some(holder) = &mut self.holder {
            holder.expires = holder.expires.max(now.millis() + millis(ttl));
        }
    }

    fn reserve(&mut self, floor: u64, now: Now) -> Reply {
        let fence = now.wall.max(self.last + 1).max(floor + 1);
        self.last = fence + RANGE - 1;
        Reply::Granted { fence }
    }

    /// Where the holder's range starts.
    pub(super) fn range_start(&self) -> u64 {
        self.last.saturating_sub(RANGE - 1)
    }

    pub(crate) fn is_held_by(&self, token: &Token) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.token == *token)
    }

    fn holding(&self, now: Now) -> Option<Holding> {
        let holder = self.holder.as_ref().filter(|holder| now.millis() <= holder.expires)?;
        let left = Duration::from_millis(holder.expires - now.millis());
        Some(Holding { token: holder.token.clone(), fence: self.range_start(), left })
    }

    fn dequeue(&mut self, token: &Token) -> Option<Waiter> {
        let index = self.queue.iter().position(|waiter| waiter.token == *token)?;
        Some(self.queue.remove(index))
    }

    /// Puts a waiter at its position, or at the end if it is new. Returns when it joined.
    fn enqueue(&mut self, mut waiter: Waiter, now: Now) -> u64 {
        if waiter.joined_at == 0 {
            let last = self.queue.last().map_or(0, |last| last.joined_at);
            waiter.joined_at = now.lease.max(last + 1);
        }
        let joined_at = waiter.joined_at;
        let index = self.queue.partition_point(|other| other.rank() < waiter.rank());
        self.queue.insert(index, waiter);
        joined_at
    }
}

impl Waiter {
    /// Its order in the queue. The token decides between equal times, as in a sorted set.
    pub(super) fn rank(&self) -> (u64, &Token) {
        (self.joined_at, &self.token)
    }

    /// How long it has been silent, in µs; negative during its pause, and if the clock was set back since.
    fn silence(&self, now: Now) -> i64 {
        now.lease.wrapping_sub(self.beat).cast_signed()
    }
}

/// The heartbeat of a waiter with so many ahead of it. A waiter that polls can't be notified and must ask within a probation: its pause is the
/// shortest.
fn heartbeat_of(ahead: usize, polls: bool, now: Now) -> u64 {
    let pause = if polls { HEARTBEAT } else { pause_behind(ahead) };
    now.lease + micros(pause - HEARTBEAT)
}
