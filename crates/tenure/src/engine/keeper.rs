//! The one background task of a domain: renews, ends, and reports.
//!
//! It keeps nothing alive: it holds a weak reference, and ends when the last handle is gone. If its runtime shuts down, the next lease starts
//! another keeper (see `Client::rouse_keeper`). Until then every holder still sees its own deadline.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::backend::{Answer, Backend, together};
use crate::core::record::{Op, Reply};
use crate::engine::client::{Client, Keeper, KeeperRuns};
use crate::engine::release;
use crate::engine::table::Renewal;
use crate::time::clock::{Clock, Moment};
use crate::types::error::Error;

/// Keeps the leases of a client until its last handle is gone, or the domain is closed.
pub(crate) fn keep(runs: KeeperRuns, alarm: Arc<Notify>) -> Keeper {
    Box::pin(keep_on(runs, alarm))
}

async fn keep_on(mut running: KeeperRuns, alarm: Arc<Notify>) {
    loop {
        let Some(client_now) = running.client.upgrade() else { return };
        if !client_now.is_here() {
            return;
        }
        // A closed domain may never have been opened: then there is nothing to look at.
        if client_now.table.lock().is_closed {
            running.has_ended = true;
            return;
        }
        let clock = client_now.clock.clone();
        let next = look(&client_now);
        drop(client_now);
        match next {
            Some(next) => drop(clock.until(next, alarm.notified()).await),
            None => alarm.notified().await,
        }
    }
}

/// Sends the renewals that are due. Returns when to look again.
fn look(client: &Arc<Client>) -> Option<Moment> {
    let due = client.change(|table, effects| table.due(effects));
    for turn in due.unclaimed {
        release::give_back_later(client, &turn);
    }
    let backend = client.opened();
    for renewals in batches(due.renewals, &**backend) {
        client.tasks.spawn_daemon(renew(Arc::downgrade(client), Arc::clone(backend), renewals));
    }
    due.next
}

/// Puts renewals of one connection together: a silent connection must not delay the renewals of another.
fn batches(renewals: Vec<Renewal>, backend: &dyn Backend) -> Vec<Vec<Renewal>> {
    let (mut full, mut begun) = (Vec::new(), HashMap::<u64, Vec<Renewal>>::new());
    for renewal in renewals {
        let batch = begun.entry(backend.connection(&renewal.lease.name)).or_default();
        batch.push(renewal);
        if batch.len() >= backend.most_at_once() {
            full.push(std::mem::take(batch));
        }
    }
    full.extend(begun.into_values().filter(|batch| !batch.is_empty()));
    full
}

/// Renews, all in one go.
async fn renew(client: Weak<Client>, backend: Arc<dyn Backend>, renewals: Vec<Renewal>) {
    let Some(clock) = client.upgrade().map(|client| client.clock.clone()) else {
        return;
    };
    let timeout = renewals.iter().map(|renewal| renewal.timeout).min().unwrap_or_default();
    let sent = clock.now();
    let mut under_way: Vec<_> = renewals
        .into_iter()
        .map(|renewal| UnderWay {
            client: client.clone(),
            sent,
            timeout,
            reply: None,
            is_degraded: false,
            renewal,
        })
        .collect();
    if under_way.len() == 1 {
        under_way.remove(0).ask(&clock, &*backend).await;
        return;
    }
    let operations: Vec<_> = under_way.iter().map(|one| (one.renewal.lease.name.clone(), one.op())).collect();
    match clock.until(sent + timeout, backend.execute_all(&operations)).await {
        Some(Ok(answers)) => {
            let mut alone = Vec::new();
            for (mut one, answer) in under_way.into_iter().zip(answers) {
                match answer {
                    Some(answer) => one.answered(Some(answer)),
                    None => alone.push(one.ask(&clock, &*backend)),
                }
            }
            together::all(alone).await;
        }
        Some(Err(error)) => under_way.iter_mut().for_each(|one| one.answered(Some(Err(error.clone())))),
        None => under_way.iter_mut().for_each(|one| one.answered(None)),
    }
}

/// A renewal in flight. It enters its answer when it is dropped: if its runtime shut down, there is no answer, and the client sends the
/// renewal again on another runtime.
struct UnderWay {
    client: Weak<Client>,
    renewal: Renewal,
    sent: Moment,
    timeout: Duration,
    reply: Option<Reply>,
    is_degraded: bool,
}

impl UnderWay {
    fn op(&self) -> Op {
        Op::Renew { token: self.renewal.lease.token.clone(), ttl: self.renewal.ttl }
    }

    /// Sends it by itself, independent of others.
    async fn ask(mut self, clock: &Clock, backend: &dyn Backend) {
        let answer = backend.execute(&self.renewal.lease.name, self.op());
        let answer = clock.until(self.sent + self.timeout, answer).await;
        self.answered(answer);
    }

    fn answered(&mut self, answer: Option<Result<Answer, Error>>) {
        let (name, timeout) = (&self.renewal.lease.name, self.timeout);
        match answer {
            Some(Ok(answer)) => (self.reply, self.is_degraded) = (Some(answer.reply), answer.is_degraded),
            Some(Err(error)) => {
                if !error.may_have_run() {
                    self.renewal.lease.renewal_not_executed();
                }
                tracing::warn!(target: "tenure", %name, %error, "renewal failed; the lease is believed until its deadline");
            }
            None => {
                tracing::warn!(target: "tenure", %name, ?timeout, "renewal was not answered; the lease is believed until its deadline");
            }
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let Some(client) = self.client.upgrade().filter(|client| client.is_here()) else { return };
        let (Renewal { lease, ttl, .. }, sent, reply) = (&self.renewal, self.sent, self.reply.as_ref());
        client.change(|table, effects| {
            // Before the deadline moves: a degraded lease always says so.
            if reply.is_some() {
                lease.set_degraded(self.is_degraded, sent);
            }
            table.renewed(lease, sent, *ttl, reply, effects);
        });
    }
}
