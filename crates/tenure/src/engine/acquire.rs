//! One task's way to its turn.
//!
//! If no other task of this process wants the name, the task asks the store itself: one round trip, no other task involved. Otherwise it
//! joins the cohort and waits to be woken. If the task's future is dropped at any await, [`Acquiring`]'s drop hands over or undoes what the
//! task has begun: I5.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::backend::Backend;
use crate::core::claim::Claim;
use crate::core::deadlines::Deadlines;
use crate::core::record::Op;
use crate::engine::asking::{Asked, ask_store, interpret};
use crate::engine::bid::Bid;
use crate::engine::client::Client;
use crate::engine::cohort::{WaitingTask, Wakeup};
use crate::engine::lease_state::Turn;
use crate::engine::release;
use crate::engine::table::Enqueued;
use crate::time::backoff::Attempts;
use crate::time::clock::Moment;
use crate::types::error::{Error, ErrorKind};
use crate::types::name::Name;
use crate::types::process::{AtHome, Home};
use crate::types::status::Busy;

pub(crate) enum Outcome {
    Turn(Turn),
    Busy(Box<Busy>),
}

/// How long a task waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// It waits while the name is held.
    pub(crate) waits: bool,
    /// Until then at the most.
    pub(crate) limit: Option<Moment>,
    /// How long the store may be out of reach, if that was said.
    pub(crate) max_outage: Option<Duration>,
}

impl Patience {
    /// How long a task tries to reach the store for the first time (decision 0038).
    fn at_first(&self) -> Duration {
        match (self.waits, self.max_outage, self.limit) {
            (true, Some(max_outage), _) => max_outage,
            (true, None, Some(_)) => Duration::MAX,
            _ => Duration::ZERO,
        }
    }

    /// How long a task in the queue waits without an answer of the store. A limit ends the wait by itself.
    fn in_queue(&self, ttl: Duration) -> Duration {
        match self.limit {
            Some(_) => self.max_outage.unwrap_or(Duration::MAX),
            None => self.max_outage.unwrap_or(ttl),
        }
    }
}

/// Waits for a turn on the name.
pub(crate) async fn acquire(
    client: &Arc<Client>,
    claim: &Arc<Claim>,
    patience: Patience,
) -> Result<Outcome, Error> {
    // A loop of uncontended acquires must not starve the other tasks of its thread.
    tokio::task::coop::consume_budget().await;
    client.check_process()?;
    let mut attempts = None;
    loop {
        let error = match acquire_once(client, claim, patience).await {
            Ok(outcome) => return Ok(outcome),
            Err(Ended::TooLate) => continue,
            Err(Ended::GaveUp(error)) => return Err(error),
            Err(Ended::Failed(error)) => error,
        };
        if !error.is_transient() || patience.at_first().is_zero() {
            return Err(error);
        }
        AtHome::new(Home::here(), pause(client, patience, &mut attempts, error)).await??;
    }
}

/// Waits before a task that could not reach the store tries again.
///
/// # Errors
/// Why the store is out of reach, once the task's patience is over.
async fn pause(
    client: &Client,
    patience: Patience,
    attempts: &mut Option<Attempts>,
    error: Error,
) -> Result<(), Error> {
    let attempts = attempts.get_or_insert_with(|| {
        let longest = client.clock.now() + patience.at_first();
        let give_up = longest.min(patience.limit.unwrap_or(Moment::FAR));
        Attempts::until(give_up).outlasting_outages(Moment::FAR)
    });
    let again = attempts.again(&client.clock, error).await;
    if again.is_err() {
        // A wait with a limit lasts until the limit.
        client.clock.sleep_until(attempts.give_up).await;
    }
    again
}

/// Why an attempt ended without an outcome.
enum Ended {
    /// The answer came too late to be of use, for example because the machine slept.
    TooLate,
    /// The task may try again, if the error is transient.
    Failed(Error),
    /// The task has no time or patience left.
    GaveUp(Error),
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Ended::Failed(error)
    }
}

async fn acquire_once(
    client: &Arc<Client>,
    claim: &Arc<Claim>,
    patience: Patience,
) -> Result<Outcome, Ended> {
    let Patience { waits, limit, .. } = patience;
    if client.opened_before().is_none() {
        AtHome::new(Home::here(), connect(client, limit)).await??;
    }
    // For waiting tasks too: the task that asks on their behalf may run on a runtime that ends before this one.
    client.see_runtime(&claim.terms)?;
    let waker = std::future::poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
    let max_outage = patience.in_queue(claim.terms.ttl);
    let (name, task) = (&claim.name, WaitingTask::new(Arc::clone(claim), waits, max_outage, waker));
    let mut acquiring =
        Acquiring { client, name, task, bid: None, asked_until: None, is_queued: false, is_watched: false };
    match client.table.lock().enqueue(name, &acquiring.task)? {
        Enqueued::Refused(busy) => return Ok(Outcome::Busy(Box::new(busy))),
        Enqueued::Wait { asked_until } => {
            acquiring.is_queued = true;
            acquiring.is_watched = true;
            acquiring.asked_until = asked_until;
        }
        Enqueued::Ask(bid) => acquiring.bid = Some(bid),
    }
    if acquiring.is_queued {
        client.mind_keeper();
    }
    // Boxed, because most turns of a contended name never ask the store: their futures stay small.
    if acquiring.bid.is_some() {
        match Box::pin(acquiring.ask(limit)).await? {
            Attempted::Answered(outcome) => return Ok(outcome),
            Attempted::TooLate => return Err(Ended::TooLate),
            Attempted::MustWait => {}
        }
    }
    acquiring.wait(limit).await
}

/// What became of a task that asked the store.
enum Attempted {
    Answered(Outcome),
    MustWait,
    TooLate,
}

/// Connects, at most until `limit`.
async fn connect(client: &Client, limit: Option<Moment>) -> Result<&Arc<dyn Backend>, Error> {
    let Some(limit) = limit else { return client.backend().await };
    let connected = client.clock.until(limit, client.backend()).await;
    connected.unwrap_or_else(|| {
        Err(Error::unavailable("store could not be connected to in time").fix("try again"))
    })
}

/// A task that asks or waits, and cleans up when it goes away.
struct Acquiring<'a> {
    client: &'a Arc<Client>,
    name: &'a Name,
    task: Arc<WaitingTask>,
    /// What it asks the store with, until it has its answer.
    bid: Option<Bid>,
    /// Another task asks. It has its answer by this moment, unless it is no longer polled.
    asked_until: Option<Moment>,
    is_queued: bool,
    /// The cohort has the waker of the present poll.
    is_watched: bool,
}

impl Acquiring<'_> {
    /// Asks the store, if it is this task's to ask.
    async fn ask(&mut self, limit: Option<Moment>) -> Result<Attempted, Error> {
        let (client, name) = (self.client, self.name);
        let Some(bid) = &mut self.bid else {
            return Ok(Attempted::MustWait);
        };
        let terms = bid.claim.terms;
        let start = client.clock.now();
        let give_up = start + terms.timeout();
        let own_limit = limit.filter(|&limit| limit > start && limit < give_up);
        let give_up = own_limit.unwrap_or(give_up);
        let (waits, polls) = (self.task.waits, client.opened().polls(name));
        let op = |bid: &Bid, not_after| bid.op(waits, polls, not_after);
        let answer = ask_store(client, name, bid, give_up, op).await;
        let asked = answer.and_then(|(reply, sent)| interpret(client, bid, polls, reply, sent));
        let error = match asked {
            Ok(Asked::Granted { fence, sent }) => return self.granted(fence, sent),
            Ok(Asked::Waiting { busy, again }) => {
                bid.due = Some(again);
                let (queued, task) = (bid.clone(), &self.task);
                let is_sought =
                    client.change(|table, effects| table.ask_queued(name, task, queued, busy, effects))?;
                if let Some(bid) = self.bid.take().filter(|_| !is_sought) {
                    release::leave(client, name.clone(), bid.token, bid.may_execute_until, terms.ttl);
                }
                self.is_queued = true;
                return Ok(Attempted::MustWait);
            }
            Ok(Asked::Refused(busy)) => {
                if let Some(may_execute_until) = bid.may_execute_until {
                    let undo = Op::Leave { token: bid.token.clone() };
                    release::compensate_after(client, name.clone(), undo, may_execute_until, terms.ttl);
                }
                let token = bid.token.clone();
                self.bid = None;
                client.change(|table, effects| table.ask_ended(name, &token, None, effects));
                return Ok(Attempted::Answered(Outcome::Busy(Box::new(busy))));
            }
            Ok(Asked::NothingToReplace | Asked::TooLate) => return Ok(Attempted::TooLate),
            Err(error) if error.kind() == ErrorKind::Forked => return Err(error),
            Err(error) => error,
        };
        if own_limit.is_none() {
            // The store failed, not this task's patience: the tasks that wait for the same answer get the error too.
            let token = bid.token.clone();
            client.change(|table, effects| table.ask_ended(name, &token, Some(&error), effects));
            if let Some(bid) = self.bid.take().filter(|bid| bid.may_execute_until.is_some()) {
                release::leave(client, name.clone(), bid.token, bid.may_execute_until, terms.ttl);
            }
        }
        Err(error)
    }

    fn granted(&mut self, fence: u64, sent: Moment) -> Result<Attempted, Error> {
        let bid = self.bid.take().expect("the bid that was granted");
        let (token, terms, may_execute_until) = (bid.token.clone(), bid.claim.terms, bid.may_execute_until);
        let (client, name, lease) = (self.client, self.name, Deadlines::granted(&terms, sent));
        let leave = || release::leave(client, name.clone(), token.clone(), may_execute_until, terms.ttl);
        if client.clock.now() >= lease.deadline() {
            client.change(|table, effects| table.ask_ended(name, &token, None, effects));
            leave();
            return Ok(Attempted::TooLate);
        }
        let turn = client.change(|table, effects| table.ask_granted(name, bid, lease, fence, effects));
        let turn = turn.inspect_err(|_| leave())?;
        Ok(Attempted::Answered(Outcome::Turn(turn)))
    }

    /// Waits to be woken.
    async fn wait(&mut self, limit: Option<Moment>) -> Result<Outcome, Ended> {
        // A task that came straight here was enqueued with the waker of this poll.
        let mut is_watched = self.is_watched;
        if self.asked_until.is_some() {
            is_watched = false;
            AtHome::new(Home::here(), self.wait_for_asker(limit)).await?;
        }
        let called = std::future::poll_fn(|cx| match std::mem::take(&mut is_watched) {
            true => Poll::Pending,
            false if self.client.is_here() => self.task.poll_wakeup(cx),
            false => Poll::Ready(Wakeup::Failed(Error::forked())),
        });
        let call = match limit {
            Some(limit) => AtHome::new(Home::here(), self.client.clock.until(limit, called)).await?,
            None => Some(called.await),
        };
        self.is_queued = false;
        let call = match call {
            Some(call) => call,
            None => {
                // The cohort knows who holds the name only while a task waits: look before this task leaves.
                let mut table = self.client.table.lock();
                let in_vain = table.in_vain(self.name);
                table.dequeue(self.name, &self.task).unwrap_or_else(|| match in_vain {
                    Ok(busy) => Wakeup::Busy(Box::new(busy)),
                    Err(error) => Wakeup::GaveUp(error),
                })
            }
        };
        match call {
            Wakeup::Turn(turn) => Ok(Outcome::Turn(turn)),
            Wakeup::Busy(busy) => Ok(Outcome::Busy(busy)),
            Wakeup::Failed(error) => Err(Ended::Failed(error)),
            Wakeup::GaveUp(error) => Err(Ended::GaveUp(error)),
        }
    }

    /// Waits until this task is woken, or the asking task must have its answer. An asking task that is not polled blocks nobody for ever.
    async fn wait_for_asker(&mut self, limit: Option<Moment>) {
        let (client, name) = (self.client, self.name);
        let Some(until) = self.asked_until.filter(|&until| limit.is_none_or(|limit| until < limit)) else {
            return;
        };
        let woken = std::future::poll_fn(|cx| self.task.poll_is_woken(cx));
        if client.clock.until(until, woken).await.is_none() {
            client.change(|table, effects| table.ask_overdue(name, effects));
        }
    }

    /// Leaves the cohort. Returns the wake-up that came meanwhile.
    fn dequeue(&self) -> Option<Wakeup> {
        self.client.table.lock().dequeue(self.name, &self.task)
    }
}

impl Drop for Acquiring<'_> {
    fn drop(&mut self) {
        let is_over = self.bid.is_none() && !self.is_queued;
        if is_over || !self.client.is_here() {
            return;
        }
        if let Some(bid) = self.bid.take() {
            let others = self.client.change(|table, effects| table.ask_abandoned(self.name, &bid, effects));
            if !others {
                let ttl = bid.claim.terms.ttl;
                release::leave(self.client, self.name.clone(), bid.token, bid.may_execute_until, ttl);
            }
        }
        if self.is_queued
            && let Some(Wakeup::Turn(turn)) = self.dequeue()
        {
            release::give_back_later(self.client, &turn);
        }
    }
}
