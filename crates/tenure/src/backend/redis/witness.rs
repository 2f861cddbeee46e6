//! Waits for replicas: on a connection of its own, and once for all who ask meanwhile.
//!
//! `WAIT` blocks its connection. On the one of the commands it would hold up every other name of this client, every release, and the
//! heartbeat. But it speaks for the writes of its own connection alone. So the witness writes something itself, after the scripts that it
//! is to speak for have answered: replicas get one stream, so whoever has this write has theirs. It is one that changes nothing, the
//! expiry of a fence is set once more (`keep.lua`); and it is always one, which a script need not be (a lease that was handed over was written by its
//! releaser, and a renewal never shortens).
//!
//! That holds within one run of one server, so there is one witness for each connection of the commands, and it must find the same run
//! at the other end. Where it can't know that, or can't connect for a while, it waits on the connection of the commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis::{Cmd, Pipeline, PushKind, Value};

use super::connect::Connector;
use super::connection::Connection;
use super::link::Line;
use super::server::{Server, string};
use crate::time::backoff::Backoff;
use crate::types::error::Error;

/// One for each connection of the commands.
pub(super) struct Witness {
    server: Arc<Server>,
    /// Counts those who asked. Everyone's script had been executed when it got its number.
    asked: AtomicU64,
    last: tokio::sync::Mutex<Last>,
}

/// The last time that replicas were waited for.
#[derive(Default)]
struct Last {
    wire: Option<Wire>,
    /// It speaks for everyone with a lower number.
    below: u64,
    outcome: Option<Result<(), Error>>,
    patience: Duration,
}

/// The connection of a witness.
struct Wire {
    connection: Connection,
    is_broken: Arc<AtomicBool>,
}

impl Witness {
    pub(super) fn new(server: Arc<Server>) -> Self {
        Witness { server, asked: AtomicU64::new(0), last: tokio::sync::Mutex::default() }
    }

    /// Whether it speaks for what went by this connection.
    pub(super) fn is_for(&self, line: &Line) -> bool {
        Arc::ptr_eq(&self.server, &line.server)
    }

    /// What came of `waiting`, which is a write and a `WAIT`: sent now, or by somebody else since this was called. A failure is only
    /// shared with those who have no more patience; what can't be known is asked again by everyone.
    pub(super) async fn ask(
        &self,
        line: &Line,
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
        let mut connection = match self.wire(&mut last.wire, connector, patience).await {
            Some(wire) => wire.connection.clone(),
            None => line.connection.clone(),
        };
        let answers = connection.send_all(waiting).await;
        if answers.is_err() {
            last.wire = None;
        }
        let outcome = outcome(answers);
        let is_known = outcome.as_ref().err().is_none_or(|error| error.too_few_replicas().is_some());
        last.outcome = is_known.then(|| outcome.clone());
        (last.below, last.patience) = (below, patience);
        outcome
    }

    /// Its connection, which is made when it is first needed.
    async fn wire<'w>(
        &self,
        wire: &'w mut Option<Wire>,
        connector: &Connector,
        patience: Duration,
    ) -> Option<&'w Wire> {
        // It could never be known to lead to the same run.
        self.server.run_id.as_ref()?;
        if wire.as_ref().is_none_or(|wire| wire.is_broken.load(Ordering::Acquire)) {
            // A second attempt is better than to hold up all others on the connection of the commands.
            let connecting = async {
                let mut backoff = Backoff::new();
                loop {
                    match self.connect(connector).await {
                        Some(wire) => return wire,
                        None => tokio::time::sleep(backoff.pause()).await,
                    }
                }
            };
            *wire = tokio::time::timeout(patience / 2, connecting).await.ok();
        }
        wire.as_ref()
    }

    async fn connect(&self, connector: &Connector) -> Option<Wire> {
        let is_broken = Arc::new(AtomicBool::new(false));
        let breaks = Arc::clone(&is_broken);
        let hear = move |push: redis::PushInfo| {
            if push.kind == PushKind::Disconnection {
                breaks.store(true, Ordering::Release);
            }
        };
        let mut connection = connector.join(connector.timeout, hear).await.ok()?;
        let mut question = Cmd::new();
        question.arg("INFO").arg("server");
        let info = connection.send(&question).await.ok()?;
        string(&info).is_some_and(|info| self.server.says(info)).then_some(Wire { connection, is_broken })
    }
}
