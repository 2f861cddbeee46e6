//! Every cohort of one client, and what happens to them: each method is one transition under one lock.
//!
//! One lock for all names keeps the transitions whole: a loss, a pass and a cancelled task can't cross each other. It is held for
//! well under a microsecond, never over I/O, and nobody is woken under it: what must be done outside is collected in [`Effects`].
//!
//! Asking, seeking and the schedule of leases have files of their own.

mod asking;
mod schedule;
mod seeking;

pub(crate) use schedule::Renewal;
pub(crate) use seeking::{Placed, Pushed};

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::core::claim::Claim;
use crate::core::deadlines::Deadlines;
use crate::engine::bid::Bid;
use crate::engine::cohort::{Cohort, Phase, WaitingTask, Wakeup};
use crate::engine::effects::Effects;
use crate::engine::floors::Floors;
use crate::engine::lease_state::{SharedLease, Turn};
use crate::time::clock::{Clock, Moment};
use crate::types::error::Error;
use crate::types::loss::LossKind;
use crate::types::metrics::Metrics;
use crate::types::name::{Name, NameMap};
use crate::types::owner::{Session, Token};
use crate::types::status::Busy;

/// What every new bid of this client needs.
#[derive(Default)]
pub(crate) struct Bidder {
    /// What the tokens of this client carry, once its store is open.
    pub(crate) session: Option<Session>,
    pub(crate) floors: Floors,
}

impl Bidder {
    /// A bid for a lease on this name.
    pub(crate) fn bid(&self, name: &Name, claim: &Arc<Claim>) -> Bid {
        let session = self.session.as_ref().expect("a store that is asked has been opened");
        Bid::new(session, Arc::clone(claim), self.floors.of(name))
    }
}

/// What a task that comes in has to do.
#[derive(Debug)]
pub(crate) enum Enqueued {
    /// Ask the store with this bid.
    Ask(Bid),
    /// Wait to be woken. If another task asks, it has its answer by `asked_until`, provided that it is polled.
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

/// The tokens of bids that were in the store's queue and are over: a grant for one of them may still be on its way. Only the latest, so
/// that memory does not grow.
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
    /// The delay before the first renewal, which also arms loss notification; `None` if the store needs none.
    pub(crate) verify_after: Option<Duration>,
    pub(crate) bidder: Bidder,
    /// The tokens of leases that live on in the store without this table, and until when. A late push for one of them must not give it back.
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
            bidder: Bidder::default(),
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

    /// A task wants the name.
    pub(crate) fn enqueue(&mut self, name: &Name, task: &Arc<WaitingTask>) -> Result<Enqueued, Error> {
        self.check_open()?;
        let Some(cohort) = self.cohorts.get_mut(name) else {
            let bid = self.bidder.bid(name, &task.claim);
            let asking = Phase::asking(&bid, self.clock.now());
            self.cohorts.insert(name.clone(), Cohort::new(asking));
            return Ok(Enqueued::Ask(bid));
        };
        // If all tasks have given up on a bid, what it knows is out of date: ask again.
        let is_given_up = matches!(cohort.phase, Phase::Seeking(_)) && cohort.waiting.is_empty();
        if !task.waits
            && !is_given_up
            && let Some(busy) = cohort.busy(self.clock.now())
        {
            return Ok(Enqueued::Refused(busy));
        }
        if matches!(cohort.phase, Phase::Idle) {
            let bid = self.bidder.bid(name, &task.claim);
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

    /// A waiting task goes away. Returns the wake-up that came meanwhile, in the same step: taking a turn back from a task would put it into
    /// the queue again.
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

    /// What a task learns that waited in vain: who holds the name, or why that is not known.
    pub(crate) fn in_vain(&self, name: &Name) -> Result<Busy, Error> {
        let cohort = self.cohorts.get(name);
        if let Some(Cohort { phase: Phase::Seeking(seeking), .. }) = cohort
            && let Some(error) = &seeking.trouble
        {
            return Err(error.clone());
        }
        let known = cohort.and_then(|cohort| cohort.busy(self.clock.now()));
        Ok(Busy { waiters: None, ..known.unwrap_or(Busy { holder: None, waiters: None }) })
    }

    /// The release is on its way to the store: the next task may ask.
    pub(crate) fn returned(&mut self, name: &Name, effects: &mut Effects) {
        if let Some(cohort) = self.cohorts.get_mut(name)
            && matches!(cohort.phase, Phase::Returning)
        {
            cohort.phase = Phase::Idle;
            self.go_on(name, effects);
        }
    }

    /// An idle cohort seeks a lease for its first task; without any, it is done.
    pub(crate) fn go_on(&mut self, name: &Name, effects: &mut Effects) {
        let Some(cohort) = self.cohorts.get_mut(name) else {
            return;
        };
        if !matches!(cohort.phase, Phase::Idle) {
            return;
        }
        match cohort.waiting.front() {
            Some(task) => {
                let bid = self.bidder.bid(name, &task.claim);
                cohort.seek(name, bid, None, effects);
            }
            None if cohort.is_done() => drop(self.cohorts.remove(name)),
            None => {}
        }
    }

    /// A lease was detached: it is not this client's any more.
    pub(crate) fn detached(&mut self, lease: &Arc<SharedLease>, effects: &mut Effects) {
        let now = self.clock.now();
        self.parted.retain(|&(until, _)| until > now);
        self.parted.push((lease.deadline(), lease.token.clone()));
        self.forget_lease(lease, effects);
    }

    /// The lease passes from task to task from now on.
    fn hold(
        &mut self,
        name: &Name,
        bid: Bid,
        lease: Deadlines,
        fence: u64,
        task: Option<Arc<WaitingTask>>,
        effects: &mut Effects,
    ) -> Turn {
        let turn = self.add_lease(name, bid, lease, fence, task, effects);
        let cohort = self.cohorts.get_mut(name).expect("add_lease made it");
        cohort.phase = Phase::Held { id: self.next_id };
        if cohort.waiting.iter().any(|task| !task.waits)
            && let Some(busy) = cohort.busy(self.clock.now())
        {
            cohort.refuse_tries(&busy, effects);
        }
        turn
    }

    /// A turn ends: the lease passes to the next task, or goes back to the store.
    pub(crate) fn end_turn(&mut self, turn: &Turn, effects: &mut Effects) -> TurnEnd {
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
            // It is another task's turn by now: this one has nothing left to give back (R2.7).
            return TurnEnd::Passed;
        }
        let is_passing = matches!(cohort.phase, Phase::Held { id } if id == held.id);
        if is_passing
            && cohort.waiting.front().is_some_and(|task| held.can_pass_to(task, now))
            && let Some(task) = cohort.waiting.pop_front()
        {
            let next = held.next_turn(now);
            self.bidder.floors.saw(name, next.fence.get());
            self.metrics.acquired += 1;
            effects.wake(task.call(Wakeup::Turn(next)));
            held.task = Some(task);
            return TurnEnd::Passed;
        }
        if is_passing {
            cohort.phase = Phase::Returning;
        }
        self.remove_lease(name, index);
        TurnEnd::GiveBack
    }

    /// Ends everything: waiting tasks fail, and holders are notified.
    pub(crate) fn close(&mut self, effects: &mut Effects) {
        effects.rouse_keeper = true;
        self.is_closed = true;
        self.due.clear();
        for (_, mut cohort) in self.cohorts.drain() {
            if let Phase::Seeking(seeking) = &cohort.phase {
                seeking.alarm.ring();
            }
            if let Some(token) = cohort.asked_with() {
                self.settled.add(token);
            }
            cohort.fail_all(&Error::closed(), effects);
            for held in cohort.leases {
                self.parted.push((held.shared.deadline(), held.shared.token.clone()));
                held.shared.lose(LossKind::Closed);
                self.metrics.lost += 1;
                effects.lost.push(held.shared);
            }
        }
    }
}
