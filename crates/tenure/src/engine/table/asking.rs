//! The first task asks the store itself: what its answer means for the cohort.

use std::sync::Arc;

use super::Table;
use crate::core::deadlines::Deadlines;
use crate::engine::bid::Bid;
use crate::engine::cohort::{Cohort, Phase, WaitingTask};
use crate::engine::effects::Effects;
use crate::engine::lease_state::Turn;
use crate::types::error::Error;
use crate::types::name::Name;
use crate::types::owner::Token;
use crate::types::status::Busy;

impl Table {
    /// The task that asks is not polled: the others go on without it. If the store granted it the name, they get it after one ttl.
    pub(crate) fn ask_overdue(&mut self, name: &Name, effects: &mut Effects) {
        let now = self.clock.now();
        if let Some(cohort) = self.cohorts.get_mut(name)
            && let Phase::Asking { until, token, .. } = &cohort.phase
            && *until <= now
        {
            self.settled.add(token);
            cohort.phase = Phase::Idle;
            self.go_on(name, effects);
        }
    }

    /// The store granted the name to the task that asked.
    pub(crate) fn ask_granted(
        &mut self,
        name: &Name,
        bid: Bid,
        lease: Deadlines,
        fence: u64,
        effects: &mut Effects,
    ) -> Result<Turn, Error> {
        if self.is_closed {
            return Err(Error::closed());
        }
        let is_overdue = !self.cohorts.get(name).is_some_and(|cohort| cohort.is_asked_with(&bid.token));
        if is_overdue {
            return Ok(self.add_lease(name, bid, lease, fence, None, effects));
        }
        Ok(self.hold(name, bid, lease, fence, None, effects))
    }

    /// The task that asked is in the store's queue, and now waits to be woken. False if the others went on without it: then its bid must
    /// leave the queue.
    pub(crate) fn ask_queued(
        &mut self,
        name: &Name,
        task: &Arc<WaitingTask>,
        bid: Bid,
        busy: Busy,
        effects: &mut Effects,
    ) -> Result<bool, Error> {
        if self.is_closed {
            return Err(Error::closed());
        }
        let cohort = self.cohorts.entry(name.clone()).or_insert_with(|| Cohort::new(Phase::Idle));
        cohort.waiting.push_front(Arc::clone(task));
        if !cohort.is_asked_with(&bid.token) {
            self.go_on(name, effects);
            return Ok(false);
        }
        cohort.refuse_tries(&busy, effects);
        let connection = bid.pair.map_or(0, |pair| pair.connection);
        let before = cohort.seek(name, bid, Some(busy), effects);
        if let Phase::Asking { early: Some(grant), .. } = before {
            // It came while the answer was on its way, by the same connection.
            self.pushed(name, &grant, connection, effects);
        }
        Ok(true)
    }

    /// The store refused the task that asked, or failed. Waiting tasks get the same error, or go on by themselves.
    pub(crate) fn ask_ended(
        &mut self,
        name: &Name,
        token: &Token,
        error: Option<&Error>,
        effects: &mut Effects,
    ) {
        if let Some(cohort) = self.cohorts.get_mut(name)
            && cohort.is_asked_with(token)
        {
            self.settled.add(token);
            cohort.phase = Phase::Idle;
            if let Some(error) = error {
                cohort.fail_all(error, effects);
            }
            self.go_on(name, effects);
        }
    }

    /// The task that asked went away before its answer came. The others go on with its bid, which may be in the store's queue. False if
    /// there are none: then the bid must leave.
    pub(crate) fn ask_abandoned(&mut self, name: &Name, bid: &Bid, effects: &mut Effects) -> bool {
        let Some(cohort) = self.cohorts.get_mut(name).filter(|cohort| cohort.is_asked_with(&bid.token))
        else {
            return false;
        };
        if cohort.waiting.is_empty() {
            self.settled.add(&bid.token);
            cohort.phase = Phase::Idle;
            if cohort.is_done() {
                self.cohorts.remove(name);
            }
            return false;
        }
        cohort.seek(name, bid.clone(), None, effects);
        true
    }
}
