//! A client of one server: sends calls, and interprets the answers.
//!
//! It returns a refusal in the server's words, because its meaning depends on the caller: with one server, `MOVED` means that the URL is
//! wrong; with a cluster, it means that another node has the name.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};

use redis::{Cmd, RedisError, RedisResult, ServerError, Value};

use super::connect::Connector;
use super::fault;
use super::grant_listener::GrantListener;
use super::keys::Keys;
use super::link::{ActiveConnection, Link, LinkEvents};
use super::listener::ServerListener;
use super::replicas::{RequiredReplicas, VerifyGrants};
use super::script::{self, Call};
use super::server::Server;
use super::subscription::Subscription;
use crate::backend::{Answer, Presence, Sink};
use crate::core::record::{Op, Reply};
use crate::time::clock::Clock;
use crate::types::error::Error;
use crate::types::owner::Session;

/// What all clients of a session share, whichever server they use.
pub(super) struct SessionContext {
    pub(super) session: Session,
    pub(super) keys: Keys,
    pub(super) clock: Clock,
    pub(super) sink: Weak<dyn Sink>,
    /// Gets the grants instead of the sink, if replicas must know of them first.
    verify_grants: Option<Arc<dyn Sink>>,
}

impl SessionContext {
    pub(super) fn new(
        session: Session,
        keys: Keys,
        clock: Clock,
        sink: Weak<dyn Sink>,
        must_verify_grants: bool,
    ) -> Arc<Self> {
        let verify_grants = must_verify_grants.then(|| Arc::new(VerifyGrants(sink.clone())) as Arc<dyn Sink>);
        Arc::new(SessionContext { session, keys, clock, sink, verify_grants })
    }

    /// The sink that gets the grants.
    pub(super) fn grant_sink(&self) -> Weak<dyn Sink> {
        self.verify_grants.as_ref().map_or_else(|| self.sink.clone(), Arc::downgrade)
    }
}

/// Why there is no answer.
pub(super) enum Failure {
    /// The server did not execute the request, and said why.
    Refused(ServerError),
    Error(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Error(error)
    }
}

/// A client of one server.
pub(super) struct ServerClient {
    pub(super) listener: Arc<ServerListener>,
    pub(super) link: Arc<Link>,
    /// Why the server does not let scripts publish grants.
    unpublished: OnceLock<String>,
}

impl ServerClient {
    /// Connects. If the server need not be there, an unreachable one is not an error: the client connects later.
    pub(super) async fn open(
        connector: Arc<Connector>,
        context: Arc<SessionContext>,
        required: Option<RequiredReplicas>,
        presence: Presence,
    ) -> Result<Self, Error> {
        let grants = GrantListener::OneChannel(Subscription::new(Arc::clone(&connector), &context));
        let listener = ServerListener::new(context, grants, Weak::new(), required);
        let events: Arc<dyn LinkEvents> = Arc::clone(&listener) as _;
        let link = Link::open(connector, events, presence).await?;
        Ok(ServerClient { listener, link, unpublished: OnceLock::new() })
    }

    /// Returns at once, and connects in the background.
    pub(super) fn begin(connector: Arc<Connector>, listener: Arc<ServerListener>) -> Self {
        let events: Arc<dyn LinkEvents> = Arc::clone(&listener) as _;
        ServerClient { link: Link::begin(connector, events), listener, unpublished: OnceLock::new() }
    }

    pub(super) fn context(&self) -> &SessionContext {
        &self.listener.context
    }

    pub(super) fn server(&self) -> Option<Arc<Server>> {
        self.listener.server()
    }

    /// The server's clock minus ours, in µs.
    pub(super) fn offset(&self) -> Option<i64> {
        let offset = self.listener.offset.load(Ordering::Relaxed);
        (offset != i64::MIN).then_some(offset)
    }

    /// The server's clock, by its last answer.
    pub(super) fn server_now(&self) -> Option<u64> {
        Some(self.context().clock.now().as_micros().wrapping_add_signed(self.offset()?))
    }

    /// Makes a release keep fences that the server's clock has passed: the next grant starts above them anyway.
    pub(super) fn keeping_fences(&self, mut op: Op) -> Op {
        if let Op::Release { used, .. } = &mut op
            && self.server_now().is_some_and(|now| *used <= now)
        {
            *used = u64::MAX;
        }
        op
    }

    /// Why this server is less fit to hold locks.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = self.server().map(|server| server.warnings()).unwrap_or_default();
        if let Some(error) = self.listener.grants.refusal() {
            warnings.push(format!("redis does not let waiters listen for grants, so they poll: {error}"));
        }
        if let Some(why) = self.unpublished() {
            let verb = self.context().keys.publishes_by();
            warnings.push(format!(
                "redis does not let scripts publish grants ({why}); allow {verb} to channels of the prefix"
            ));
        }
        warnings
    }

    pub(super) fn unpublished(&self) -> Option<&String> {
        self.unpublished.get()
    }

    /// Deletes the last fence of a name, and the trace of force, unless the name is held or waited for.
    pub(super) async fn forget(&self, lock: &str) -> Result<(), Failure> {
        let mut active = self.link.active().await?;
        let [fence, queue, heartbeats] = Keys::beside(lock).map(|key| key.to_string());
        let (mut used, mut del) = (Cmd::new(), Cmd::new());
        used.arg("EXISTS").arg(lock).arg(queue).arg(heartbeats);
        del.arg("DEL").arg(fence).arg(Keys::broken(lock).to_string());
        match active.connection.send(&used).await {
            Ok(Value::Int(0)) => {}
            Ok(Value::ServerError(refusal)) => return Err(refused_on(&active, refusal)),
            Ok(_) => return Ok(()),
            Err(error) => return Err(self.broke(&error).into()),
        }
        match active.connection.send(&del).await {
            Ok(Value::ServerError(refusal)) => Err(refused_on(&active, refusal)),
            Ok(_) => Ok(()),
            Err(error) => Err(self.broke(&error).into()),
        }
    }

    /// Calls a script, and sends it whole if the server does not know it.
    pub(super) async fn execute(&self, call: &Call) -> Result<Answer, Failure> {
        debug_assert!(call.is_within_its_token());
        let mut active = self.link.active().await?;
        if let Some(required) = &self.listener.required
            && call.ttl().is_some()
            && !call.is_renewal()
        {
            // Checked before the request ends the lease of another client.
            required.needed()?;
        }
        if call.is_renewal() || call.is_asking {
            // Boxed: these calls are rare, and every future would reserve space for them.
            let answers = Box::pin(self.pipeline(&mut active, std::slice::from_ref(call))).await?;
            return answers.into_iter().next().unwrap_or_else(|| Err(fault::unexpected(&Value::Nil).into()));
        }
        let has_flags = active.server.knows_flags();
        let mut value = active.connection.send(&call.by_hash(has_flags)).await;
        if value.as_ref().is_ok_and(is_unknown) {
            value = active.connection.send(&call.whole(has_flags)).await;
        }
        let answer = self.answered(&active, value.map_err(|error| self.broke(&error))?)?;
        self.link.answered(call, &answer.reply);
        if let Some(required) = &self.listener.required
            && call.leases(&answer.reply)
        {
            Box::pin(required.confirm(&active, call)).await?;
        }
        Ok(answer)
    }

    /// Calls scripts in one pipeline.
    pub(super) async fn execute_all(&self, calls: &[Call]) -> Result<Vec<Result<Answer, Failure>>, Error> {
        debug_assert!(calls.iter().all(Call::is_within_its_token));
        let mut active = self.link.active().await?;
        self.pipeline(&mut active, calls).await
    }

    /// The same on this connection. Two commands precede a renewal: one keeps the fence of a long lease, the other makes the server
    /// report changes to the lease's key.
    async fn pipeline(
        &self,
        active: &mut ActiveConnection,
        calls: &[Call],
    ) -> Result<Vec<Result<Answer, Failure>>, Error> {
        let (has_flags, is_tracked) = (active.server.knows_flags(), active.server.tracking_refused.is_none());
        let values = send(active, calls, |call| call.by_hash(has_flags), is_tracked).await;
        let values = values.map_err(|error| self.broke(&error))?;
        let are_unknown = values.iter().any(is_unknown);
        // A script that the server knows is executed twice, which changes nothing.
        let values = match are_unknown {
            true => {
                let values = send(active, calls, |call| call.whole(has_flags), is_tracked).await;
                values.map_err(|error| self.broke(&error))?
            }
            false => values,
        };
        let mut answers: Vec<_> = values.into_iter().map(|value| self.answered(active, value)).collect();
        for (call, answer) in calls.iter().zip(&answers) {
            answer.iter().for_each(|answer| self.link.answered(call, &answer.reply));
        }
        if let Some(required) = &self.listener.required {
            let leases = |call: &Call, answer: &Result<Answer, Failure>| {
                answer.as_ref().is_ok_and(|answer| call.leases(&answer.reply))
            };
            // Replicas that have the last write have all earlier ones.
            let last = calls.iter().zip(&answers).rfind(|(call, answer)| leases(call, answer));
            if let Some((last, _)) = last
                && let Err(error) = required.confirm(active, last).await
            {
                let unknown = calls.iter().zip(&mut answers).filter(|(call, answer)| leases(call, answer));
                unknown.for_each(|(_, answer)| *answer = Err(error.clone().into()));
            }
        }
        Ok(answers)
    }

    /// The connection broke before the answer to a command.
    fn broke(&self, error: &RedisError) -> Error {
        fault::of_command(error, &self.link.connector.address())
    }

    /// The error for a refusal of a command on this lock, if no other server can be asked.
    pub(super) fn refused(&self, failure: Failure, lock: &str) -> Error {
        let refusal = match failure {
            Failure::Refused(refusal) => refusal,
            Failure::Error(error) => return error,
        };
        if fault::is_read_only(&refusal) && self.link.connector.has_successors() {
            return self.link.connector.demoted();
        }
        fault::refused_for(&refusal, &self.link.connector.address(), lock)
    }

    pub(super) fn answered(&self, active: &ActiveConnection, value: Value) -> Result<Answer, Failure> {
        if let Value::ServerError(refusal) = value {
            return Err(refused_on(active, refusal));
        }
        let (answer, unpublished) = script::answer(value)?;
        answer.server.into_iter().for_each(|server| self.listener.saw_time(server));
        if let Some(why) = unpublished {
            self.unpublished.get_or_init(|| {
                tracing::warn!(target: "tenure", %why, "redis does not let scripts publish grants");
                why
            });
        }
        match answer.reply {
            Reply::Ahead { by } => Err(fault::clock_behind(by, &self.link.connector.address()).into()),
            _ => Ok(answer),
        }
    }
}

/// A refusal on this connection. A read-only server is not the master any more, so the connection is replaced.
fn refused_on(active: &ActiveConnection, refusal: ServerError) -> Failure {
    if fault::is_read_only(&refusal) {
        active.leave();
    }
    Failure::Refused(refusal)
}

fn is_unknown(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.code() == "NOSCRIPT")
}

/// Sends the commands of calls. Returns the answer of each script.
async fn send(
    active: &mut ActiveConnection,
    calls: &[Call],
    command: impl Fn(&Call) -> Cmd,
    is_tracked: bool,
) -> RedisResult<Vec<Value>> {
    let has_flags = active.server.knows_flags();
    let mut commands = redis::Pipeline::with_capacity(3 * calls.len());
    let mut ends = Vec::with_capacity(calls.len());
    for call in calls {
        if call.is_renewal() {
            call.ask(&mut commands);
            commands.add_command(call.keep_fence(has_flags));
            // ASKING and CACHING are each for the next command alone, and each cancels the other.
            if is_tracked && !call.is_asking {
                commands.cmd("CLIENT").arg("CACHING").arg("YES");
            }
        }
        call.ask(&mut commands);
        commands.add_command(command(call));
        ends.push(commands.len() - 1);
    }
    let mut answers = active.connection.send_all(&commands).await?;
    Ok(ends.into_iter().map(|end| answers.get_mut(end).map_or(Value::Nil, std::mem::take)).collect())
}
