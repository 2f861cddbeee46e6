//! Every cohort of one client, and what happens to them: each method is one transition under one lock.
//!
//! One lock for all names keeps the transitions whole: a loss, a pass and a cancelled task can't cross each other. It is held for
//! well under a microsecond, never over I/O, and nobody is woken under it: what must be done outside is collected in [`Effects`].
//!
//! What belongs to asking, to seeking, and to the schedule of leases is in files of their own.

mod asking;
mod schedule;
mod seeking;

pub(crate) use schedule::Renewal;
pub(crate) use seeking::{Placed, Pushed};

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::core::deadlines::Deadlines;
use crate::engine::bid::{Alarm, Bid};
use crate::engine::cohort::{Cohort, Phase, WaitingTask, Wakeup};
use crate::engine::floors::Floors;
use crate::engine::lease_state::{SharedLease, Turn};
use crate::time::clock::{Clock, Moment};
use crate::types::error::Error;
use crate::types::loss::LossKind;
use crate::types::metrics::Metrics;
use crate::types::name::{Name, NameMap};
use crate::types::owner::{Session, Token};
use crate::types::status::Busy;

/// What is left to do once the lock is free.
#[derive(Default)]
#[must_use = "somebody waits for what is in it"]
pub(crate) struct Effects {
    /// Mostly there is one: it is kept without an allocation.
    waker: Option<Waker>,
    wakers: Vec<Waker>,
    /// Leases whose holders are to be told.
    pub(crate) lost: Vec<Arc<SharedLease>>,
    /// Names for which a background task has to seek a lease.
    pub(crate) seeks: Vec<(Name, Bid, Arc<Alarm>)>,
    /// The keeper has something to do sooner than it knew.
    pub(crate) rouse_keeper: bool,
}

impl Effects {
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
pub(crate) enum Enqueued {
    /// Ask the store with this bid.
    Ask(Bid),
    /// Wait to be called. When another task asks: it has its answer by `asked_until`, if it is polled.
    Wait {
        asked_until: Option<Moment>,
    },
    Refused(Busy),
}

/// What the end of a turn means for the store.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TurnEnd {
    Passed,
    GiveBack,
}

/// The tokens of bids that may have stood in the store's queue and are over: a grant for one of them may still be on its way. The last of
/// them, because nothing may grow with what was done.
#[derive(Default)]
struct Settled(VecDeque<Token>);

impl Settled {
    const MOST: usize = 1_024;

    fn add(&mut self, token: &Token) {
        if self.0.len() == Self::MOST {
            self.0.pop_front();
        }
        self.0.push_back(token.clone());
    }
}

/// The leases by when they are due, and by their numbers.
pub(crate) type Schedule = BTreeMap<(Moment, u64), Name>;

pub(crate) struct Table {
    pub(crate) is_closed: bool,
    pub(crate) cohorts: NameMap<Cohort>,
    /// When which lease is to be looked at.
    pub(crate) due: Schedule,
    pub(crate) keeper_sleeps_until: Moment,
    /// How many turns had begun when the keeper last looked.
    pub(crate) acquired_at_last_look: u64,
    pub(crate) next_id: u64,
    /// How old a lease gets before it is verified for the first time; `None` where the store tells of every end unasked.
    pub(crate) verify_after: Option<Duration>,
    pub(crate) floors: Floors,
    /// The tokens of leases that live on in the store without this table, and until when: a push that comes late for one of them
    /// must not give it back.
    parted: Vec<(Moment, Token)>,
    settled: Settled,
    pub(crate) metrics: Metrics,
    pub(crate) clock: Clock,
}

impl Table {
    pub(crate) fn new(clock: Clock) -> Self {
        Table {
            is_closed: false,
            cohorts: NameMap::default(),
            due: Schedule::new(),
            keeper_sleeps_until: Moment::FAR,
            acquired_at_last_look: 0,
            next_id: 0,
            verify_after: None,
            floors: Floors::default(),
            parted: Vec::new(),
            settled: Settled::default(),
            metrics: Metrics::default(),
            clock,
        }
    }

    /// An error when the domain was closed.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.is_closed { Err(Error::closed()) } else { Ok(()) }
    }

    /// A task comes in.
    pub(crate) fn enqueue(
        &mut self,
        name: &Name,
        task: &Arc<WaitingTask>,
        session: &Session,
    ) -> Result<Enqueued, Error> {
        self.check_open()?;
        let Some(cohort) = self.cohorts.get_mut(name) else {
            let bid = Bid::new(session, task.claim.clone(), self.floors.of(name));
            let asking = Phase::asking(&bid, self.clock.now());
            self.cohorts.insert(name.clone(), Cohort::new(asking));
            return Ok(Enqueued::Ask(bid));
        };
        // A bid that everyone has given up on knows only what was: ask again.
        let is_given_up = matches!(cohort.phase, Phase::Seeking(_)) && cohort.waiting.is_empty();
        if !task.waits
            && !is_given_up
            && let Some(busy) = cohort.busy(self.clock.now())
        {
            return Ok(Enqueued::Refused(busy));
        }
        if matches!(cohort.phase, Phase::Idle) {
            let bid = Bid::new(session, task.claim.clone(), self.floors.of(name));
            cohort.phase = Phase::asking(&bid, self.clock.now());
            return Ok(Enqueued::Ask(bid));
        }
        cohort.waiting.push_back(Arc::clone(task));
        let asked_until = match cohort.phase {
            Phase::Asking { until, .. } => Some(until),
            _ => None,
        };
        Ok(Enqueued::Wait { asked_until })
    }

    /// A task that waits goes away; returns the call that came meanwhile. Both in one step: a turn that is taken back from a task
    /// puts it into the queue again.
    pub(crate) fn dequeue(&mut self, name: &Name, task: &Arc<WaitingTask>) -> Option<Wakeup> {
        let call = task.leave();
        let Some(cohort) = self.cohorts.get_mut(name) else {
            return call;
        };
        cohort.waiting.retain(|other| !Arc::ptr_eq(other, task));
        if let (true, Phase::Seeking(seeking)) = (cohort.waiting.is_empty(), &cohort.phase) {
            seeking.alarm.ring();
        }
        call
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
        let waiters = cohort.map_or(0, |cohort| cohort.waiting.len());
        let mut busy = known.unwrap_or(Busy { holder: None, waiters });
        // It does not count itself. In the store's queue all tasks of this client are one, which stays with the others.
        let stays = waiters > 1 && matches!(cohort, Some(Cohort { phase: Phase::Seeking(_), .. }));
        busy.waiters = busy.waiters.saturating_sub(usize::from(!stays));
        Ok(busy)
    }

    /// The lease that was given back is on its way: the next one may ask.
    pub(crate) fn returned(&mut self, name: &Name, session: &Session, after: &mut Effects) {
        if let Some(cohort) = self.cohorts.get_mut(name)
            && matches!(cohort.phase, Phase::Returning)
        {
            cohort.phase = Phase::Idle;
            self.go_on(name, session, after);
        }
    }

    /// An idle cohort seeks a lease for its first task; without any, it is done.
    pub(crate) fn go_on(&mut self, name: &Name, session: &Session, after: &mut Effects) {
        let Some(cohort) = self.cohorts.get_mut(name) else {
            return;
        };
        if !matches!(cohort.phase, Phase::Idle) {
            return;
        }
        match cohort.waiting.front() {
            Some(task) => {
                let bid = Bid::new(session, task.claim.clone(), self.floors.of(name));
                cohort.seek(name, bid, None, after);
            }
            None if cohort.is_done() => drop(self.cohorts.remove(name)),
            None => {}
        }
    }

    /// A lease was detached: it is not this client's any more.
    pub(crate) fn detached(&mut self, lease: &Arc<SharedLease>, session: &Session, after: &mut Effects) {
        let now = self.clock.now();
        self.parted.retain(|&(until, _)| until > now);
        self.parted.push((lease.deadline(), lease.token.clone()));
        self.forget_lease(lease, session, after);
    }

    /// The lease passes from task to task from now on.
    fn hold(
        &mut self,
        name: &Name,
        bid: Bid,
        lease: Deadlines,
        fence: u64,
        task: Option<Arc<WaitingTask>>,
        after: &mut Effects,
    ) -> Turn {
        let turn = self.add_lease(name, bid, lease, fence, task, after);
        let cohort = self.cohorts.get_mut(name).expect("add_lease made it");
        cohort.phase = Phase::Held { id: self.next_id };
        if cohort.waiting.iter().any(|task| !task.waits)
            && let Some(busy) = cohort.busy(self.clock.now())
        {
            cohort.refuse_tries(&busy, after);
        }
        turn
    }

    /// A turn ends: the lease passes to the next task, or goes back to the store.
    pub(crate) fn end_turn(&mut self, turn: &Turn, after: &mut Effects) -> TurnEnd {
        let name = &turn.lease.name;
        let now = self.clock.now();
        let Some(cohort) = self.cohorts.get_mut(name) else {
            return TurnEnd::GiveBack;
        };
        let Some(index) = cohort.index_of(&turn.lease) else {
            return TurnEnd::GiveBack;
        };
        let held = &mut cohort.leases[index];
        if held.turn.fence != turn.fence {
            // It is another task's turn by now: nothing of this one is left to give back (R2.7).
            return TurnEnd::Passed;
        }
        let is_passing = matches!(cohort.phase, Phase::Held { id } if id == held.id);
        if is_passing
            && cohort.waiting.front().is_some_and(|task| held.can_pass_to(task, now))
            && let Some(task) = cohort.waiting.pop_front()
        {
            let next = held.next_turn(now);
            self.floors.saw(name, next.fence.get());
            self.metrics.acquired += 1;
            after.wake(task.call(Wakeup::Turn(next)));
            held.task = Some(task);
            return TurnEnd::Passed;
        }
        if is_passing {
            cohort.phase = Phase::Returning;
        }
        self.remove_lease(name, index);
        TurnEnd::GiveBack
    }

    /// Ends everything: tasks that wait fail, holders are told.
    pub(crate) fn close(&mut self) -> Effects {
        let mut after = Effects { rouse_keeper: true, ..Effects::default() };
        self.is_closed = true;
        self.due.clear();
        for (_, mut cohort) in self.cohorts.drain() {
            if let Phase::Seeking(seeking) = &cohort.phase {
                seeking.alarm.ring();
            }
            if let Some(token) = cohort.asked_with() {
                self.settled.add(token);
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
