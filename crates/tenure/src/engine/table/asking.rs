//! The first task asks the store itself: what its answer means for the cohort.

use std::sync::Arc;

use super::{Effects, Table};
use crate::core::deadlines::Deadlines;
use crate::engine::bid::Bid;
use crate::engine::cohort::{Cohort, Phase, WaitingTask};
use crate::engine::lease_state::Turn;
use crate::types::error::Error;
use crate::types::name::Name;
use crate::types::owner::{Session, Token};
use crate::types::status::Busy;

impl Table {
    /// The task that asks is not polled: the others go on without it. If it was granted the name, they have it after one ttl.
    pub(crate) fn ask_overdue(&mut self, name: &Name, session: &Session, after: &mut Effects) {
        let now = self.clock.now();
        if let Some(cohort) = self.cohorts.get_mut(name)
            && let Phase::Asking { until, token, .. } = &cohort.phase
            && *until <= now
        {
            self.settled.add(token);
            cohort.phase = Phase::Idle;
            self.go_on(name, session, after);
        }
    }

    /// The task that asked was granted the name.
    pub(crate) fn ask_granted(
        &mut self,
        name: &Name,
        bid: Bid,
        lease: Deadlines,
        fence: u64,
        after: &mut Effects,
    ) -> Result<Turn, Error> {
        if self.is_closed {
            return Err(Error::closed());
        }
        let is_overdue = !self.cohorts.get(name).is_some_and(|cohort| cohort.is_asked_with(&bid.token));
        if is_overdue {
            return Ok(self.add_lease(name, bid, lease, fence, None, after));
        }
        Ok(self.hold(name, bid, lease, fence, None, after))
    }

    /// The task that asked is in the store's queue, and now waits for a call. False when the others went on without it: its bid
    /// must be left.
    pub(crate) fn ask_queued(
        &mut self,
        name: &Name,
        task: &Arc<WaitingTask>,
        bid: Bid,
        busy: Busy,
        session: &Session,
        after: &mut Effects,
    ) -> Result<bool, Error> {
        if self.is_closed {
            return Err(Error::closed());
        }
        let cohort = self.cohorts.entry(name.clone()).or_insert_with(|| Cohort::new(Phase::Idle));
        cohort.waiting.push_front(Arc::clone(task));
        if !cohort.is_asked_with(&bid.token) {
            self.go_on(name, session, after);
            return Ok(false);
        }
        cohort.refuse_tries(&busy, after);
        let connection = bid.pair.map_or(0, |pair| pair.connection);
        let before = cohort.seek(name, bid, Some(busy), after);
        if let Phase::Asking { early: Some(grant), .. } = before {
            // It came while the answer was on its way, by the same connection.
            self.pushed(name, &grant, connection, after);
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
        after: &mut Effects,
    ) {
        if let Some(cohort) = self.cohorts.get_mut(name)
            && cohort.is_asked_with(token)
        {
            self.settled.add(token);
            cohort.phase = Phase::Idle;
            if let Some(error) = error {
                cohort.fail_all(error, after);
            }
            self.go_on(name, session, after);
        }
    }

    /// The task that asked went away before it was answered. The others go on with its bid, which may be alive in the store;
    /// false when there are none, and it must be left.
    pub(crate) fn ask_abandoned(&mut self, name: &Name, bid: &Bid, after: &mut Effects) -> bool {
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
        cohort.seek(name, bid.clone(), None, after);
        true
    }
}
