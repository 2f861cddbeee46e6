//! The one background task of a domain: renews, ends, and reports.
//!
//! It keeps nothing alive: it holds a weak reference, and ends when the last handle is gone. If its runtime goes down it goes
//! with it; the next lease starts another (see `Client::rouse_keeper`), and until then every holder still sees its own deadline.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::Notify;

use crate::client::Client;
use crate::record::Op;
use crate::release;
use crate::schedule::Renewal;

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
        let clock = client_now.clock.clone();
        let next = look(&client_now);
        let is_closed = client_now.table.lock().is_closed;
        drop(client_now);
        if is_closed {
            running.has_ended = true;
            return;
        }
        match next {
            Some(next) => drop(clock.until(next, alarm.notified()).await),
            None => alarm.notified().await,
        }
    }
}

/// Sends what is due; returns when to look again.
fn look(client: &Arc<Client>) -> Option<crate::clock::Moment> {
    let due = client.change(|table, after| table.due(client.session(), after));
    for turn in due.unclaimed {
        release::give_back_later(client, &turn);
    }
    for renewal in due.renewals {
        client.tasks.spawn_daemon(renew(Arc::downgrade(client), Arc::clone(client.opened()), renewal));
    }
    due.next
}

async fn renew(client: Weak<Client>, backend: Arc<dyn crate::backend::Backend>, renewal: Renewal) {
    let Renewal { lease, ttl, timeout } = renewal;
    let Some(clock) = client.upgrade().map(|client| client.clock.clone()) else {
        return;
    };
    let sent = clock.now();
    let op = Op::Renew { token: lease.token.clone(), ttl, floor: 0 };
    let answer = clock.until(sent + timeout, backend.execute(&lease.name, op)).await;
    let Some(client) = client.upgrade() else { return };
    let reply = match answer {
        Some(Ok(answer)) => Some(answer.reply),
        Some(Err(error)) => {
            tracing::warn!(name = %lease.name, %error, "renewal failed; the lease is believed until its deadline");
            None
        }
        None => {
            tracing::warn!(name = %lease.name, ?timeout, "renewal was not answered; the lease is believed until its deadline");
            None
        }
    };
    client.change(|table, after| table.renewed(&lease, sent, ttl, reply.as_ref(), client.session(), after));
}
