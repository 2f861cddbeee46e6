//! The tasks of this process that want, or have, one name.
//!
//! Lock cohorting, known from locks for NUMA machines: the tasks queue here, and the cohort as a whole is *one* waiter in the
//! store's queue, so a cancelled task costs no other task its position. A granted lease passes from task to task without a round trip, each
//! with the next fence of the lease's range, until its budget is spent. Then it goes back to the store, which gives it to another process if
//! one waits. So the order is: first come, first served between processes, and within a process.
//!
//! This file has the parts; what happens to them is in [`table`](crate::engine::table), under one lock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::backend::Grant;
use crate::core::claim::Claim;
use crate::core::deadlines::Deadlines;
use crate::core::record::{Holding, RANGE};
use crate::engine::bid::{Alarm, Bid};
use crate::engine::effects::Effects;
use crate::engine::lease_state::{SharedLease, Turn};

use crate::sync::Mutex;
use crate::time::clock::{Moment, SLACK};
use crate::types::error::Error;
use crate::types::name::Name;
use crate::types::owner::Token;
use crate::types::status::Busy;

/// How long a lease may pass from task to task before it goes back to the store, where another process may wait.
pub(crate) const TURN_BUDGET: Duration = Duration::from_millis(5);

/// A task that wants the name and has no answer yet.
#[derive(Debug)]
pub(crate) struct WaitingTask {
    pub(crate) claim: Arc<Claim>,
    /// Whether it waits when the name is held.
    pub(crate) waits: bool,
    /// How long it stays in the queue while the store does not answer.
    max_outage: Duration,
    slot: Mutex<Slot>,
}

#[derive(Debug)]
enum Slot {
    Waiting(Option<Waker>),
    Called(Wakeup),
    /// The task has its answer, or is gone.
    Left,
}

impl Slot {
    fn watch(&mut self, cx: &Context<'_>) -> Poll<()> {
        match self {
            Slot::Waiting(Some(waker)) => waker.clone_from(cx.waker()),
            Slot::Waiting(waker) => *waker = Some(cx.waker().clone()),
            Slot::Called(_) | Slot::Left => return Poll::Ready(()),
        }
        Poll::Pending
    }
}

/// The answer to a task that waits.
#[derive(Debug)]
pub(crate) enum Wakeup {
    Turn(Turn),
    Busy(Box<Busy>),
    Failed(Error),
    /// It waited for as long as it was willing to.
    GaveUp(Error),
}

impl WaitingTask {
    /// A task that this waker wakes.
    pub(crate) fn new(claim: Arc<Claim>, waits: bool, max_outage: Duration, waker: Waker) -> Arc<Self> {
        Arc::new(WaitingTask { claim, waits, max_outage, slot: Mutex::new(Slot::Waiting(Some(waker))) })
    }

    /// Answers the task. The caller wakes it once no lock is held.
    pub(crate) fn call(&self, call: Wakeup) -> Option<Waker> {
        match std::mem::replace(&mut *self.slot.lock(), Slot::Called(call)) {
            Slot::Waiting(waker) => waker,
            Slot::Called(_) | Slot::Left => None,
        }
    }

    pub(crate) fn poll_wakeup(&self, cx: &mut Context<'_>) -> Poll<Wakeup> {
        let mut slot = self.slot.lock();
        match slot.watch(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => self.collect(&mut slot).map_or(Poll::Pending, Poll::Ready),
        }
    }

    /// The same, without taking the answer.
    pub(crate) fn poll_is_woken(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.slot.lock().watch(cx)
    }

    /// Leaves with the answer, if there is one. From then on it can't be woken.
    pub(crate) fn leave(&self) -> Option<Wakeup> {
        self.collect(&mut self.slot.lock())
    }

    /// Takes back a turn that the task did not collect; it waits again.
    fn take_back_turn(&self) -> bool {
        let mut slot = self.slot.lock();
        let was_uncollected = matches!(&*slot, Slot::Called(Wakeup::Turn(_)));
        if was_uncollected {
            *slot = Slot::Waiting(None);
        }
        was_uncollected
    }

    fn collect(&self, slot: &mut Slot) -> Option<Wakeup> {
        match std::mem::replace(slot, Slot::Left) {
            Slot::Called(call) => Some(call),
            Slot::Waiting(_) | Slot::Left => None,
        }
    }
}

/// What is going on between the cohort and the store.
#[derive(Debug)]
pub(crate) enum Phase {
    Idle,
    /// The first task asks the store itself, with this token. A grant that is pushed before its answer comes is kept in `early`.
    Asking {
        token: Token,
        early: Option<Box<Grant>>,
        /// It has its answer by then, if it is polled.
        until: Moment,
    },
    /// A background task waits in the store's queue.
    Seeking(Box<Seeking>),
    /// The lease of this number passes from task to task.
    Held {
        id: u64,
    },
    /// A lease is on its way back.
    Returning,
}

impl Phase {
    pub(crate) fn asking(bid: &Bid, now: Moment) -> Self {
        let until = now + bid.claim.terms.timeout() + SLACK;
        Phase::Asking { token: bid.token.clone(), early: None, until }
    }
}

/// The bid of the background task, with what it last heard from the store.
#[derive(Debug)]
pub(crate) struct Seeking {
    pub(crate) bid: Bid,
    pub(crate) busy: Option<Busy>,
    /// Why the last request failed.
    pub(crate) trouble: Option<Error>,
    pub(crate) alarm: Arc<Alarm>,
}

/// Everything that this process has to do with one name.
#[derive(Debug)]
pub(crate) struct Cohort {
    pub(crate) waiting: VecDeque<Arc<WaitingTask>>,
    pub(crate) phase: Phase,
    /// The leases on the name: the one that passes, and those that were taken over or adopted.
    pub(crate) leases: Vec<Held>,
}

impl Cohort {
    pub(crate) fn new(phase: Phase) -> Self {
        Cohort { waiting: VecDeque::new(), phase, leases: Vec::new() }
    }

    /// Whether the first task asks the store with this token.
    pub(crate) fn is_asked_with(&self, asking: &Token) -> bool {
        matches!(&self.phase, Phase::Asking { token, .. } if token == asking)
    }

    /// The token with which this cohort asks the store now.
    pub(crate) fn asked_with(&self) -> Option<&Token> {
        match &self.phase {
            Phase::Asking { token, .. } => Some(token),
            Phase::Seeking(seeking) => Some(&seeking.bid.token),
            Phase::Idle | Phase::Held { .. } | Phase::Returning => None,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.leases.is_empty() && matches!(self.phase, Phase::Idle)
    }

    /// Lets a background task seek a lease from now on. Returns the phase before.
    pub(crate) fn seek(&mut self, name: &Name, bid: Bid, busy: Option<Busy>, effects: &mut Effects) -> Phase {
        let (bid, alarm) = (bid.sought(), Arc::<Alarm>::default());
        effects.seeks.push((name.clone(), bid.clone(), Arc::clone(&alarm)));
        let seeking = Seeking { bid, busy, trouble: None, alarm };
        std::mem::replace(&mut self.phase, Phase::Seeking(Box::new(seeking)))
    }

    pub(crate) fn has_token(&self, token: &Token) -> bool {
        self.leases.iter().any(|held| held.shared.token == *token)
    }

    /// The index of this lease, if the cohort still has it.
    pub(crate) fn index_of(&self, lease: &Arc<SharedLease>) -> Option<usize> {
        self.leases.iter().position(|held| Arc::ptr_eq(&held.shared, lease))
    }

    /// Who holds the name, as far as this client knows.
    pub(crate) fn busy(&self, now: Moment) -> Option<Busy> {
        match &self.phase {
            Phase::Held { id } => {
                let held = self.leases.iter().find(|held| held.id == *id)?;
                Some(held.busy(now))
            }
            Phase::Seeking(seeking) => seeking.busy.clone(),
            Phase::Idle | Phase::Asking { .. } | Phase::Returning => None,
        }
    }

    /// Answers all waiting tasks with an error.
    pub(crate) fn fail_all(&mut self, error: &Error, effects: &mut Effects) {
        let waiting = self.waiting.drain(..);
        effects.wake(waiting.filter_map(|task| task.call(Wakeup::Failed(error.clone()))));
    }

    /// Answers the tasks that don't wait out an outage of this length.
    pub(crate) fn fail_impatient(&mut self, outage: Duration, error: &Error, effects: &mut Effects) {
        let (patient, impatient) = self.waiting.drain(..).partition(|task| outage < task.max_outage);
        self.waiting = patient;
        let impatient: VecDeque<Arc<WaitingTask>> = impatient;
        effects.wake(impatient.iter().filter_map(|task| task.call(Wakeup::GaveUp(error.clone()))));
    }

    /// Answers the tasks that do not wait.
    pub(crate) fn refuse_tries(&mut self, busy: &Busy, effects: &mut Effects) {
        let (waiting, tries) = self.waiting.drain(..).partition(|task| task.waits);
        self.waiting = waiting;
        let tries: VecDeque<Arc<WaitingTask>> = tries;
        effects.wake(tries.iter().filter_map(|task| task.call(Wakeup::Busy(Box::new(busy.clone())))));
    }
}

/// A lease of this process.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) id: u64,
    pub(crate) lease: Deadlines,
    pub(crate) shared: Arc<SharedLease>,
    pub(crate) claim: Arc<Claim>,
    /// Where its range of fences starts.
    pub(crate) start: u64,
    pub(crate) turn: Turn,
    /// The task whose turn it is, if it was woken for it.
    pub(crate) task: Option<Arc<WaitingTask>>,
    /// It passes from task to task until then.
    pub(crate) pass_until: Moment,
    /// When to check whether the woken task came for its turn.
    pub(crate) first_look: Option<Moment>,
    /// A renewal is in flight.
    pub(crate) is_renewing: bool,
    /// The store may have executed the renewal in flight before the lease ended: verify again.
    pub(crate) verify_again: bool,
    /// Where it stands in the schedule.
    pub(crate) due: Moment,
}

impl Held {
    /// Whether the turn can go to this task without asking the store.
    pub(crate) fn can_pass_to(&self, task: &WaitingTask, now: Moment) -> bool {
        task.claim.is_served_by(&self.claim)
            && self.claim.terms.can_be_passed()
            && self.turn.fence.get() + 1 < self.start + RANGE
            && now < self.pass_until
            && self.lease.is_fresh(now)
            && self.shared.loss_at(now).is_none()
    }

    /// The next turn of the lease.
    pub(crate) fn next_turn(&mut self, now: Moment) -> Turn {
        self.turn = Turn::begin(Arc::clone(&self.shared), self.turn.fence.get() + 1, now);
        self.turn.clone()
    }

    /// Takes the turn back from a task that did not come for it, because its future is not polled.
    pub(crate) fn take_back_turn(&mut self) -> Option<Arc<WaitingTask>> {
        let task = self.task.take_if(|task| task.take_back_turn())?;
        self.turn.end();
        Some(task)
    }

    fn busy(&self, now: Moment) -> Busy {
        let holding = Holding {
            token: self.shared.token.clone(),
            fence: self.start,
            left: self.lease.deadline().since(now),
        };
        Busy { holder: Some(holding.into()), waiters: None }
    }
}
