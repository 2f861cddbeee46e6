//! A background task seeks a lease for the cohort: what an answer, or a push, means for it.

use std::sync::Arc;
use std::time::Duration;

use super::Table;
use crate::backend::Grant;
use crate::core::deadlines::Deadlines;
use crate::engine::bid::Bid;
use crate::engine::cohort::{Cohort, Phase, WaitingTask, Wakeup};
use crate::engine::effects::Effects;
use crate::types::error::Error;
use crate::types::name::Name;
use crate::types::owner::Token;
use crate::types::status::Busy;

/// What became of a lease that was granted in answer to a request.
pub(crate) enum Placed {
    /// A task's turn has begun.
    Turn,
    /// No task wants it any more: give it back.
    Unwanted,
    /// The first task asked for something else: replace the token by this bid.
    Replace(Bid),
}

/// What a grant that the store pushed is to this client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// A task of this client waits for it, has it, or has passed it on.
    Known,
    /// This client asked for it, and no task wants it any more: give it back.
    Unwanted,
    /// This client did not ask for it: another process has the same session, and may be using the lease.
    Unasked,
}

impl Table {
    /// Whether the background task must ask again for this bid, and if so, whether it waits in the store's queue.
    pub(crate) fn goes_on_seeking(&self, name: &Name, bid: &Bid) -> Option<bool> {
        match self.cohorts.get(name) {
            Some(Cohort { waiting, phase: Phase::Seeking(seeking), .. })
                if seeking.bid.token == bid.token && !waiting.is_empty() =>
            {
                Some(waiting.iter().any(|task| task.waits))
            }
            _ => None,
        }
    }

    /// The store has been out of reach for `outage`. False if no task waits any longer.
    pub(crate) fn seek_troubled(
        &mut self,
        name: &Name,
        bid: &Bid,
        outage: Duration,
        error: &Error,
        is_news: bool,
        effects: &mut Effects,
    ) -> bool {
        let Some(cohort) = self.cohorts.get_mut(name) else {
            return false;
        };
        match &mut cohort.phase {
            Phase::Seeking(seeking) if seeking.bid.token == bid.token => {
                if is_news {
                    seeking.trouble = Some(error.clone());
                }
            }
            _ => return false,
        }
        cohort.fail_impatient(outage, error, effects);
        !cohort.waiting.is_empty()
    }

    /// The bid is in the store's queue, or the store refused it.
    pub(crate) fn seek_busy(&mut self, name: &Name, bid: &Bid, busy: Busy, effects: &mut Effects) {
        let Some(cohort) = self.cohorts.get_mut(name) else {
            return;
        };
        if let Phase::Seeking(seeking) = &mut cohort.phase
            && seeking.bid.token == bid.token
        {
            seeking.bid = bid.clone();
            seeking.busy = Some(busy.clone());
            seeking.trouble = None;
            let alarm = Arc::clone(&seeking.alarm);
            cohort.refuse_tries(&busy, effects);
            if cohort.waiting.is_empty() {
                alarm.ring();
            }
        }
    }

    /// The store granted the name to the background task, in answer to a request.
    pub(crate) fn seek_granted(
        &mut self,
        name: &Name,
        bid: &Bid,
        lease: Deadlines,
        fence: u64,
        effects: &mut Effects,
    ) -> Placed {
        let Some(cohort) = self.cohorts.get_mut(name) else {
            return Placed::Unwanted;
        };
        if cohort.has_token(&bid.token) {
            // A push granted it meanwhile: the lease is in use.
            return Placed::Unwanted;
        }
        match &mut cohort.phase {
            Phase::Seeking(seeking)
                if seeking.bid.token == bid.token
                    && !self.is_closed
                    && self.clock.now() < lease.deadline() =>
            {
                let Some(task) = cohort.waiting.front() else {
                    return Placed::Unwanted;
                };
                if !bid.serves(&task.claim) {
                    let mut other = self.bidder.bid(name, &task.claim).above(fence).sought();
                    other.replaces = Some(bid.token.clone());
                    self.settled.add(&bid.token);
                    seeking.bid = other.clone();
                    return Placed::Replace(other);
                }
                self.wake_first(name, bid.clone(), lease, fence, effects);
                Placed::Turn
            }
            _ => Placed::Unwanted,
        }
    }

    /// The background task ends without a lease: waiting tasks get the error, or the next bid begins.
    pub(crate) fn seek_ended(
        &mut self,
        name: &Name,
        bid: &Bid,
        error: Option<&Error>,
        effects: &mut Effects,
    ) {
        let Some(cohort) = self.cohorts.get_mut(name) else {
            return;
        };
        if !matches!(&cohort.phase, Phase::Seeking(seeking) if seeking.bid.token == bid.token) {
            return;
        }
        self.settled.add(&bid.token);
        cohort.phase = Phase::Idle;
        if let Some(error) = error {
            cohort.fail_all(error, effects);
        }
        self.go_on(name, effects);
    }

    /// The store pushed a grant.
    pub(crate) fn pushed(
        &mut self,
        name: &Name,
        grant: &Grant,
        connection: u64,
        effects: &mut Effects,
    ) -> Pushed {
        if self.is_for_somebody(name, grant, connection, effects) {
            return Pushed::Known;
        }
        if self.settled.0.contains(&grant.token) {
            return Pushed::Unwanted;
        }
        self.metrics.unasked_grants += 1;
        Pushed::Unasked
    }

    fn is_for_somebody(
        &mut self,
        name: &Name,
        grant: &Grant,
        connection: u64,
        effects: &mut Effects,
    ) -> bool {
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
                *early = Some(Box::new(grant.clone()));
                return true;
            }
            _ => return self.has_parted(&grant.token),
        };
        if seeking.bid.token != grant.token {
            return seeking.bid.replaces.as_ref() == Some(&grant.token) || self.has_parted(&grant.token);
        }
        let (bid, alarm) = (seeking.bid.clone(), Arc::clone(&seeking.alarm));
        let is_for = |task: &Arc<WaitingTask>| bid.serves(&task.claim);
        let pair = bid.pair.filter(|pair| pair.connection == connection);
        let lease =
            pair.and_then(|pair| Deadlines::pushed(&bid.claim.terms, pair, grant.at, grant.term, now));
        if let Some(lease) = lease
            && grant.fence > bid.floor
            && cohort.waiting.front().is_some_and(is_for)
            && now < lease.deadline()
            && !self.is_closed
        {
            self.wake_first(name, bid, lease, grant.fence, effects);
            alarm.ring_granted();
        } else {
            // It can't be believed as it is: the background task confirms it by a heartbeat.
            alarm.ring();
        }
        true
    }

    /// Pushed grants may have been missed: every background task asks again.
    pub(crate) fn rouse_waiting(&self) {
        for cohort in self.cohorts.values() {
            if let Phase::Seeking(seeking) = &cohort.phase {
                seeking.alarm.ring();
            }
        }
    }

    fn has_parted(&self, token: &Token) -> bool {
        self.parted.iter().any(|(_, parted)| parted == token)
    }

    /// The first task's turn begins.
    fn wake_first(&mut self, name: &Name, bid: Bid, lease: Deadlines, fence: u64, effects: &mut Effects) {
        let cohort = self.cohorts.get_mut(name).expect("a cohort with a first task");
        let task = cohort.waiting.pop_front().expect("a first task");
        let turn = self.hold(name, bid, lease, fence, Some(Arc::clone(&task)), effects);
        effects.wake(task.call(Wakeup::Turn(turn)));
    }
}
