//! `?replicas=N|all`: a grant or a renewal counts when so many replicas have acknowledged it.
//!
//! `WAIT` speaks for the writes of its own connection alone, so it goes out on the one that the script went by. A script need not have
//! written anything (a lease that was handed over was written by its releaser, and a renewal never shortens), so a write goes before it
//! that changes nothing and stands behind all of them in the stream of the replicas: the expiry of the fence is set once more.
//!
//! What too few replicas acknowledged is unknown, not undone: it is asked again with the same token until the deadline, and given back
//! by whoever gives up. To give it back here could meet a later grant to the same token. One `WAIT` is under way at a time, because it
//! blocks its connection, and the heartbeat with it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Value;

use super::connect::Connector;
use super::fault;
use super::link::Line;
use super::script::Call;
use super::server::{field, string};
use crate::backend::{Grant, Sink};
use crate::error::Error;
use crate::name::Name;
use crate::url::Replicas;

/// How many must acknowledge, and how many there are.
pub(super) struct Acknowledgement {
    wanted: Replicas,
    connector: Arc<Connector>,
    /// The most that a master had since this client was opened.
    seen: AtomicU64,
    turn: tokio::sync::Mutex<()>,
}

impl Acknowledgement {
    pub(super) fn new(wanted: Replicas, connector: Arc<Connector>) -> Self {
        Acknowledgement { wanted, connector, seen: AtomicU64::new(0), turn: tokio::sync::Mutex::new(()) }
    }

    /// A master has so many.
    pub(super) fn saw(&self, replicas: u64) {
        self.seen.fetch_max(replicas, Ordering::AcqRel);
    }

    /// All of none would be a promise that nobody keeps: one at least.
    fn needed(&self) -> u64 {
        match self.wanted {
            Replicas::AtLeast(number) => u64::from(number.get()),
            Replicas::All => self.seen.load(Ordering::Acquire).max(self.connector.known_replicas()).max(1),
        }
    }

    /// Returns when enough replicas have what this connection has written; an error says that it is not known.
    pub(super) async fn confirm(&self, line: &mut Line, call: &Call) -> Result<(), Error> {
        let _turn = self.turn.lock().await;
        let patience = call.ttl().map_or(Duration::MAX, |ttl| ttl / 8).min(self.connector.timeout / 4);
        let millis = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX).max(1);
        let mut commands = redis::pipe();
        call.ask(&mut commands);
        commands.add_command(call.keep_fence());
        commands.cmd("WAIT").arg(self.needed()).arg(millis);
        if self.wanted == Replicas::All {
            commands.cmd("INFO").arg("replication");
        }
        let answers = line.connection.send_packed_commands(&commands, 0, commands.len()).await;
        let answers = answers.map_err(|error| fault::of_command(&error))?;
        if let Some(Value::ServerError(refusal)) =
            answers.iter().find(|answer| matches!(answer, Value::ServerError(_)))
        {
            let error = fault::refused(refusal);
            // The script was executed, whatever comes after it; also where the fence is on its way to another node.
            let passes = error.is_transient() || ["MOVED", "ASK"].contains(&refusal.code());
            return Err(if passes { Error::unanswered(error.to_string()) } else { error });
        }
        let answers = &answers[usize::from(call.is_asking)..];
        let replicas = answers.get(2).and_then(string).and_then(connected);
        replicas.into_iter().for_each(|replicas| self.saw(replicas));
        let needed = self.needed();
        match answers {
            [Value::Int(1), Value::Int(acknowledged), ..] if acknowledged.cast_unsigned() >= needed => Ok(()),
            [Value::Int(1), Value::Int(acknowledged), ..] => Err(Error::unconfirmed(format!(
                "{acknowledged} of {needed} replicas acknowledged within {patience:?}; bring the others back, or lower `replicas` in the URL"
            ))),
            // The fence that the script left is gone: so may be the rest.
            _ => Err(Error::unanswered("redis forgot a grant before its replicas had it; try again")),
        }
    }
}

/// How many replicas a master has, by what it says in `INFO`.
pub(super) fn connected(info: &str) -> Option<u64> {
    field(info, "connected_slaves")?.parse().ok()
}

/// Turns a grant that was pushed into a reason to ask: the write was the releaser's, and no replica may know of it.
pub(super) struct Cautious(pub(super) Weak<dyn Sink>);

impl Sink for Cautious {
    fn granted(&self, name: &Name, _: Grant) {
        self.doubt(name);
    }

    fn doubt(&self, name: &Name) {
        self.0.upgrade().into_iter().for_each(|sink| sink.doubt(name));
    }

    fn doubt_all(&self) {
        self.0.upgrade().into_iter().for_each(|sink| sink.doubt_all());
    }

    fn unheard(&self) {
        self.0.upgrade().into_iter().for_each(|sink| sink.unheard());
    }
}
