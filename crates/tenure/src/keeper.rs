//! The one background task of a domain: renews, ends, and reports.
//!
//! It keeps nothing alive: it holds a weak reference, and ends when the last handle is gone. If its runtime goes down it goes
//! with it; the next lease starts another (see `Client::rouse_keeper`), and until then every holder still sees its own deadline.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::backend::{Answer, Backend};
use crate::client::Client;
use crate::clock::Moment;
use crate::error::Error;
use crate::record::{Op, Reply};
use crate::release;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::table::Renewal;

/// Says that the keeper runs, until it is dropped with it.
pub(crate) struct Running {
    pub(crate) client: Weak<Client>,
    pub(crate) is_running: Arc<AtomicBool>,
    pub(crate) has_ended: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.is_running.store(false, Ordering::Release);
        if !self.has_ended
            && let Some(client) = self.client.upgrade()
        {
            client.keeper_went_down();
        }
    }
}

pub(crate) async fn keep(mut running: Running, alarm: Arc<Notify>) {
    loop {
        let Some(client_now) = running.client.upgrade() else { return };
        // A domain that was closed may never have been opened: there is nothing to look at.
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

/// Sends what is due; returns when to look again.
fn look(client: &Arc<Client>) -> Option<Moment> {
    let due = client.change(|table, after| table.due(client.session(), after));
    for turn in due.unclaimed {
        release::give_back_later(client, &turn);
    }
    let backend = client.opened();
    for renewals in batches(due.renewals, backend.most_at_once()) {
        client.tasks.spawn_daemon(renew(Arc::downgrade(client), Arc::clone(backend), renewals));
    }
    due.next
}

/// What is sent in one go.
fn batches(mut renewals: Vec<Renewal>, most: usize) -> impl Iterator<Item = Vec<Renewal>> {
    std::iter::from_fn(move || {
        let rest = renewals.len().saturating_sub(most);
        Some(renewals.split_off(rest)).filter(|batch| !batch.is_empty())
    })
}

/// Renews, all in one go.
async fn renew(client: Weak<Client>, backend: Arc<dyn Backend>, renewals: Vec<Renewal>) {
    let Some(clock) = client.upgrade().map(|client| client.clock.clone()) else {
        return;
    };
    let op = |renewal: &Renewal| Op::Renew { token: renewal.lease.token.clone(), ttl: renewal.ttl };
    let timeout = renewals.iter().map(|renewal| renewal.timeout).min().unwrap_or_default();
    let sent = clock.now();
    let mut under_way: Vec<_> = renewals
        .into_iter()
        .map(|renewal| UnderWay { client: client.clone(), sent, reply: None, renewal })
        .collect();
    if let [one] = &mut under_way[..] {
        let answer = backend.execute(&one.renewal.lease.name, op(&one.renewal));
        one.answered(timeout, clock.until(sent + timeout, answer).await);
        return;
    }
    let operations: Vec<_> =
        under_way.iter().map(|one| (one.renewal.lease.name.clone(), op(&one.renewal))).collect();
    match clock.until(sent + timeout, backend.execute_all(&operations)).await {
        Some(Ok(answers)) => {
            under_way.iter_mut().zip(answers).for_each(|(one, answer)| one.answered(timeout, Some(answer)));
        }
        Some(Err(error)) => {
            under_way.iter_mut().for_each(|one| one.answered(timeout, Some(Err(error.clone()))));
        }
        None => under_way.iter_mut().for_each(|one| one.answered(timeout, None)),
    }
}

/// A renewal, entered when it is dropped: one that went down with its runtime was not answered, and is sent again on another.
struct UnderWay {
    client: Weak<Client>,
    renewal: Renewal,
    sent: Moment,
    reply: Option<Reply>,
}

impl UnderWay {
    fn answered(&mut self, timeout: Duration, answer: Option<Result<Answer, Error>>) {
        let name = &self.renewal.lease.name;
        match answer {
            Some(Ok(answer)) => self.reply = Some(answer.reply),
            Some(Err(error)) => {
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
        let Some(client) = self.client.upgrade() else { return };
        let (Renewal { lease, ttl, .. }, sent, reply) = (&self.renewal, self.sent, self.reply.as_ref());
        client.change(|table, after| {
            // Before the deadline moves: what is believed longer is known to be degraded.
            if reply.is_some() {
                lease.set_degraded(client.opened().is_degraded(&lease.token));
            }
            table.renewed(lease, sent, *ttl, reply, client.session(), after);
        });
    }
}
