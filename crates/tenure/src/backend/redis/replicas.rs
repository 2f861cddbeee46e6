//! `?replicas=N|all`: a grant or a renewal counts when so many replicas have acknowledged it.
//!
//! How they are waited for is in [`witness`](super::witness). What too few replicas acknowledged is unknown, not undone: it is asked again
//! with the same token until the deadline, and given back by whoever gives up. To give it back here could meet a later grant to the same
//! token.
//!
//! *All* are those that the Sentinels know of, also those that are down: any of them may be promoted when it is back, also before it has
//! caught up. Without Sentinel nobody but the server can say how many there are, and it forgets those that are away; so all are the most
//! that it ever had.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{RedisResult, Value};

use super::connect::Connector;
use super::fault;
use super::link::Line;
use super::script::Call;
use super::server::{field, string};
use super::witness::Witness;
use crate::backend::{Grant, Sink};
use crate::sync::Mutex;
use crate::types::duration::shown;
use crate::types::error::{Error, ErrorKind};
use crate::types::name::Name;
use crate::types::replicas::TooFewReplicas;
use crate::url::Replicas;

/// How many must acknowledge, and how many there are.
pub(super) struct Acknowledgement {
    wanted: Replicas,
    connector: Arc<Connector>,
    /// The most that the master had: since this client was opened, or where Sentinel knows, just now.
    seen: AtomicU64,
    witness: Mutex<Option<Arc<Witness>>>,
}

impl Acknowledgement {
    pub(super) fn new(wanted: Replicas, connector: Arc<Connector>) -> Self {
        Acknowledgement { wanted, connector, seen: AtomicU64::new(0), witness: Mutex::default() }
    }

    /// The master has so many.
    pub(super) fn saw(&self, replicas: u64) {
        match self.connector.sentinels() {
            Some(_) => self.seen.store(replicas, Ordering::Release),
            None => drop(self.seen.fetch_max(replicas, Ordering::AcqRel)),
        }
    }

    /// All of none would be a promise that nobody keeps: one at least. All of an unknown number is refused: the master counts those that are
    /// connected, and one that is not may be promoted.
    pub(super) fn needed(&self) -> Result<u64, Error> {
        if let Replicas::AtLeast(number) = self.wanted {
            return Ok(u64::from(number.get()));
        }
        self.known().map(|known| known.max(1)).ok_or_else(|| self.uncounted())
    }

    /// How many the server has, if that is known.
    fn known(&self) -> Option<u64> {
        let known = self.connector.sentinels().map_or(Some(0), |sentinels| sentinels.replicas())?;
        Some(self.seen.load(Ordering::Acquire).max(known))
    }

    /// The URL demands all replicas of a server that has none.
    pub(super) fn demands_all_of_none(&self) -> bool {
        self.wanted == Replicas::All && self.known() == Some(0)
    }

    /// What the URL demands, as it is written there.
    pub(super) fn option(&self) -> String {
        match self.wanted {
            Replicas::AtLeast(number) => format!("replicas={number}"),
            Replicas::All => "replicas=all".to_owned(),
        }
    }

    /// What to do if too few acknowledge.
    pub(super) fn remedy(&self) -> String {
        if self.demands_all_of_none() {
            return "connect a replica, or leave `replicas` out of the URL of a server without replicas"
                .to_owned();
        }
        match (self.wanted, self.connector.sentinels()) {
            (Replicas::AtLeast(_), _) => "bring the others back, or lower `replicas` in the URL".to_owned(),
            (Replicas::All, None) => "bring the others back".to_owned(),
            (Replicas::All, Some(sentinels)) => format!(
                "bring the others back, or have every sentinel forget one that is gone for good: sentinel reset {}",
                sentinels.service
            ),
        }
    }

    fn uncounted(&self) -> Error {
        self.count_again();
        let fix = "allow the user of the sentinels `+sentinel|master`, or write a number: replicas=2";
        let message = format!("no sentinel says how many replicas there are, as `replicas=all` needs; {fix}");
        Error::new(ErrorKind::Denied, message)
    }

    /// Returns when enough replicas have what the call has written, which was answered on this connection; an error says that it is not
    /// known.
    pub(super) async fn confirm(&self, line: &Line, call: &Call) -> Result<(), Error> {
        // Twice that, for who comes just after another one has begun to wait, is less than a request may take.
        let patience = call.ttl().map_or(Duration::MAX, |ttl| ttl / 10).min(self.connector.timeout / 4);
        let millis = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX).max(1);
        loop {
            let asked = self.needed().map_err(Error::half_way)?;
            let mut waiting = redis::pipe();
            call.ask(&mut waiting);
            waiting.add_command(call.keep_fence_by_a_write(line.server.knows_flags()));
            waiting.cmd("WAIT").arg(asked).arg(millis);
            if self.wanted == Replicas::All {
                waiting.cmd("INFO").arg("replication");
            }
            let asking = usize::from(call.is_asking);
            let outcome = |answers| self.outcome(answers, asking, patience);
            let outcome = self.witness(line).ask(line, &self.connector, patience, &waiting, outcome).await;
            // There turned out to be more of them, which were not waited for.
            let is_more = |short: &TooFewReplicas| short.needed() > asked && short.acknowledged() >= asked;
            if !outcome.as_ref().is_err_and(|error| error.too_few_replicas().is_some_and(is_more)) {
                return outcome;
            }
        }
    }

    fn witness(&self, line: &Line) -> Arc<Witness> {
        let mut witness = self.witness.lock();
        match &*witness {
            Some(witness) if witness.is_for(line) => Arc::clone(witness),
            _ => Arc::clone(witness.insert(Arc::new(Witness::new(Arc::clone(&line.server))))),
        }
    }

    fn outcome(
        &self,
        answers: RedisResult<Vec<Value>>,
        asking: usize,
        patience: Duration,
    ) -> Result<(), Error> {
        // The script was executed, whatever comes after it; also where the fence is on its way to another node.
        let answers =
            answers.map_err(|error| fault::of_command(&error, &self.connector.address()).half_way())?;
        let is_refusal = |answer: &&Value| matches!(answer, Value::ServerError(_));
        if let Some(Value::ServerError(refusal)) = answers.iter().find(is_refusal) {
            let error = fault::refused(refusal, &self.connector.address());
            let passes = error.is_transient() || ["MOVED", "ASK"].contains(&refusal.code());
            return Err(if passes { Error::unanswered(error.to_string()) } else { error.half_way() });
        }
        let answers = answers.get(asking..).unwrap_or_default();
        let replicas = answers.get(2).and_then(string).and_then(connected);
        replicas.into_iter().for_each(|replicas| self.saw(replicas));
        let needed = self.needed().map_err(Error::half_way)?;
        match answers {
            [Value::Int(1), Value::Int(acknowledged), ..] if acknowledged.cast_unsigned() >= needed => Ok(()),
            [Value::Int(1), Value::Int(acknowledged), ..] => {
                self.count_again();
                let shortage = TooFewReplicas::new(acknowledged.cast_unsigned(), needed);
                let why = match self.demands_all_of_none() {
                    true => {
                        let (address, option) = (self.connector.address(), self.option());
                        format!(
                            "redis at {address} has no replicas, and `{option}` in the URL demands at least one"
                        )
                    }
                    false => format!("{shortage} within {}", shown(patience)),
                };
                Err(Error::unconfirmed(shortage, format!("{why}")).fix(format!("{}", self.remedy())))
            }
            // The fence that the script left is gone: so may be the rest.
            _ => Err(Error::unanswered("redis forgot a grant before its replicas had it").fix("try again")),
        }
    }

    /// An operator may have made the Sentinels forget one that is gone for good.
    fn count_again(&self) {
        if self.wanted == Replicas::All
            && let Some(sentinels) = self.connector.sentinels()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let sentinels = Arc::clone(sentinels);
            runtime.spawn(async move { sentinels.count_replicas().await });
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
        self.verify(name);
    }

    fn verify(&self, name: &Name) {
        self.0.upgrade().into_iter().for_each(|sink| sink.verify(name));
    }

    fn verify_all(&self) {
        self.0.upgrade().into_iter().for_each(|sink| sink.verify_all());
    }

    fn missed_grants(&self) {
        self.0.upgrade().into_iter().for_each(|sink| sink.missed_grants());
    }
}
