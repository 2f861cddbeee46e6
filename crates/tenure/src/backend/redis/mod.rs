//! One server of Redis or Valkey: every operation is one script, and one round trip.
//!
//! The scripts are the transitions of [`record`](crate::record) in Lua. This side sends them, tells what an answer or a silence means,
//! and listens: for grants, on the session's channel ([`subscription`]), and for changes to the keys of held leases, on the
//! connection of the commands ([`link`]). What it hears is a reason to verify, never a verdict.

mod connect;
mod examine;
mod fault;
mod keys;
mod link;
mod replicas;
mod scan;
mod script;
mod sentinel;
mod server;
mod subscription;
#[cfg(all(test, not(shuttle)))]
mod tests;
mod watcher;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use redis::{Cmd, PushInfo, PushKind, ServerError, Value};

use self::connect::Connector;
use self::keys::Keys;
use self::link::{Line, Link, Listener};
use self::replicas::{Acknowledgement, Cautious};
use self::script::Call;
use self::server::Server;
use self::subscription::Subscription;
use super::{Answer, Backend, Capability, Pending, Run, Sink};
use crate::clock::{Clock, Moment};
use crate::error::Error;
use crate::finding::Finding;
use crate::name::Name;
use crate::owner::Session;
use crate::record::{Op, Reply};
use crate::sync::Mutex;
use crate::url::RedisUrl;

/// How old a lease gets before its key is tracked: short ones pay nothing.
const TRACKED_AFTER: Duration = Duration::from_millis(10);
/// How many operations go out as one pipeline.
const PIPELINE: usize = 128;

/// One client of a server.
pub(crate) struct Redis(Arc<Client>);

struct Client {
    session: Session,
    ear: Arc<Ear>,
    link: Arc<Link>,
    /// What hears of grants in place of the sink, where replicas must know of them first.
    _cautious: Option<Arc<dyn Sink>>,
    /// Why grants can't be published.
    unpublished: OnceLock<String>,
}

impl Redis {
    /// Connects to the server that the URL names, as this session. One that need not be there at once is connected to as soon as it is.
    pub(crate) fn open(
        url: &RedisUrl,
        timeout: Option<Duration>,
        clock: &Clock,
        sink: Weak<dyn Sink>,
        session: Session,
        must_be_there: bool,
    ) -> Pending<Arc<dyn Backend>> {
        let connector = match Connector::new(url, timeout) {
            Ok(connector) => Arc::new(connector),
            Err(error) => return Pending::now(Err(error)),
        };
        let (keys, clock) = (Arc::new(Keys::new(url.prefix())), clock.clone());
        let wanted = url.replicas().map(|wanted| Acknowledgement::new(wanted, Arc::clone(&connector)));
        Pending::Later(Box::pin(async move {
            let redis = Redis::connect(connector, keys, clock, sink, session, wanted, must_be_there).await?;
            Ok(Arc::new(redis) as Arc<dyn Backend>)
        }))
    }

    async fn connect(
        connector: Arc<Connector>,
        keys: Arc<Keys>,
        clock: Clock,
        sink: Weak<dyn Sink>,
        session: Session,
        acknowledgement: Option<Acknowledgement>,
        must_be_there: bool,
    ) -> Result<Self, Error> {
        let (theirs, ours) = (Arc::clone(&connector), Arc::clone(&keys));
        let cautious = acknowledgement.is_some().then(|| Arc::new(Cautious(sink.clone())) as Arc<dyn Sink>);
        let told = cautious.as_ref().map_or_else(|| sink.clone(), Arc::downgrade);
        let subscription = Subscription::new(theirs, ours, session.id(), told);
        let (offset, server, met) = (AtomicI64::new(i64::MIN), Mutex::new(None), Mutex::new(None));
        let ear = Arc::new(Ear { keys, sink, subscription, acknowledgement, server, met, clock, offset });
        let listener: Arc<dyn Listener> = Arc::clone(&ear) as _;
        let link = Link::open(connector, listener, must_be_there).await?;
        Ok(Redis(Arc::new(Client { session, ear, link, _cautious: cautious, unpublished: OnceLock::new() })))
    }

    fn server(&self) -> Option<Arc<Server>> {
        self.0.ear.server()
    }

    /// A release need not give back fences that the server's clock has passed: the next grant starts above them anyway.
    fn keeping_fences(&self, mut op: Op) -> Op {
        if let Op::Release { used, .. } = &mut op
            && self.server_now().is_some_and(|now| *used <= now)
        {
            *used = u64::MAX;
        }
        op
    }
}

impl Backend for Redis {
    fn session(&self) -> &Session {
        &self.0.session
    }

    fn server_now(&self) -> Option<u64> {
        let offset = self.0.ear.offset.load(Ordering::Relaxed);
        (offset != i64::MIN).then(|| self.0.ear.clock.now().as_micros().wrapping_add_signed(offset))
    }

    fn execute(&self, name: &Name, op: Op) -> Pending<Answer> {
        if let Err(error) = self.0.session.check_process() {
            return Pending::now(Err(error));
        }
        let client = Arc::clone(&self.0);
        let op = self.keeping_fences(op);
        let ends_anothers_lease = matches!(op, Op::TakeOver { .. } | Op::Break { .. });
        let (call, name) = (Call::new(&client.ear.keys, name, op), name.clone());
        Pending::Later(Box::pin(async move {
            let answer = client.execute(&call).await?;
            if let Reply::Waiting { .. } = answer.reply {
                client.ear.subscription.want();
            }
            // The server tells everyone but us of our own changes.
            if ends_anothers_lease && let Some(sink) = client.ear.sink.upgrade() {
                sink.doubt(&name);
            }
            Ok(answer)
        }))
    }

    fn most_at_once(&self) -> usize {
        PIPELINE
    }

    fn execute_all(&self, operations: &[(Name, Op)]) -> Pending<Vec<Result<Answer, Error>>> {
        if let Err(error) = self.0.session.check_process() {
            return Pending::now(Err(error));
        }
        let client = Arc::clone(&self.0);
        let keys = &client.ear.keys;
        let calls: Vec<_> = operations.iter().map(|(name, op)| Call::new(keys, name, op.clone())).collect();
        Pending::Later(Box::pin(async move { client.execute_all(&calls).await }))
    }

    fn list(&self, prefix: &str) -> Pending<Vec<Name>> {
        if let Err(error) = self.0.session.check_process() {
            return Pending::now(Err(error));
        }
        let (client, prefix) = (Arc::clone(&self.0), prefix.to_owned());
        Pending::Later(Box::pin(async move {
            let line = client.link.line().await?;
            scan::names(line.connection, &client.ear.keys, &prefix).await
        }))
    }

    fn polls(&self) -> bool {
        !self.0.ear.subscription.stands()
    }

    fn connection(&self) -> u64 {
        self.0.link.number()
    }

    fn outage(&self) -> Option<Error> {
        self.0.link.outage()
    }

    fn run(&self) -> Option<Run> {
        let (server, since) = self.0.ear.met.lock().clone()?;
        let age = || match server.uptime {
            Some(uptime) => uptime + self.0.ear.clock.now().since(since),
            None => Duration::MAX,
        };
        Some(Run { id: server.run_id.clone()?, age: (!server.keeps_all).then(age) })
    }

    fn verifies_after(&self) -> Option<Duration> {
        let is_told = self.server().is_some_and(|server| server.tracking_refused.is_none());
        is_told.then_some(TRACKED_AFTER)
    }

    fn capabilities(&self) -> &'static [Capability] {
        use Capability::{Detach, Fifo, Force, List, LossPush};
        match self.verifies_after() {
            Some(_) => &[Fifo, List, Detach, Force, LossPush],
            None => &[Fifo, List, Detach, Force],
        }
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.server().map(|server| server.warnings()).unwrap_or_default();
        if let Some(error) = self.0.ear.subscription.refusal() {
            warnings.push(format!("waiters can't be told of their turn, and ask again and again: {error}"));
        }
        if let Some(why) = self.0.unpublished.get() {
            warnings.push(format!(
                "waiters can't be told of their turn ({why}); allow PUBLISH to channels of the prefix"
            ));
        }
        warnings
    }

    fn examine(&self) -> Pending<Vec<Finding>> {
        if let Err(error) = self.0.session.check_process() {
            return Pending::now(Err(error));
        }
        Pending::Later(Box::pin(examine::examine(Arc::clone(&self.0))))
    }

    fn forget(&self, name: &Name) -> Pending<()> {
        if let Err(error) = self.0.session.check_process() {
            return Pending::now(Err(error));
        }
        let (client, lock) = (Arc::clone(&self.0), self.0.ear.keys.lock(name));
        Pending::Later(Box::pin(async move { client.forget(&lock).await }))
    }
}

impl Client {
    /// Removes what is remembered of a name that nobody holds or waits for: its last fence, and the trace of force.
    async fn forget(&self, lock: &str) -> Result<(), Error> {
        let mut line = self.link.line().await?;
        let [fence, queue, beats] = Keys::beside(lock).map(|key| key.to_string());
        let (mut used, mut del) = (Cmd::new(), Cmd::new());
        used.arg("EXISTS").arg(lock).arg(queue).arg(beats);
        del.arg("DEL").arg(fence).arg(Keys::broken(lock).to_string());
        match line.connection.send_packed_command(&used).await {
            Ok(Value::Int(0)) => {}
            Ok(Value::ServerError(refusal)) => return Err(self.refused(&refusal)),
            Ok(_) => return Ok(()),
            Err(error) => return Err(fault::of_command(&error)),
        }
        match line.connection.send_packed_command(&del).await {
            Ok(Value::ServerError(refusal)) => Err(self.refused(&refusal)),
            Ok(_) => Ok(()),
            Err(error) => Err(fault::of_command(&error)),
        }
    }

    /// Calls a script, which the server may not know any more.
    async fn execute(&self, call: &Call) -> Result<Answer, Error> {
        let mut line = self.link.line().await?;
        let has_flags = line.server.knows_flags();
        if call.is_renewal() {
            // Boxed: renewals are few, and every future would have room for one.
            let answers = Box::pin(self.pipeline(&mut line, std::slice::from_ref(call))).await?;
            return answers.into_iter().next().unwrap_or_else(|| Err(fault::unexpected(&Value::Nil)));
        }
        let mut value = line.connection.send_packed_command(&call.by_hash(has_flags)).await;
        if value.as_ref().is_ok_and(is_unknown) {
            value = line.connection.send_packed_command(&call.whole(has_flags)).await;
        }
        let answer = self.answered(value.map_err(|error| fault::of_command(&error))?)?;
        if let Some(acknowledgement) = &self.ear.acknowledgement
            && call.leases(&answer.reply)
        {
            Box::pin(acknowledgement.confirm(&mut line, call)).await?;
        }
        Ok(answer)
    }

    /// Calls scripts in one go.
    async fn execute_all(&self, calls: &[Call]) -> Result<Vec<Result<Answer, Error>>, Error> {
        let mut line = self.link.line().await?;
        self.pipeline(&mut line, calls).await
    }

    /// The same on this connection. A renewal has commands before it: the fence of a lease that is held for days lives on, and the server
    /// tells of changes to the lease's key.
    async fn pipeline(&self, line: &mut Line, calls: &[Call]) -> Result<Vec<Result<Answer, Error>>, Error> {
        let (has_flags, is_tracked) = (line.server.knows_flags(), line.server.tracking_refused.is_none());
        let values = send(line, calls, |call| call.by_hash(has_flags), is_tracked).await?;
        let are_unknown = values.iter().any(is_unknown);
        // One that is known by now is executed once more, which changes nothing.
        let values = match are_unknown {
            true => send(line, calls, |call| call.whole(has_flags), is_tracked).await?,
            false => values,
        };
        let mut answers: Vec<_> = values.into_iter().map(|value| self.answered(value)).collect();
        if let Some(acknowledgement) = &self.ear.acknowledgement {
            let leases = |call: &Call, answer: &Result<Answer, Error>| {
                answer.as_ref().is_ok_and(|answer| call.leases(&answer.reply))
            };
            // The last write stands behind all others.
            let last = calls.iter().zip(&answers).rfind(|(call, answer)| leases(call, answer));
            if let Some((last, _)) = last
                && let Err(error) = acknowledgement.confirm(line, last).await
            {
                let unknown = calls.iter().zip(&mut answers).filter(|(call, answer)| leases(call, answer));
                unknown.for_each(|(_, answer)| *answer = Err(error.clone()));
            }
        }
        Ok(answers)
    }

    fn refused(&self, refusal: &ServerError) -> Error {
        if refusal.code() == "READONLY" {
            // It is not the master any more; who is, the next connection will tell.
            self.link.drop_connection();
            if self.link.connector.has_successors() {
                return self.link.connector.demoted();
            }
        }
        fault::refused(refusal)
    }

    fn answered(&self, value: Value) -> Result<Answer, Error> {
        if let Value::ServerError(refusal) = &value {
            return Err(self.refused(refusal));
        }
        let (answer, unpublished) = script::answer(value)?;
        answer.server.into_iter().for_each(|server| self.ear.saw_time(server));
        if let Some(why) = unpublished {
            self.unpublished.get_or_init(|| {
                tracing::warn!(target: "tenure", %why, "redis does not let waiters be told of their turn");
                why
            });
        }
        Ok(answer)
    }
}

fn is_unknown(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.code() == "NOSCRIPT")
}

/// Sends the commands of calls; returns what each script answered.
async fn send(
    line: &mut Line,
    calls: &[Call],
    command: impl Fn(&Call) -> Cmd,
    is_tracked: bool,
) -> Result<Vec<Value>, Error> {
    let mut commands = redis::Pipeline::with_capacity(3 * calls.len());
    let mut ends = Vec::with_capacity(calls.len());
    for call in calls {
        if call.is_renewal() {
            commands.add_command(call.keep_fence());
            if is_tracked {
                commands.cmd("CLIENT").arg("CACHING").arg("YES");
            }
        }
        commands.add_command(command(call));
        ends.push(commands.len() - 1);
    }
    let answers = line.connection.send_packed_commands(&commands, 0, commands.len()).await;
    let mut answers = answers.map_err(|error| fault::of_command(&error))?;
    Ok(ends.into_iter().map(|end| answers.get_mut(end).map_or(Value::Nil, std::mem::take)).collect())
}

/// What is heard on the connection of the commands.
struct Ear {
    keys: Arc<Keys>,
    sink: Weak<dyn Sink>,
    subscription: Arc<Subscription>,
    /// What replicas must do before a grant counts.
    acknowledgement: Option<Acknowledgement>,
    /// The server that was last connected to.
    server: Mutex<Option<Arc<Server>>>,
    /// The same, and when that was; known before it is asked anything.
    met: Mutex<Option<(Arc<Server>, Moment)>>,
    clock: Clock,
    /// The server's clock, less ours, in µs, as the last answer showed it; `MIN` before there was one.
    offset: AtomicI64,
}

impl Ear {
    /// The server's clock was at this when it answered.
    fn saw_time(&self, server: u64) {
        let now = self.clock.now().as_micros();
        self.offset.store(server.wrapping_sub(now).cast_signed(), Ordering::Relaxed);
    }

    fn server(&self) -> Option<Arc<Server>> {
        self.server.lock().clone()
    }
}

impl Listener for Ear {
    fn heard(&self, push: PushInfo) {
        if push.kind != PushKind::Invalidate {
            return;
        }
        let Some(sink) = self.sink.upgrade() else { return };
        match &push.data[..] {
            [Value::Array(keys)] => {
                for key in keys {
                    if let Value::BulkString(key) = key
                        && let Some(name) = std::str::from_utf8(key).ok().and_then(|key| self.keys.name(key))
                    {
                        sink.doubt(&name);
                    }
                }
            }
            // Everything was flushed.
            _ => sink.doubt_all(),
        }
    }

    fn meets(&self, server: &Arc<Server>) {
        *self.met.lock() = Some((Arc::clone(server), self.clock.now()));
    }

    fn connected(&self, server: &Arc<Server>) {
        // Also the first request on a connection can say when it is too late to be executed (rule 6 of waiting).
        if let Some(time) = server.time {
            self.saw_time(time);
        }
        if let (Some(acknowledgement), Some(replicas)) = (&self.acknowledgement, server.replicas) {
            acknowledgement.saw(replicas);
        }
        let before = self.server.lock().replace(Arc::clone(server));
        match before {
            None => {
                tracing::debug!(target: "tenure", server = server.description(), "connected to redis");
                for warning in server.warnings() {
                    tracing::warn!(target: "tenure", "{warning}");
                }
            }
            Some(before) => {
                tracing::info!(target: "tenure", server = server.description(), "connected to redis again");
                self.subscription.reconnected(!server.is(&before));
                if let Some(sink) = self.sink.upgrade() {
                    sink.doubt_all();
                }
            }
        }
    }
}
