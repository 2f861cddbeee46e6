//! One task's way to its turn.
//!
//! On a name that nobody here wants, the task asks the store itself: one round trip, no other task involved. Otherwise it takes a task
//! in the cohort and waits to be called. Whatever becomes of the task's future (its time is up, it is dropped at any await), what it
//! left behind is taken over or undone by [`Acquiring`]'s drop: I5.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::backend::{Answer, Backend};
use crate::core::claim::Claim;
use crate::core::deadlines::{Deadlines, TimePair};
use crate::core::record::{Op, Reply};
use crate::engine::bid::Bid;
use crate::engine::client::Client;
use crate::engine::cohort::{WaitingTask, Wakeup};
use crate::engine::lease_state::Turn;
use crate::engine::release;
use crate::engine::seek;
use crate::engine::table::Enqueued;
use crate::time::backoff::Attempts;
use crate::time::clock::{Moment, micros};
use crate::types::error::{Error, ErrorKind};
use crate::types::name::Name;
use crate::types::status::Busy;

/// What a clock may be off, or a request may be late, where a moment is waited for.
pub(crate) const SLACK: Duration = Duration::from_millis(10);

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
    /// How long a task that has not reached the store yet goes on trying (decision 0038).
    fn at_first(&self) -> Duration {
        match (self.waits, self.max_outage, self.limit) {
            (true, Some(max_outage), _) => max_outage,
            (true, None, Some(_)) => Duration::MAX,
            _ => Duration::ZERO,
        }
    }

    /// How long one that stands in the queue goes on without an answer. A limit ends the wait by itself.
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
    client.check_process()?;
    // A loop of uncontended acquires must not starve the other tasks of its thread.
    tokio::task::coop::consume_budget().await;
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
        Box::pin(pause(client, patience, &mut attempts, error)).await?;
    }
}

/// Waits before a task that could not reach the store tries again.
///
/// # Errors
/// When its patience is over: why the store was out of reach.
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
        // A limit is waited for to its end.
        client.clock.sleep_until(attempts.give_up).await;
    }
    client.check_process()?;
    again
}

/// Why an attempt ended without an outcome.
enum Ended {
    /// The store's answer was read too late to be of use, as after the machine slept.
    TooLate,
    /// It may be tried again, if the error is one that passes.
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
    let session = match client.opened_before() {
        Some(backend) => backend.session(),
        None => Box::pin(connect(client, limit)).await?.session(),
    };
    // Also for whoever waits: the task that asks for it may do so on a runtime that ends before this one.
    client.see_runtime(&claim.terms)?;
    let waker = std::future::poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
    let max_outage = patience.in_queue(claim.terms.ttl);
    let (name, task) = (&claim.name, WaitingTask::new(Arc::clone(claim), waits, max_outage, waker));
    let mut acquiring =
        Acquiring { client, name, task, bid: None, asked_until: None, is_queued: false, is_watched: false };
    match client.table.lock().enqueue(name, &acquiring.task, session)? {
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
    // Asking the store is boxed: most turns of a contended name never come here, and their futures stay small.
    if acquiring.bid.is_some() {
        match Box::pin(acquiring.ask(limit)).await? {
            Asked::Answered(outcome) => return Ok(outcome),
            Asked::TooLate => return Err(Ended::TooLate),
            Asked::MustWait => {}
        }
    }
    acquiring.wait(limit).await
}

/// What became of a task that asked the store.
enum Asked {
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
    /// Another task asks; after this moment, one that nobody polls any more.
    asked_until: Option<Moment>,
    is_queued: bool,
    /// Its task has the waker of the present poll.
    is_watched: bool,
}

impl Acquiring<'_> {
    /// Asks the store, if it is this task's to ask.
    async fn ask(&mut self, limit: Option<Moment>) -> Result<Asked, Error> {
        let (client, name) = (self.client, self.name);
        let Some(bid) = &mut self.bid else {
            return Ok(Asked::MustWait);
        };
        let terms = bid.claim.terms;
        let start = client.clock.now();
        let give_up = start + terms.timeout();
        let is_own_limit = limit.filter(|&limit| limit > start && limit < give_up);
        let give_up = is_own_limit.unwrap_or(give_up);
        let (waits, polls) = (self.task.waits, client.opened().polls(self.name));
        let op = |bid: &Bid, not_after| bid.op(waits, polls, not_after);
        let error = match ask_store(client, name, bid, give_up, op).await {
            Ok((Reply::Granted { fence }, sent)) => return self.granted(fence, sent),
            Ok((Reply::Waiting { joined_at, holding, ahead }, sent)) => {
                bid.joined_at = Some(joined_at);
                let longest = client.opened().longest_pause();
                let server = bid.pair.as_ref().map(|pair| pair.server);
                bid.due = Some(seek::due(sent, server, &holding, ahead, polls, longest));
                let busy = Busy { holder: Some(holding.into()), waiters: ahead + 1 };
                let (queued, task) = (bid.clone(), &self.task);
                let is_sought = client.change(|table, after| {
                    table.ask_queued(name, task, queued, busy, client.session(), after)
                })?;
                if let Some(bid) = self.bid.take().filter(|_| !is_sought) {
                    release::leave(client, name.clone(), bid.token, bid.may_execute_until, terms.ttl);
                }
                self.is_queued = true;
                return Ok(Asked::MustWait);
            }
            Ok((Reply::Busy { holding, waiters }, _)) => {
                if let Some(may_execute_until) = bid.may_execute_until {
                    let undo = Op::Leave { token: bid.token.clone() };
                    release::compensate_after(client, name.clone(), undo, may_execute_until, terms.ttl);
                }
                let token = bid.token.clone();
                self.bid = None;
                client.change(|table, after| table.ask_ended(name, &token, None, client.session(), after));
                let busy = Busy { holder: Some(holding.into()), waiters };
                return Ok(Asked::Answered(Outcome::Busy(Box::new(busy))));
            }
            Ok((reply, _)) => unexpected(&reply),
            Err(error) if error.kind() == ErrorKind::Forked => return Err(error),
            Err(error) => error,
        };
        if is_own_limit.is_none() {
            // Not this task's impatience, but the store: whoever waits for the same answer gets it.
            let token = bid.token.clone();
            client
                .change(|table, after| table.ask_ended(name, &token, Some(&error), client.session(), after));
            if let Some(bid) = self.bid.take().filter(|bid| bid.may_execute_until.is_some()) {
                release::leave(client, name.clone(), bid.token, bid.may_execute_until, terms.ttl);
            }
        }
        Err(error)
    }

    fn granted(&mut self, fence: u64, sent: Moment) -> Result<Asked, Error> {
        let bid = self.bid.take().expect("the bid that was granted");
        let (token, terms, may_execute_until) = (bid.token.clone(), bid.claim.terms, bid.may_execute_until);
        let (client, name, lease) = (self.client, self.name, Deadlines::granted(&terms, sent));
        let leave = || release::leave(client, name.clone(), token.clone(), may_execute_until, terms.ttl);
        if client.clock.now() >= lease.deadline() {
            client.change(|table, after| table.ask_ended(name, &token, None, client.session(), after));
            leave();
            return Ok(Asked::TooLate);
        }
        let turn = client.change(|table, after| table.ask_granted(name, bid, lease, fence, after));
        let turn = turn.inspect_err(|_| leave())?;
        Ok(Asked::Answered(Outcome::Turn(turn)))
    }

    /// Waits to be called.
    async fn wait(&mut self, limit: Option<Moment>) -> Result<Outcome, Ended> {
        // A task that came straight here is known by the waker of this very poll.
        let mut is_watched = self.is_watched;
        if self.asked_until.is_some() {
            is_watched = false;
            Box::pin(self.wait_for_asker(limit)).await;
        }
        let called = std::future::poll_fn(|cx| match std::mem::take(&mut is_watched) {
            true => Poll::Pending,
            false if self.client.is_here() => self.task.poll_wakeup(cx),
            false => Poll::Ready(Wakeup::Failed(Error::forked())),
        });
        let call = match limit {
            Some(limit) => Box::pin(self.client.clock.until(limit, called)).await,
            None => Some(called.await),
        };
        self.is_queued = false;
        let call = match call {
            Some(call) => call,
            None if !self.client.is_here() => return Err(Error::forked().into()),
            None => {
                // Who holds the name is known as long as somebody waits for it: read before this task is gone.
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

    /// Waits until this task is called, or the one that asks must have its answer. One that nobody polls holds nobody up for ever.
    async fn wait_for_asker(&mut self, limit: Option<Moment>) {
        let (client, name) = (self.client, self.name);
        let Some(until) = self.asked_until.filter(|&until| limit.is_none_or(|limit| until < limit)) else {
            return;
        };
        let called = std::future::poll_fn(|cx| match client.is_here() {
            true => self.task.poll_is_woken(cx),
            false => Poll::Ready(()),
        });
        if client.clock.until(until, called).await.is_none() && client.is_here() {
            client.change(|table, after| table.ask_overdue(name, client.session(), after));
        }
    }

    /// Leaves the cohort; returns the call that came meanwhile.
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
            let others = self.client.change(|table, after| table.ask_abandoned(self.name, &bid, after));
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

/// Asks the store until it answers, at most until `give_up`; again only while a request breaks off, or comes too late to be executed.
pub(crate) async fn ask_store(
    client: &Client,
    name: &Name,
    bid: &mut Bid,
    give_up: Moment,
    op: impl Fn(&Bid, u64) -> Op,
) -> Result<(Reply, Moment), Error> {
    let mut attempts = Attempts::until(give_up);
    loop {
        let error = match send(client, name, bid, give_up, &op).await {
            Ok((Reply::TooLate, _)) => {
                Error::not_yet("requests reach the store too late to be executed").fix("try again")
            }
            Err(error) => error,
            answer => return answer,
        };
        attempts.again(&client.clock, error).await?;
    }
}

/// Sends one request of a bid. Until it is answered, the bid is haunted: the request may be executed later.
pub(crate) async fn send(
    client: &Client,
    name: &Name,
    bid: &mut Bid,
    give_up: Moment,
    op: impl Fn(&Bid, u64) -> Op,
) -> Result<(Reply, Moment), Error> {
    let backend = client.opened();
    let sent = client.clock.now();
    let timeout = micros(give_up.since(sent));
    let not_after = backend.server_now(name).map_or(u64::MAX, |now| now.saturating_add(timeout));
    let (before, connection) = (bid.may_execute_until.replace(give_up), backend.connection(name));
    let answer = client.in_time(give_up, backend.execute(name, op(bid, not_after))).await;
    if !matches!(&answer, Err(error) if error.may_have_run()) {
        bid.may_execute_until = before;
    }
    let Answer { reply, server } = answer?;
    bid.is_degraded = backend.is_degraded(&bid.token);
    let server = server.filter(|_| connection == backend.connection(name));
    bid.pair = server.map(|server| TimePair { sent, server, connection });
    Ok((reply, sent))
}

pub(crate) fn unexpected(reply: &Reply) -> Error {
    Error::new(ErrorKind::Protocol, format!("store answered an acquire with {reply:?}"))
        .fix("is it of another version?")
}
