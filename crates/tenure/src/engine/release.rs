//! Giving back: what release, drop and cancellation leave to be done in the store.
//!
//! A drop can't wait, so the client releases in the background what it can't release at once. It tries until the store answers or the lease
//! has expired there, which is the backstop for everything here. The store may have a lease for longer than its holder believes in it
//! ([`SharedLease::in_store_until`](crate::engine::lease_state::SharedLease::in_store_until)), so this goes on after the holder's deadline.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Answer, Backend, Pending};
use crate::core::record::{Op, PROBATION, Reply};
use crate::engine::client::Client;
use crate::engine::lease_state::Turn;
use crate::engine::table::TurnEnd;
use crate::time::backoff::{Attempts, Backoff};
use crate::time::clock::{Clock, Moment, SLACK};
use crate::types::error::Error;
use crate::types::name::Name;
use crate::types::owner::Token;
use crate::types::release::Release;

/// How long one attempt in the background may take.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(2);

/// How long a release that a caller awaits goes on while the store is out of reach. Less than `close` waits for a `run`.
const LONGEST_OUTAGE: Duration = Duration::from_secs(2);

impl Release {
    pub(crate) fn from_reply(reply: &Reply) -> Self {
        match reply {
            Reply::NotHeld { holder: Some(token) } => Release::Taken { by: token.owner() },
            Reply::NotHeld { holder: None } => Release::Gone,
            _ => Release::Released,
        }
    }
}

/// Ends a turn. If its lease goes back to the store, waits for the answer. Can be called again after an error.
pub(crate) async fn give_back(
    client: &Arc<Client>,
    turn: &Turn,
    timeout: Duration,
    was_unanswered: &mut bool,
) -> Result<Release, Error> {
    client.check_process()?;
    match Returning::begin(client, turn) {
        Some(returning) => Box::pin(returning.finish(timeout, was_unanswered)).await,
        None => Ok(Release::Released),
    }
}

/// Ends a turn. If its lease goes back to the store, that happens at once if possible, and else in the background.
pub(crate) fn give_back_later(client: &Arc<Client>, turn: &Turn) {
    if !client.is_here() {
        return;
    }
    let Some(mut returning) = Returning::begin(client, turn) else {
        return;
    };
    let first = match returning.send() {
        Pending::Now(answer) => {
            returning.reopen();
            match answer {
                Some(Ok(_)) | None => return,
                Some(Err(_)) => None,
            }
        }
        later => Some(later),
    };
    let (backend, clock) = (Arc::clone(client.opened()), client.clock.clone());
    let (name, op, give_up) = (turn.lease.name.clone(), returning.op(), turn.lease.in_store_until());
    let leftover = client.leftovers.add(give_up, clock.now());
    client.tasks.spawn(async move {
        if let Some(first) = first {
            let timeout = clock.now() + LONGEST_ATTEMPT;
            if let Some(Ok(_)) = clock.until(timeout.min(give_up), returning.sent(first)).await {
                return leftover.forget();
            }
        }
        drop(returning);
        if repeat(&*backend, &clock, &name, &op, give_up).await {
            leftover.forget();
        }
    });
}

/// A lease on its way back to the store. Once the request is sent, or this is dropped, the next task of the cohort may ask.
struct Returning {
    client: Arc<Client>,
    turn: Turn,
    is_reopened: bool,
}

impl Returning {
    /// Ends the turn; `None` when the lease passed to the next task.
    fn begin(client: &Arc<Client>, turn: &Turn) -> Option<Self> {
        let is_first_time = turn.end();
        let end = client.change(|table, effects| {
            let end = table.end_turn(turn, effects);
            table.metrics.released += u64::from(is_first_time);
            table.metrics.passed += u64::from(end == TurnEnd::Passed);
            end
        });
        tracing::debug!(target: "tenure", name = %turn.lease.name, fence = turn.fence.get(), ?end, "released");
        if end == TurnEnd::Passed {
            return None;
        }
        let returning = Returning { client: Arc::clone(client), turn: turn.clone(), is_reopened: false };
        if let Some(may_execute_until) = turn.lease.let_go() {
            let term = turn.lease.term;
            compensate_after(client, turn.lease.name.clone(), returning.op(), may_execute_until, term);
        }
        Some(returning)
    }

    /// Waits for the store's answer.
    async fn finish(mut self, timeout: Duration, was_unanswered: &mut bool) -> Result<Release, Error> {
        let client = Arc::clone(&self.client);
        let mut attempts = attempts(&client, timeout);
        loop {
            let answer = self.send();
            let answer = client.in_time(attempts.give_up, self.sent(answer)).await;
            match answer {
                // The client knows of no loss, and the deadline is not over: an earlier release, which was not answered, ended the lease.
                Ok(_) if *was_unanswered && self.turn.lease.is_in_store() => return Ok(Release::Released),
                Ok(Answer { reply, .. }) => return Ok(Release::from_reply(&reply)),
                Err(error) => {
                    *was_unanswered |= error.may_have_run();
                    attempts.again(&client.clock, error).await?;
                }
            }
        }
    }

    fn op(&self) -> Op {
        Op::Release { token: self.turn.lease.token.clone(), used: self.turn.fence.get() }
    }

    fn send(&self) -> Pending<Answer> {
        self.client.opened().execute(&self.turn.lease.name, self.op())
    }

    /// Waits for the answer. Once the request is sent, the next task may ask: its request arrives after this one.
    fn sent(&mut self, mut answer: Pending<Answer>) -> impl Future<Output = Result<Answer, Error>> + Unpin {
        std::future::poll_fn(move |cx| {
            let poll = Pin::new(&mut answer).poll(cx);
            self.reopen();
            poll
        })
    }

    fn reopen(&mut self) {
        if !std::mem::replace(&mut self.is_reopened, true) && self.client.is_here() {
            let (client, name) = (&self.client, &self.turn.lease.name);
            client.change(|table, effects| table.returned(name, effects));
        }
    }
}

impl Drop for Returning {
    fn drop(&mut self) {
        self.reopen();
    }
}

/// Leaves the queue, and gives back a lease that was granted meanwhile: at once if possible, and else in the background. If the store may
/// still execute a request of the bid, once more after that.
pub(crate) fn leave(
    client: &Arc<Client>,
    name: Name,
    token: Token,
    may_execute_until: Option<Moment>,
    ttl: Duration,
) {
    let op = Op::Leave { token };
    let (backend, clock) = (Arc::clone(client.opened()), client.clock.clone());
    let first = match backend.execute(&name, op.clone()) {
        Pending::Now(Some(Ok(_))) if may_execute_until.is_none() => return,
        first => first,
    };
    // The store soon drops a silent waiter, and a lease that it grants to one is on probation.
    let most = may_execute_until
        .map_or(clock.now() + ttl.min(PROBATION), |may_execute_until| may_execute_until + ttl);
    let leftover = client.leftovers.add(most, clock.now());
    client.tasks.spawn(async move {
        let give_up = clock.now() + ttl;
        let first = clock.until(give_up.min(clock.now() + LONGEST_ATTEMPT), first).await;
        let mut is_undone =
            matches!(first, Some(Ok(_))) || repeat(&*backend, &clock, &name, &op, give_up).await;
        if let Some(may_execute_until) = may_execute_until {
            clock.sleep_until(may_execute_until + SLACK).await;
            is_undone = repeat(&*backend, &clock, &name, &op, may_execute_until + ttl).await;
        }
        if is_undone {
            leftover.forget();
        }
    });
}

/// Gives back a lease that was pushed to a client that does not want it any more.
pub(crate) fn give_up(client: &Arc<Client>, name: Name, token: Token) {
    leave(client, name, token, None, PROBATION);
}

/// Sends `undo` once the store can't execute an unacknowledged request any more. If the lease was released, `undo` is that release: it may
/// be the first that reaches the store, and only a release gives unused fences back.
pub(crate) fn compensate_after(
    client: &Arc<Client>,
    name: Name,
    undo: Op,
    may_execute_until: Moment,
    ttl: Duration,
) {
    let (backend, clock) = (Arc::clone(client.opened()), client.clock.clone());
    if may_execute_until + SLACK < clock.now() {
        return;
    }
    let most = may_execute_until + ttl;
    let leftover = client.leftovers.add(most, clock.now());
    client.tasks.spawn(async move {
        clock.sleep_until(may_execute_until + SLACK).await;
        if repeat(&*backend, &clock, &name, &undo, most).await {
            leftover.forget();
        }
    });
}

/// Attempts at a release that a caller awaits. An outage may be over soon, and a lease that stays in the store lives for up to a ttl.
pub(crate) fn attempts(client: &Client, timeout: Duration) -> Attempts {
    let now = client.clock.now();
    let attempts = Attempts::until(now + timeout);
    if client.opened().reconnects() { attempts.outlasting_outages(now + LONGEST_OUTAGE) } else { attempts }
}

/// Sends a request until the store answers, at most until `give_up`. Returns whether it answered.
async fn repeat(backend: &dyn Backend, clock: &Clock, name: &Name, op: &Op, give_up: Moment) -> bool {
    let mut backoff = Backoff::new();
    while clock.now() < give_up {
        let until = give_up.min(clock.now() + LONGEST_ATTEMPT);
        let answer = clock.until(until, backend.execute(name, op.clone())).await;
        if matches!(answer, Some(Ok(_))) {
            return true;
        }
        clock.sleep_until(clock.now() + backoff.pause()).await;
    }
    false
}
