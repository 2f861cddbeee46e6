//! Waiting in the store's queue, for all the tasks of a cohort.
//!
//! This is a background task, because the tasks of a cohort come and go. It ends with the last of them, so it keeps nothing alive. It sends
//! heartbeats, asks again when the holder's lease runs out, and confirms a push that can't be believed as it is. A push that can be believed
//! begins the first task's turn without it.

use std::sync::Arc;

use crate::core::deadlines::Deadlines;
use crate::core::record::Op;
use crate::engine::asking::{Asked, interpret, send};
use crate::engine::bid::{Alarm, Bid};
use crate::engine::client::Client;
use crate::engine::release;
use crate::engine::table::Placed;
use crate::time::backoff::Backoff;
use crate::time::clock::{Moment, SLACK};
use crate::types::error::Error;
use crate::types::name::Name;

/// Starts to seek a lease for the tasks that wait for the name.
pub(crate) fn start(client: Arc<Client>, name: Name, bid: Bid, alarm: Arc<Alarm>) {
    let tasks = client.tasks.clone();
    let mut seek = Seek { client, name, bid, alarm, has_raced: false, unwanted: None, is_done: false };
    tasks.spawn(async move { seek.run().await });
}

struct Seek {
    client: Arc<Client>,
    name: Name,
    bid: Bid,
    alarm: Arc<Alarm>,
    /// A push granted the name while a request was in flight.
    has_raced: bool,
    /// The fence of a grant that no task took.
    unwanted: Option<u64>,
    is_done: bool,
}

/// What follows from an answer.
enum Next {
    Done,
    Leave,
    Again,
    Sleep(Moment),
    Fail(Error),
}

impl Seek {
    async fn run(&mut self) {
        let mut failing_since = None;
        let mut backoff = Backoff::new();
        if let Some(due) = self.bid.due.take() {
            self.sleep_until(due).await;
        }
        loop {
            if !self.client.is_here() {
                self.is_done = true;
                return;
            }
            let goes_on = self.client.table.lock().goes_on_seeking(&self.name, &self.bid);
            let Some(waits) = goes_on else { return self.leave() };
            let terms = self.bid.claim.terms;
            let polls = self.client.opened().polls(&self.name);
            let op = |bid: &Bid, not_after| bid.op(waits, polls, not_after);
            let asked = self.client.clock.now();
            let give_up = asked + terms.timeout();
            let answer = send(&self.client, &self.name, &mut self.bid, give_up, op).await;
            if !self.client.is_here() {
                self.is_done = true;
                return;
            }
            self.has_raced = self.alarm.is_granted();
            let next = match answer {
                Ok((reply, sent)) => {
                    failing_since = None;
                    backoff = Backoff::new();
                    match interpret(&self.client, &mut self.bid, polls, reply, sent) {
                        Ok(asked) => self.follow(asked),
                        Err(error) => Next::Fail(error),
                    }
                }
                // The waiting tasks go on with another bid.
                Err(error) if error.is_transient() && error.needs_new_token() => Next::Leave,
                // Each task knows how long an outage it waits out. The bid keeps its position for those that still wait.
                Err(error) if error.is_transient() => {
                    // One broken connection is not worth reporting.
                    let is_news = failing_since.is_some() || !error.is_worth_asking_again();
                    let now = self.client.clock.now();
                    let outage = now.since(*failing_since.get_or_insert(asked));
                    let (name, bid) = (&self.name, &self.bid);
                    let is_waited_for = self.client.change(|table, effects| {
                        table.seek_troubled(name, bid, outage, &error, is_news, effects)
                    });
                    if is_waited_for { Next::Sleep(now + backoff.pause()) } else { Next::Leave }
                }
                Err(error) => Next::Fail(error),
            };
            match next {
                Next::Done => {
                    self.is_done = true;
                    return;
                }
                Next::Leave => return self.leave(),
                Next::Again => {}
                Next::Sleep(until) => self.sleep_until(until).await,
                Next::Fail(error) => return self.fail(&error),
            }
        }
    }

    async fn sleep_until(&self, until: Moment) {
        self.client.clock.until(until, self.alarm.wait()).await;
    }

    fn follow(&mut self, asked: Asked) -> Next {
        let (client, name) = (&self.client, &self.name);
        match asked {
            Asked::Granted { fence, sent } => {
                let lease = Deadlines::granted(&self.bid.claim.terms, sent);
                let placed = client
                    .change(|table, effects| table.seek_granted(name, &self.bid, lease, fence, effects));
                match placed {
                    Placed::Turn => Next::Done,
                    Placed::Unwanted => {
                        self.unwanted = Some(fence);
                        Next::Leave
                    }
                    Placed::Replace(bid) => {
                        if let Some(may_execute_until) = self.bid.may_execute_until {
                            let undo = Op::Leave { token: self.bid.token.clone() };
                            let ttl = self.bid.claim.terms.ttl;
                            release::compensate_after(client, name.clone(), undo, may_execute_until, ttl);
                        }
                        self.bid = bid;
                        Next::Again
                    }
                }
            }
            Asked::Waiting { busy, again } => {
                client.change(|table, effects| table.seek_busy(name, &self.bid, busy, effects));
                Next::Sleep(again)
            }
            Asked::Refused(busy) => {
                client.change(|table, effects| {
                    table.seek_busy(name, &self.bid, busy, effects);
                    table.seek_ended(name, &self.bid, None, effects);
                });
                if self.bid.may_execute_until.is_some() { Next::Leave } else { Next::Done }
            }
            // The bid asks for a lease as every other does.
            Asked::NothingToReplace => {
                self.bid.replaces = None;
                Next::Again
            }
            Asked::TooLate => Next::Sleep(client.clock.now() + SLACK),
        }
    }

    /// No task waits for this bid any more.
    fn leave(&mut self) {
        self.end(None);
    }

    fn fail(&mut self, error: &Error) {
        self.end(Some(error));
    }

    /// Undoes the bid in the store, unless a push gave the lease to a task and no request was in flight.
    fn end(&mut self, error: Option<&Error>) {
        self.is_done = true;
        let (client, name) = (&self.client, &self.name);
        client.change(|table, effects| table.seek_ended(name, &self.bid, error, effects));
        let Bid { token, replaces, may_execute_until, claim, bond, .. } = &self.bid;
        let was_used = self.alarm.is_granted() && !self.has_raced && may_execute_until.is_none();
        let is_kept = bond.as_ref().is_some_and(|bond| {
            // The store may have executed the last request after the lease had ended, and granted the name once more.
            let is_another = self.unwanted.is_some_and(|fence| bond.is_outlived_by(fence));
            bond.pass_on(*may_execute_until) && !is_another
        });
        if is_kept || was_used {
            return;
        }
        for token in replaces.iter().chain([token]) {
            release::leave(
                &self.client,
                self.name.clone(),
                token.clone(),
                *may_execute_until,
                claim.terms.ttl,
            );
        }
    }
}

impl Drop for Seek {
    /// Dropped before it was done: its runtime shuts down. Tasks that wait on another runtime must still be served.
    fn drop(&mut self) {
        if self.is_done || !self.client.is_here() {
            return;
        }
        match self.client.tasks.take_other_runtime() {
            Some(runtime) => {
                let mut again = Seek {
                    client: Arc::clone(&self.client),
                    name: self.name.clone(),
                    bid: self.bid.clone(),
                    alarm: Arc::clone(&self.alarm),
                    has_raced: self.has_raced,
                    unwanted: self.unwanted,
                    is_done: false,
                };
                self.client.tasks.spawn_on(&runtime, async move { again.run().await });
            }
            None => self.fail(
                &Error::unavailable("the runtime that waited for this lock shut down")
                    .fix("acquire it again"),
            ),
        }
    }
}
