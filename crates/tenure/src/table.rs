//! Every cohort of one client, and what happens to them: each method is one transition under one lock.
//!
//! One lock for all names keeps the transitions whole: a loss, a pass and a cancelled task can't cross each other. It is held for
//! well under a microsecond, never over I/O, and nobody is woken under it: what must be done outside is collected in [`After`].
//!
//! Leases and their schedule are in [`schedule`](crate::schedule).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use crate::backend::Grant;
use crate::clock::{Clock, Moment};
use crate::cohort::{Alarm, Attempt, Call, Cohort, Phase, Seat};
use crate::error::Error;
use crate::lease::Lease;
use crate::loss::LossKind;
use crate::metrics::Metrics;
use crate::name::{Name, NameMap};
use crate::owner::{Session, Token};
use crate::status::Busy;
use crate::tenure::{SharedLease, Turn};

/// What is left to do once the lock is free.
#[derive(Default)]
#[must_use = "somebody waits for what is in it"]
pub(crate) struct After {
    /// Mostly there is one: it is kept without an allocation.
    waker: Option<Waker>,
    wakers: Vec<Waker>,
    /// Leases whose holders are to be told.
    pub(crate) lost: Vec<Arc<SharedLease>>,
    /// Names for which a background task has to seek a lease.
    pub(crate) seeks: Vec<(Name, Attempt, Arc<Alarm>)>,
    /// The keeper has something to do sooner than it knew.
    pub(crate) rouse_keeper: bool,
}

impl After {
    pub(crate) fn wake(&mut self, wakers: impl IntoIterator<Item = Waker>) {
        for waker in wakers {
            if let Some(before) = self.waker.replace(waker) {
                self.wakers.push(before);
            }
        }
    }

    pub(crate) fn wake_all(&mut self) {
        self.wakers.drain(..).chain(self.waker.take()).for_each(Waker::wake);
    }
}

/// What a task that comes in has to do.
#[derive(Debug)]
pub(crate) enum Sit {
    /// Ask the store with this attempt.
    Ask(Attempt),
    /// Wait to be called. When another task asks: it has its answer by `asked_until`, if it is polled.
    Wait {
        asked_until: Option<Moment>,
    },
    Refused(Busy),
}

/// What became of a lease that was granted in answer to a request.
pub(crate) enum Placed {
    /// A task's turn has begun.
    Turn,
    /// Nobody wants it any more: give it back.
    Unwanted,
    /// The first task asked for something else: replace the token by this attempt.
    Replace(Attempt),
}

/// What the end of a turn means for the store.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TurnEnd {
    Passed,
    GiveBack,
}

pub(crate) struct Table {
    pub(crate) is_closed: bool,
    pub(crate) cohorts: NameMap<Cohort>,
    /// When which lease is to be looked at.
    pub(crate) due: BTreeMap<(Moment, u64), Name>,
    pub(crate) keeper_sleeps_until: Moment,
    /// How many turns had begun when the keeper last looked.
    pub(crate) acquired_at_last_look: u64,
    pub(crate) next_id: u64,
    /// The highest fence that this client has seen.
    pub(crate) floor: u64,
    /// The tokens of leases that live on in the store without this table, and until when: a push that comes late for one of them
    /// must not give it back.
    parted: Vec<(Moment, Token)>,
    pub(crate) metrics: Metrics,
    pub(crate) clock: Clock,
}

impl Table {
    pub(crate) fn new(clock: Clock) -> Self {
        Table {
            is_closed: false,
            cohorts: NameMap::default(),
            due: BTreeMap::new(),
            keeper_sleeps_until: Moment::FAR,
            acquired_at_last_look: 0,
            next_id: 0,
            floor: 0,
            parted: Vec::new(),
            metrics: Metrics::default(),
            clock,
        }
    }

    /// The highest fence that this client has seen.
    pub(crate) fn floor_unless_closed(&self) -> Result<u64, Error> {
        if self.is_closed { Err(Error::closed()) } else { Ok(self.floor) }
    }

    /// A task comes in.
    pub(crate) fn sit(&mut self, name: &Name, seat: &Arc<Seat>, session: &Session) -> Result<Sit, Error> {
        if self.is_closed {
            return Err(Error::closed());
        }
        let Some(cohort) = self.cohorts.get_mut(name) else {
            let attempt = Attempt::new(session, seat.claim.clone(), self.floor);
            let asking = Phase::asking(&attempt, self.clock.now());
            self.cohorts.insert(name.clone(), Cohort::new(asking));
            return Ok(Sit::Ask(attempt));
        };
        if !seat.waits
            && let Some(busy) = cohort.busy(self.clock.now())
        {
            return Ok(Sit::Refused(busy));
        }
        if matches!(cohort.phase, Phase::Idle) {
            let attempt = Attempt::new(session, seat.claim.clone(), self.floor);
            cohort.phase = Phase::asking(&attempt, self.clock.now());
            return Ok(Sit::Ask(attempt));
        }
        cohort.seats.push_back(Arc::clone(seat));
        let asked_until = match cohort.phase {
            Phase::Asking { until, .. } => Some(until),
            _ => None,
        };
        Ok(Sit::Wait { asked_until })
    }

    /// A task that waits goes away; returns the call that came meanwhile. Both in one step: a turn that is taken back from a seat
    /// puts it into the queue again.
    pub(crate) fn unsit(&mut self, name: &Name, seat: &Arc<Seat>) -> Option<Call> {
        let call = seat.leave();
        let Some(cohort) = self.cohorts.get_mut(name) else {
            return call;
        };
        cohort.seats.retain(|other| !Arc::ptr_eq(other, seat));
        if let (true, Phase::Seeking(seeking)) = (cohort.seats.is_empty(), &cohort.phase) {
            seeking.alarm.ring();
        }
        call
    }

    /// The task that asks is not polled: the others go on without it. If it was granted the name, they have it after one ttl.
    pub(crate) fn ask_overdue(&mut self, name: &Name, session: &Session, after: &mut After) {
        let now = self.clock.now();
        if let Some(cohort) = self.cohorts.get_mut(name)
            && matches!(cohort.phase, Phase::Asking { until, .. } if until <= now)
        {
            cohort.phase = Phase::Idle;
            self.go_on(name, session, after);
        }
    }

    /// What a task that waited in vain is told: who holds the name, or why nobody knows.
    pub(crate) fn in_vain(&self, name: &Name) -> Result<Busy, Error> {
        let cohort = self.cohorts.get(name);
        if let Some(Cohort { phase: Phase::Seeking(seeking), .. }) = cohort
            && let Some(error) = &seeking.trouble
        {
            return Err(error.clone());
        }
        let known = cohort.and_then(|cohort| cohort.busy(self.clock.now()));
        Ok(known.unwrap_or(Busy { holder: None, waiters: cohort.map_or(0, |cohort| cohort.seats.len()) }))
    }

    /// The task that asked was granted the name.
    pub(crate) fn ask_granted(
        &mut self,
        name: &Name,
        attempt: Attempt,
        lease: Lease,
        fence: u64,
        after: &mut After,
    ) -> Result<Turn, Error> {
        if self.is_closed {
            return Err(Error::closed());
        }
        let is_overdue = !self.cohorts.get(name).is_some_and(|cohort| cohort.is_asked_with(&attempt.token));
        if is_overdue {
            return Ok(self.add_lease(name, attempt, lease, fence, None, after));
        }
        Ok(self.hold(name, attempt, lease, fence, None, after))
    }

    /// The task that asked is in the store's queue, and now waits for a call. False when the others went on without it: its attempt
    /// must be left.
    pub(crate) fn ask_queued(
        &mut self,
        name: &Name,
        seat: &Arc<Seat>,
        attempt: Attempt,
        busy: Busy,
        session: &Session,
        after: &mut After,
    ) -> Result<bool, Error> {
        if self.is_closed {
            return Err(Error::closed());
        }
        let cohort = self.cohorts.entry(name.clone()).or_insert_with(|| Cohort::new(Phase::Idle));
        cohort.seats.push_front(Arc::clone(seat));
        if !cohort.is_asked_with(&attempt.token) {
            self.go_on(name, session, after);
            return Ok(false);
        }
        cohort.refuse_tries(&busy, after);
        let before = cohort.seek(name, attempt, Some(busy), after);
        if let Phase::Asking { early: Some(grant), .. } = before {
            self.pushed(name, &grant, after);
        }
        Ok(true)
    }

    /// The task that asked was refused or failed. Whoever waits gets the same error, or goes on by itself.
    pub(crate) fn ask_ended(
        &mut self,
        name: &Name,
        token: &Token,
        error: Option<&Error>,
        session: &Session,
        after: &mut After,
    ) {
        if let Some(cohort) = self.cohorts.get_mut(name)
            && cohort.is_asked_with(token)
        {
            cohort.phase = Phase::Idle;
            if let Some(error) = error {
                cohort.fail_all(error, after);
            }
            self.go_on(name, session, after);
        }
    }

    /// The task that asked went away before it was answered. The others go on with its attempt, which may be alive in the store;
    /// false when there are none, and it must be left.
    pub(crate) fn ask_abandoned(&mut self, name: &Name, attempt: &Attempt, after: &mut After) -> bool {
        let Some(cohort) = self.cohorts.get_mut(name).filter(|cohort| cohort.is_asked_with(&attempt.token))
        else {
            return false;
        };
        if cohort.seats.is_empty() {
            cohort.phase = Phase::Idle;
            if cohort.is_done() {
                self.cohorts.remove(name);
            }
            return false;
        }
        cohort.seek(name, attempt.clone(), None, after);
        true
    }

    /// The lease that was given back is on its way: the next one may ask.
    pub(crate) fn returned(&mut self, name: &Name, session: &Session, after: &mut After) {
        if let Some(cohort) = self.cohorts.get_mut(name)
            && matches!(cohort.phase, Phase::Returning)
        {
            cohort.phase = Phase::Idle;
            self.go_on(name, session, after);
        }
    }

    /// An idle cohort seeks a lease for its first task; without any, it is done.
    pub(crate) fn go_on(&mut self, name: &Name, session: &Session, after: &mut After) {
        let Some(cohort) = self.cohorts.get_mut(name) else {
            return;
        };
        if !matches!(cohort.phase, Phase::Idle) {
            return;
        }
        match cohort.seats.front() {
            Some(seat) => {
                let attempt = Attempt::new(session, seat.claim.clone(), self.floor);
                cohort.seek(name, attempt, None, after);
            }
            None if cohort.is_done() => drop(self.cohorts.remove(name)),
            None => {}
        }
    }

    /// Whether the background task has to ask again for this attempt, and if so, whether to wait in the store's queue.
    pub(crate) fn goes_on_seeking(&self, name: &Name, attempt: &Attempt) -> Option<bool> {
        match self.cohorts.get(name) {
            Some(Cohort { seats, phase: Phase::Seeking(seeking), .. })
                if seeking.attempt.token == attempt.token && !seats.is_empty() =>
            {
                Some(seats.iter().any(|seat| seat.waits))
            }
            _ => None,
        }
    }

    /// The store can't be reached for now.
    pub(crate) fn seek_troubled(&mut self, name: &Name, attempt: &Attempt, error: Error) {
        if let Some(Cohort { phase: Phase::Seeking(seeking), .. }) = self.cohorts.get_mut(name)
            && seeking.attempt.token == attempt.token
        {
            seeking.trouble = Some(error);
        }
    }

    /// The attempt is in the store's queue, or was refused by it.
    pub(crate) fn seek_busy(&mut self, name: &Name, attempt: &Attempt, busy: Busy, after: &mut After) {
        let Some(cohort) = self.cohorts.get_mut(name) else {
            return;
        };
        if let Phase::Seeking(seeking) = &mut cohort.phase
            && seeking.attempt.token == attempt.token
        {
            seeking.attempt = attempt.clone();
            seeking.busy = Some(busy.clone());
            seeking.trouble = None;
            let alarm = Arc::clone(&seeking.alarm);
            cohort.refuse_tries(&busy, after);
            if cohort.seats.is_empty() {
                alarm.ring();
            }
        }
    }

    /// The background task was granted the name in answer to a request.
    pub(crate) fn seek_granted(
        &mut self,
        name: &Name,
        attempt: &Attempt,
        lease: Lease,
        fence: u64,
        session: &Session,
        after: &mut After,
    ) -> Placed {
        let Some(cohort) = self.cohorts.get_mut(name) else {
            return Placed::Unwanted;
        };
        if cohort.has_token(&attempt.token) {
            // Granted by a push meanwhile: the lease is in use, and not left.
            return Placed::Unwanted;
        }
        match &mut cohort.phase {
            Phase::Seeking(seeking) if seeking.attempt.token == attempt.token && !self.is_closed => {
                let Some(seat) = cohort.seats.front() else {
                    return Placed::Unwanted;
                };
                if !attempt.serves(seat) {
                    let mut other = Attempt::new(session, seat.claim.clone(), self.floor.max(fence)).sought();
                    other.replaces = Some(attempt.token.clone());
                    seeking.attempt = other.clone();
                    return Placed::Replace(other);
                }
                self.call_first(name, attempt.clone(), lease, fence, after);
                Placed::Turn
            }
            _ => Placed::Unwanted,
        }
    }

    /// The background task ends without a lease: everyone who waits is told why, or the next attempt begins.
    pub(crate) fn seek_ended(
        &mut self,
        name: &Name,
        attempt: &Attempt,
        error: Option<&Error>,
        session: &Session,
        after: &mut After,
    ) {
        let Some(cohort) = self.cohorts.get_mut(name) else {
            return;
        };
        if !matches!(&cohort.phase, Phase::Seeking(seeking) if seeking.attempt.token == attempt.token) {
            return;
        }
        cohort.phase = Phase::Idle;
        if let Some(error) = error {
            cohort.fail_all(error, after);
        }
        self.go_on(name, session, after);
    }

    /// The store pushed a grant. False when nobody here knows the token: it must be given back.
    pub(crate) fn pushed(&mut self, name: &Name, grant: &Grant, after: &mut After) -> bool {
        let now = self.clock.now();
        let Some(cohort) = self.cohorts.get_mut(name) else {
            return self.has_parted(&grant.token);
        };
        if cohort.has_token(&grant.token) {
            return true;
        }
        let seeking = match &mut cohort.phase {
            Phase::Seeking(seeking) => seeking,
            Phase::Asking { token, early, .. } if *token == grant.token => {
                *early = Some(grant.clone());
                return true;
            }
            _ => return self.has_parted(&grant.token),
        };
        if seeking.attempt.token != grant.token {
            return seeking.attempt.replaces.as_ref() == Some(&grant.token) || self.has_parted(&grant.token);
        }
        let (attempt, alarm) = (seeking.attempt.clone(), Arc::clone(&seeking.alarm));
        let is_for = |seat: &Arc<Seat>| attempt.serves(seat);
        let lease = attempt
            .pair
            .and_then(|pair| Lease::pushed(&attempt.claim.terms, pair, grant.at, grant.term, now));
        if let Some(lease) = lease
            && grant.fence > attempt.floor
            && cohort.seats.front().is_some_and(is_for)
            && now < lease.deadline()
            && !self.is_closed
        {
            self.call_first(name, attempt, lease, grant.fence, after);
            alarm.ring_granted();
        } else {
            // It can't be believed as it is: the background task confirms it by a beat.
            alarm.ring();
        }
        true
    }

    /// A lease was detached: it is not this client's any more.
    pub(crate) fn detached(&mut self, lease: &Arc<SharedLease>, session: &Session, after: &mut After) {
        let now = self.clock.now();
        self.parted.retain(|&(until, _)| until > now);
        self.parted.push((lease.deadline(), lease.token.clone()));
        self.forget_lease(lease, session, after);
    }

    fn has_parted(&self, token: &Token) -> bool {
        self.parted.iter().any(|(_, parted)| parted == token)
    }

    /// The first task's turn begins.
    fn call_first(&mut self, name: &Name, attempt: Attempt, lease: Lease, fence: u64, after: &mut After) {
        let cohort = self.cohorts.get_mut(name).expect("a cohort with a first task");
        let seat = cohort.seats.pop_front().expect("a first task");
        let turn = self.hold(name, attempt, lease, fence, Some(Arc::clone(&seat)), after);
        after.wake(seat.call(Call::Turn(turn)));
    }

    /// The lease passes from task to task from now on.
    fn hold(
        &mut self,
        name: &Name,
        attempt: Attempt,
        lease: Lease,
        fence: u64,
        seat: Option<Arc<Seat>>,
        after: &mut After,
    ) -> Turn {
        let turn = self.add_lease(name, attempt, lease, fence, seat, after);
        let now = self.clock.now();
        let cohort = self.cohorts.get_mut(name).expect("add_lease made it");
        cohort.phase = Phase::Held { id: self.next_id };
        if cohort.seats.iter().any(|seat| !seat.waits)
            && let Some(busy) = cohort.busy(now)
        {
            cohort.refuse_tries(&busy, after);
        }
        turn
    }

    /// A turn ends: the lease passes to the next task, or goes back to the store.
    pub(crate) fn end_turn(&mut self, turn: &Turn, after: &mut After) -> TurnEnd {
        let name = &turn.lease.name;
        let now = self.clock.now();
        let Some(cohort) = self.cohorts.get_mut(name) else {
            return TurnEnd::GiveBack;
        };
        let Some(index) = cohort.index_of(&turn.lease) else {
            return TurnEnd::GiveBack;
        };
        let held = &mut cohort.leases[index];
        let is_passing = matches!(cohort.phase, Phase::Held { id } if id == held.id);
        if is_passing
            && cohort.seats.front().is_some_and(|seat| held.can_pass_to(seat, now))
            && let Some(seat) = cohort.seats.pop_front()
        {
            let next = held.next_turn(now);
            self.floor = self.floor.max(next.fence.get());
            self.metrics.acquired += 1;
            after.wake(seat.call(Call::Turn(next)));
            held.seat = Some(seat);
            return TurnEnd::Passed;
        }
        if is_passing {
            cohort.phase = Phase::Returning;
        }
        self.remove_lease(name, index);
        TurnEnd::GiveBack
    }

    /// Ends everything: tasks that wait fail, holders are told.
    pub(crate) fn close(&mut self) -> After {
        let mut after = After { rouse_keeper: true, ..After::default() };
        self.is_closed = true;
        self.due.clear();
        for (_, mut cohort) in self.cohorts.drain() {
            if let Phase::Seeking(seeking) = &cohort.phase {
                seeking.alarm.ring();
            }
            cohort.fail_all(&Error::closed(), &mut after);
            for held in cohort.leases {
                self.parted.push((held.shared.deadline(), held.shared.token.clone()));
                held.shared.lose(LossKind::Closed);
                self.metrics.lost += 1;
                after.lost.push(held.shared);
            }
        }
        after
    }
}
