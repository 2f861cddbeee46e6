//! `?replicas=N|all`: a grant or a renewal counts when this many replicas have acknowledged it.
//!
//! [`replica_wait`](super::replica_wait) waits for them. If too few replicas acknowledge, the result is unknown, and nothing is undone
//! here: the caller repeats the request with the same token until the deadline, and releases the lease if it gives up. Releasing it here
//! could end a later grant to the same token.
//!
//! *All* replicas are those that the Sentinels know of, also those that are down: any of them may be promoted when it is back, even
//! before it has caught up. Without Sentinel only the server knows how many there are, and it forgets replicas that are away; so *all* is
//! the highest number that it ever had.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{RedisResult, Value};

use super::connect::Connector;
use super::fault;
use super::link::ActiveConnection;
use super::replica_wait::ReplicaWait;
use super::script::Call;
use super::server::{field, string};
use crate::backend::{Grant, Sink};
use crate::sync::Mutex;
use crate::types::duration::shown;
use crate::types::error::{Error, ErrorKind};
use crate::types::name::Name;
use crate::types::replicas::TooFewReplicas;
use crate::url::Replicas;

/// How many replicas must acknowledge, and how many there are.
pub(super) struct RequiredReplicas {
    wanted: Replicas,
    connector: Arc<Connector>,
    /// The highest number of replicas since this client was opened; with Sentinel, the current number.
    seen: AtomicU64,
    replica_wait: Mutex<Option<Arc<ReplicaWait>>>,
}

impl RequiredReplicas {
    pub(super) fn new(wanted: Replicas, connector: Arc<Connector>) -> Self {
        RequiredReplicas { wanted, connector, seen: AtomicU64::new(0), replica_wait: Mutex::default() }
    }

    /// Notes how many replicas the master has.
    pub(super) fn saw(&self, replicas: u64) {
        match self.connector.sentinels() {
            Some(_) => self.seen.store(replicas, Ordering::Release),
            None => drop(self.seen.fetch_max(replicas, Ordering::AcqRel)),
        }
    }

    /// How many must acknowledge. At least one: *all of none* would promise nothing. *All* of an unknown number is an error: the master
    /// counts only connected replicas, and another one may be promoted.
    pub(super) fn needed(&self) -> Result<u64, Error> {
        if let Replicas::AtLeast(number) = self.wanted {
            return Ok(u64::from(number.get()));
        }
        self.known().map(|known| known.max(1)).ok_or_else(|| self.uncounted())
    }

    /// How many replicas there are, if that is known.
    fn known(&self) -> Option<u64> {
        let known = self.connector.sentinels().map_or(Some(0), |sentinels| sentinels.replicas())?;
        Some(self.seen.load(Ordering::Acquire).max(known))
    }

    /// Whether the URL demands all replicas of a server that has none.
    pub(super) fn demands_all_of_none(&self) -> bool {
        self.wanted == Replicas::All && self.known() == Some(0)
    }

    /// The option as the URL has it.
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
        Error::new(
            ErrorKind::Denied,
            "no sentinel says how many replicas there are, which `replicas=all` needs",
        )
        .fix(fix)
    }

    /// Returns when enough replicas have what the call wrote, and the server answered on this connection. After an error that is unknown.
    pub(super) async fn confirm(&self, active: &ActiveConnection, call: &Call) -> Result<(), Error> {
        // A caller that comes just after another waits twice this long, which is less than a request may take.
        let patience = call.ttl().map_or(Duration::MAX, |ttl| ttl / 10).min(self.connector.timeout / 4);
        let millis = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX).max(1);
        loop {
            let asked = self.needed().map_err(Error::half_way)?;
            let mut waiting = redis::pipe();
            call.ask(&mut waiting);
            waiting.add_command(call.keep_fence_by_a_write(active.server.knows_flags()));
            waiting.cmd("WAIT").arg(asked).arg(millis);
            if self.wanted == Replicas::All {
                waiting.cmd("INFO").arg("replication");
            }
            let asking = usize::from(call.is_asking);
            let outcome = |answers| self.outcome(answers, asking, patience);
            let outcome =
                self.replica_wait(active).ask(active, &self.connector, patience, &waiting, outcome).await;
            // There are more replicas than this waited for.
            let is_more = |short: &TooFewReplicas| short.needed() > asked && short.acknowledged() >= asked;
            if !outcome.as_ref().is_err_and(|error| error.too_few_replicas().is_some_and(is_more)) {
                return outcome;
            }
        }
    }

    fn replica_wait(&self, active: &ActiveConnection) -> Arc<ReplicaWait> {
        let mut replica_wait = self.replica_wait.lock();
        match &*replica_wait {
            Some(replica_wait) if replica_wait.is_for(active) => Arc::clone(replica_wait),
            _ => Arc::clone(replica_wait.insert(Arc::new(ReplicaWait::new(Arc::clone(&active.server))))),
        }
    }

    fn outcome(
        &self,
        answers: RedisResult<Vec<Value>>,
        asking: usize,
        patience: Duration,
    ) -> Result<(), Error> {
        // The server executed the script, whatever fails after it; also if the fence is moving to another node.
        let answers =
            answers.map_err(|error| fault::of_command(&error, &self.connector.address()).half_way())?;
        let is_refusal = |answer: &&Value| matches!(answer, Value::ServerError(_));
        if let Some(Value::ServerError(refusal)) = answers.iter().find(is_refusal) {
            let error = fault::refused(refusal, &self.connector.address());
            let passes = error.is_transient() || ["MOVED", "ASK"].contains(&refusal.code());
            return Err(if passes { unanswered(&error) } else { error.half_way() });
        }
        let answers = answers.get(asking..).unwrap_or_default();
        let replicas = answers.get(2).and_then(string).and_then(connected);
        replicas.into_iter().for_each(|replicas| self.saw(replicas));
        let needed = self.needed().map_err(Error::half_way)?;
        match answers {
            [Value::Int(1), Value::Int(acknowledged), ..] if acknowledged.cast_unsigned() >= needed => Ok(()),
            [Value::Int(1), Value::Int(acknowledged), ..] => {
                self.count_again();
                let too_few = TooFewReplicas::new(acknowledged.cast_unsigned(), needed);
                let what = match self.demands_all_of_none() {
                    true => {
                        let (address, option) = (self.connector.address(), self.option());
                        format!(
                            "redis at {address} has no replicas, and `{option}` in the URL demands at least one"
                        )
                    }
                    false => format!("{too_few} within {}", shown(patience)),
                };
                Err(Error::unconfirmed(too_few, what).fix(self.remedy()))
            }
            // The fence that the script wrote is gone, and so may be the lease.
            _ => Err(Error::unanswered("redis forgot a grant before its replicas had it").fix("try again")),
        }
    }

    /// An operator may have made the Sentinels forget a replica that is gone for good.
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

/// The same refusal, for a request that the server may have executed.
fn unanswered(error: &Error) -> Error {
    let same = Error::unanswered(error.what());
    let same = error.reason().into_iter().fold(same, Error::because);
    error.remedy().into_iter().fold(same, Error::fix)
}

/// How many replicas a master has, by its `INFO`.
pub(super) fn connected(info: &str) -> Option<u64> {
    field(info, "connected_slaves")?.parse().ok()
}

/// Turns a pushed grant into a reason to verify: another client made the grant, and perhaps no replica knows of it.
pub(super) struct VerifyGrants(pub(super) Weak<dyn Sink>);

impl Sink for VerifyGrants {
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
