//! The leases of one client: when to renew them, and what an answer means for them.

use std::sync::Arc;
use std::time::Duration;

use super::{Schedule, Table};
use crate::core::deadlines::{Deadlines, Step};
use crate::core::record::{PROBATION, Reply};
use crate::engine::bid::Bid;
use crate::engine::cohort::{Cohort, Held, Phase, TURN_BUDGET, WaitingTask};
use crate::engine::effects::Effects;
use crate::engine::lease_state::{SharedLease, Turn};
use crate::time::clock::Moment;
use crate::types::loss::LossKind;
use crate::types::name::{Name, NameMap};

/// How long the keeper waits for the next lease when there is none.
const LINGER: Duration = Duration::from_secs(1);

/// A renewal to be sent.
#[derive(Debug)]
pub(crate) struct Renewal {
    pub(crate) lease: Arc<SharedLease>,
    pub(crate) ttl: Duration,
    pub(crate) timeout: Duration,
}

/// What the keeper has to do.
#[derive(Default)]
pub(crate) struct Due {
    pub(crate) renewals: Vec<Renewal>,
    /// Leases whose turn nobody came for: give them back.
    pub(crate) unclaimed: Vec<Turn>,
    pub(crate) next: Option<Moment>,
}

impl Table {
    /// A new lease of this client.
    pub(crate) fn add_lease(
        &mut self,
        name: &Name,
        bid: Bid,
        lease: Deadlines,
        fence: u64,
        task: Option<Arc<WaitingTask>>,
        effects: &mut Effects,
    ) -> Turn {
        let now = self.clock.now();
        self.next_id += 1;
        self.bidder.floors.saw(name, fence);
        self.metrics.acquired += 1;
        let shared = SharedLease::new(name.clone(), &bid, fence, self.clock.clone(), lease.deadline());
        let shared = Arc::new(shared);
        let turn = Turn::begin(Arc::clone(&shared), fence, now);
        let mut held = Held {
            id: self.next_id,
            lease,
            shared,
            claim: bid.claim,
            start: fence,
            turn: turn.clone(),
            task,
            pass_until: now + TURN_BUDGET,
            first_look: Some(now + PROBATION + TURN_BUDGET),
            is_renewing: false,
            verify_again: false,
            due: now,
        };
        if let Some(age) = self.verify_after {
            held.lease.verify(now + age);
        }
        plan(&mut held, now, &mut self.due);
        effects.rouse_keeper |= held.due < self.keeper_sleeps_until;
        let cohort = self.cohorts.entry(name.clone()).or_insert_with(|| Cohort::new(Phase::Idle));
        // Most of many thousand cohorts have one lease: room for more would be most of their cost.
        cohort.leases.reserve_exact(1);
        cohort.leases.push(held);
        turn
    }

    pub(crate) fn remove_lease(&mut self, name: &Name, index: usize) {
        if let Some(cohort) = self.cohorts.get_mut(name) {
            let held = cohort.leases.remove(index);
            if held.shared.may_be_pushed() {
                self.settled.add(&held.shared.token);
            }
            self.due.remove(&(held.due, held.id));
            if cohort.is_done() {
                self.cohorts.remove(name);
            }
        }
    }

    /// A lease leaves this client without going back to the store: it was lost, or detached.
    pub(crate) fn forget_lease(&mut self, lease: &Arc<SharedLease>, effects: &mut Effects) {
        let name = &lease.name;
        let Some(cohort) = self.cohorts.get_mut(name) else {
            return;
        };
        let Some(index) = cohort.index_of(lease) else {
            return;
        };
        if matches!(cohort.phase, Phase::Held { id } if id == cohort.leases[index].id) {
            cohort.phase = Phase::Idle;
        }
        self.remove_lease(name, index);
        self.go_on(name, effects);
    }

    fn lose_lease(&mut self, lease: Arc<SharedLease>, effects: &mut Effects) {
        self.metrics.lost += 1;
        self.forget_lease(&lease, effects);
        effects.lost.push(lease);
    }

    /// Looks at every lease that is due.
    pub(crate) fn due(&mut self, effects: &mut Effects) -> Due {
        let mut due = Due::default();
        let now = self.clock.now();
        while let Some(entry) = self.due.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((_, id), name) = entry.remove_entry();
            let Some(cohort) = self.cohorts.get_mut(&name) else {
                continue;
            };
            let Some(held) = cohort.leases.iter_mut().find(|held| held.id == id) else {
                continue;
            };
            held.first_look.take_if(|look| *look <= now);
            if now.since(held.turn.started) >= PROBATION
                && now < held.lease.deadline()
                && let Some(task) = held.take_back_turn()
            {
                held.is_renewing = true;
                plan(held, now, &mut self.due);
                due.unclaimed.push(held.turn.clone());
                cohort.waiting.push_back(task);
                continue;
            }
            match held.lease.step(now) {
                Step::Over { .. } => {
                    held.shared.loss();
                    let shared = Arc::clone(&held.shared);
                    self.lose_lease(shared, effects);
                }
                Step::Renew { ttl } if !held.is_renewing => {
                    held.is_renewing = true;
                    plan(held, now, &mut self.due);
                    let lease = Arc::clone(&held.shared);
                    lease.renewal_sent();
                    due.renewals.push(Renewal { lease, ttl, timeout: held.claim.terms.timeout() });
                }
                Step::Renew { .. } | Step::Rest { .. } => plan(held, now, &mut self.due),
            }
        }
        due.next = self.due.first_key_value().map(|(&(moment, _), _)| moment);
        // Leases come and go: the keeper looks once more before it sleeps for good, or else each lease would wake it.
        if due.next.is_none() && self.acquired_at_last_look != self.metrics.acquired {
            due.next = Some(now + LINGER);
        }
        self.acquired_at_last_look = self.metrics.acquired;
        self.keeper_sleeps_until = due.next.unwrap_or(Moment::FAR);
        due
    }

    /// The answer to a renewal that was sent at `sent` and asked for `ttl`; `None` when there was none.
    pub(crate) fn renewed(
        &mut self,
        lease: &Arc<SharedLease>,
        sent: Moment,
        ttl: Duration,
        reply: Option<&Reply>,
        effects: &mut Effects,
    ) {
        let now = self.clock.now();
        self.metrics.renewals += u64::from(reply.is_some());
        self.metrics.renewals_failed += u64::from(reply.is_none());
        let Some(held) = find(&mut self.cohorts, lease) else { return };
        held.is_renewing = false;
        let verify_again = std::mem::take(&mut held.verify_again);
        match reply {
            Some(Reply::Done) => {
                held.lease.renewed(sent, ttl);
                if verify_again {
                    held.lease.verify(now);
                }
                held.shared.set_unanswered(false);
                held.shared.renewal_answered(ttl);
                // If the deadline passed before this answer came, the holder knows of the loss, and it stays.
                if held.shared.loss_at(now).is_none() {
                    held.shared.set_deadline(held.lease.deadline());
                }
            }
            Some(Reply::NotHeld { holder }) => {
                held.shared.lose(LossKind::from_holder(holder.as_ref()));
            }
            _ => {
                held.lease.not_answered(now);
                held.shared.set_unanswered(true);
            }
        }
        if held.shared.loss_at(now).is_some() {
            self.lose_lease(Arc::clone(lease), effects);
        } else {
            replan(held, now, &mut self.due);
            effects.rouse_keeper |= held.due < self.keeper_sleeps_until;
        }
    }

    /// How long a renewal by hand asks for; `None` when the lease is gone.
    pub(crate) fn renewal_by_hand(&mut self, lease: &Arc<SharedLease>) -> Option<Duration> {
        let now = self.clock.now();
        find(&mut self.cohorts, lease).map(|held| held.lease.renewal_by_hand(now))
    }

    /// The leases on this name may be gone, or a grant was missed: verify that now.
    pub(crate) fn verify(&mut self, name: &Name, effects: &mut Effects) {
        let now = self.clock.now();
        let Some(cohort) = self.cohorts.get_mut(name) else {
            return;
        };
        verify(cohort, now, &mut self.due, effects);
    }

    /// The same for every name.
    pub(crate) fn verify_all(&mut self, effects: &mut Effects) {
        let now = self.clock.now();
        for cohort in self.cohorts.values_mut() {
            verify(cohort, now, &mut self.due, effects);
        }
    }
}

fn verify(cohort: &mut Cohort, now: Moment, due: &mut Schedule, effects: &mut Effects) {
    for held in &mut cohort.leases {
        held.lease.verify(now);
        held.verify_again = held.is_renewing;
        replan(held, now, due);
        effects.rouse_keeper = true;
    }
    if let Phase::Seeking(seeking) = &cohort.phase {
        seeking.alarm.ring();
    }
}

/// The lease, if this client still has it.
fn find<'a>(cohorts: &'a mut NameMap<Cohort>, lease: &Arc<SharedLease>) -> Option<&'a mut Held> {
    let cohort = cohorts.get_mut(&lease.name)?;
    let index = cohort.index_of(lease)?;
    Some(&mut cohort.leases[index])
}

/// Moves a lease in the schedule.
fn replan(held: &mut Held, now: Moment, due: &mut Schedule) {
    due.remove(&(held.due, held.id));
    plan(held, now, due);
}

/// Puts a lease into the schedule: for its next step, or, while a renewal is under way, for its deadline; and for the first look.
fn plan(held: &mut Held, now: Moment, due: &mut Schedule) {
    held.due = match held.lease.step(now) {
        _ if held.is_renewing => held.lease.deadline(),
        Step::Rest { until } => until,
        Step::Renew { .. } | Step::Over { .. } => now,
    };
    held.due = held.first_look.map_or(held.due, |look| look.min(held.due));
    due.insert((held.due, held.id), held.shared.name.clone());
}
