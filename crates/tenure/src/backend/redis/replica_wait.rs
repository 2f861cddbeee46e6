//! Waits for replica acknowledgements, on its own connection, once for all callers at a time.
//!
//! `WAIT` blocks its connection. On the connection for commands it would delay every other name of this client, every release, and the
//! heartbeat. But `WAIT` covers only writes of its own connection. So this connection writes something itself, after the scripts have
//! answered: replicas get one stream, so a replica with this write has theirs too. `keep.lua` is that write: it sets the expiry of a
//! fence again, and always writes. A script need not write: the releaser wrote a lease that was handed over, and a renewal never
//! shortens.
//!
//! That holds within one incarnation of one server. So each connection for commands has its own `ReplicaWait`, which must find the same
//! incarnation at the other end. If it cannot know that, or cannot connect for a while, it waits on the connection for commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis::{Cmd, Pipeline, PushKind, Value};

use super::connect::Connector;
use super::connection::Connection;
use super::link::ActiveConnection;
use super::server::{Server, string};
use crate::time::backoff::Backoff;
use crate::types::error::Error;

/// Waits for the writes of one connection for commands.
pub(super) struct ReplicaWait {
    server: Arc<Server>,
    /// Numbers the callers. The script of a caller was executed before it gets its number.
    asked: AtomicU64,
    last: tokio::sync::Mutex<Last>,
}

/// The last wait for replicas.
#[derive(Default)]
struct Last {
    connection: Option<WaitConnection>,
    /// It covers all callers with a lower number.
    below: u64,
    outcome: Option<Result<(), Error>>,
    patience: Duration,
}

/// The connection on which `WAIT` is sent.
struct WaitConnection {
    connection: Connection,
    is_broken: Arc<AtomicBool>,
}

impl ReplicaWait {
    pub(super) fn new(server: Arc<Server>) -> Self {
        ReplicaWait { server, asked: AtomicU64::new(0), last: tokio::sync::Mutex::default() }
    }

    /// Whether it covers writes of this connection.
    pub(super) fn is_for(&self, active: &ActiveConnection) -> bool {
        Arc::ptr_eq(&self.server, &active.server)
    }

    /// The outcome of `waiting`, a write and a `WAIT`: sent now, or by another caller since this one began. Callers share a failure only
    /// if they have no more patience. If the outcome is unknown, each caller asks again.
    pub(super) async fn ask(
        &self,
        active: &ActiveConnection,
        connector: &Connector,
        patience: Duration,
        waiting: &Pipeline,
        outcome: impl Fn(redis::RedisResult<Vec<Value>>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let number = self.asked.fetch_add(1, Ordering::AcqRel);
        let mut last = self.last.lock().await;
        if number < last.below {
            match &last.outcome {
                Some(Ok(())) => return Ok(()),
                Some(Err(error)) if patience <= last.patience => return Err(error.clone()),
                _ => {}
            }
        }
        let below = self.asked.load(Ordering::Acquire);
        let mut connection = match self.connection(&mut last.connection, connector, patience).await {
            Some(own) => own.connection.clone(),
            None => active.connection.clone(),
        };
        let answers = connection.send_all(waiting).await;
        if answers.is_err() {
            last.connection = None;
        }
        let outcome = outcome(answers);
        let is_known = outcome.as_ref().err().is_none_or(|error| error.too_few_replicas().is_some());
        last.outcome = is_known.then(|| outcome.clone());
        (last.below, last.patience) = (below, patience);
        outcome
    }

    /// Its connection, made with the first use.
    async fn connection<'w>(
        &self,
        own: &'w mut Option<WaitConnection>,
        connector: &Connector,
        patience: Duration,
    ) -> Option<&'w WaitConnection> {
        // Without it, the client cannot know whether it reaches the same incarnation.
        self.server.run_id.as_ref()?;
        if own.as_ref().is_none_or(|own| own.is_broken.load(Ordering::Acquire)) {
            // Another attempt is better than blocking the connection for commands.
            let connecting = async {
                let mut backoff = Backoff::new();
                loop {
                    match self.connect(connector).await {
                        Some(connection) => return connection,
                        None => tokio::time::sleep(backoff.pause()).await,
                    }
                }
            };
            *own = tokio::time::timeout(patience / 2, connecting).await.ok();
        }
        own.as_ref()
    }

    async fn connect(&self, connector: &Connector) -> Option<WaitConnection> {
        let is_broken = Arc::new(AtomicBool::new(false));
        let breaks = Arc::clone(&is_broken);
        let on_push = move |push: redis::PushInfo| {
            if push.kind == PushKind::Disconnection {
                breaks.store(true, Ordering::Release);
            }
        };
        let mut connection = connector.connect_to_same_server(connector.timeout, on_push).await.ok()?;
        let mut question = Cmd::new();
        question.arg("INFO").arg("server");
        let info = connection.send(&question).await.ok()?;
        string(&info)
            .is_some_and(|info| self.server.is_described_by(info))
            .then_some(WaitConnection { connection, is_broken })
    }
}
