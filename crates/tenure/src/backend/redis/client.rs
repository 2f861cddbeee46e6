//! One server, as one session sees it: sends calls, and says what an answer or a silence means.
//!
//! A refusal is given back as the server said it. What it means depends on who asked: one server that says `MOVED` is not the one to use, and
//! a node of a cluster that says so is asked no longer, but another is.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};

use redis::{Cmd, RedisError, RedisResult, ServerError, Value};

use super::connect::Connector;
use super::ear::Ear;
use super::fault;
use super::hearing::Hearing;
use super::keys::Keys;
use super::link::{Line, Link, Listener};
use super::replicas::{Acknowledgement, Cautious};
use super::script::{self, Call};
use super::server::Server;
use super::subscription::Subscription;
use crate::backend::{Answer, Sink};
use crate::core::record::{Op, Reply};
use crate::time::clock::Clock;
use crate::types::error::Error;
use crate::types::owner::Session;

/// Who asks: what all clients of a session share, whatever server they are of.
pub(super) struct Asker {
    pub(super) session: Session,
    pub(super) keys: Keys,
    pub(super) clock: Clock,
    pub(super) sink: Weak<dyn Sink>,
    /// What hears of grants in place of the sink, where replicas must know of them first.
    cautious: Option<Arc<dyn Sink>>,
}

impl Asker {
    pub(super) fn new(
        session: Session,
        keys: Keys,
        clock: Clock,
        sink: Weak<dyn Sink>,
        is_cautious: bool,
    ) -> Arc<Self> {
        let cautious = is_cautious.then(|| Arc::new(Cautious(sink.clone())) as Arc<dyn Sink>);
        Arc::new(Asker { session, keys, clock, sink, cautious })
    }

    /// What hears of grants.
    pub(super) fn told(&self) -> Weak<dyn Sink> {
        self.cautious.as_ref().map_or_else(|| self.sink.clone(), Arc::downgrade)
    }
}

/// Why there is no answer.
pub(super) enum Failure {
    /// The server did not execute it, and said why.
    Refused(ServerError),
    Error(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Error(error)
    }
}

/// A client of one server.
pub(super) struct Client {
    pub(super) ear: Arc<Ear>,
    pub(super) link: Arc<Link>,
    /// Why grants can't be published.
    unpublished: OnceLock<String>,
}

impl Client {
    /// Connects. A server that need not be there at once is connected to as soon as it is.
    pub(super) async fn open(
        connector: Arc<Connector>,
        asker: Arc<Asker>,
        acknowledgement: Option<Acknowledgement>,
        must_be_there: bool,
    ) -> Result<Self, Error> {
        let hearing = Hearing::OfAll(Subscription::new(Arc::clone(&connector), &asker));
        let ear = Ear::new(asker, hearing, Weak::new(), acknowledgement);
        let listener: Arc<dyn Listener> = Arc::clone(&ear) as _;
        let link = Link::open(connector, listener, must_be_there).await?;
        Ok(Client { ear, link, unpublished: OnceLock::new() })
    }

    /// One that begins to connect.
    pub(super) fn begin(connector: Arc<Connector>, ear: Arc<Ear>) -> Self {
        let listener: Arc<dyn Listener> = Arc::clone(&ear) as _;
        Client { link: Link::begin(connector, listener), ear, unpublished: OnceLock::new() }
    }

    pub(super) fn asker(&self) -> &Asker {
        &self.ear.asker
    }

    pub(super) fn server(&self) -> Option<Arc<Server>> {
        self.ear.server()
    }

    /// The server's clock less ours, in µs.
    pub(super) fn offset(&self) -> Option<i64> {
        let offset = self.ear.offset.load(Ordering::Relaxed);
        (offset != i64::MIN).then_some(offset)
    }

    /// The server's clock, as its last answer showed it.
    pub(super) fn server_now(&self) -> Option<u64> {
        Some(self.asker().clock.now().as_micros().wrapping_add_signed(self.offset()?))
    }

    /// A release need not give back fences that the server's clock has passed: the next grant starts above them anyway.
    pub(super) fn keeping_fences(&self, mut op: Op) -> Op {
        if let Op::Release { used, .. } = &mut op
            && self.server_now().is_some_and(|now| *used <= now)
        {
            *used = u64::MAX;
        }
        op
    }

    /// What makes this server less fit to hold locks.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = self.server().map(|server| server.warnings()).unwrap_or_default();
        if let Some(error) = self.ear.hearing.refusal() {
            warnings.push(format!("waiters can't be told of their turn, and ask again and again: {error}"));
        }
        if let Some(why) = self.unpublished() {
            let verb = self.asker().keys.publishes_by();
            warnings.push(format!(
                "waiters can't be told of their turn ({why}); allow {verb} to channels of the prefix"
            ));
        }
        warnings
    }

    pub(super) fn unpublished(&self) -> Option<&String> {
        self.unpublished.get()
    }

    /// Removes what is remembered of a name that nobody holds or waits for: its last fence, and the trace of force.
    pub(super) async fn forget(&self, lock: &str) -> Result<(), Failure> {
        let mut line = self.link.line().await?;
        let [fence, queue, beats] = Keys::beside(lock).map(|key| key.to_string());
        let (mut used, mut del) = (Cmd::new(), Cmd::new());
        used.arg("EXISTS").arg(lock).arg(queue).arg(beats);
        del.arg("DEL").arg(fence).arg(Keys::broken(lock).to_string());
        match line.connection.send(&used).await {
            Ok(Value::Int(0)) => {}
            Ok(Value::ServerError(refusal)) => return Err(refused_on(&line, refusal)),
            Ok(_) => return Ok(()),
            Err(error) => return Err(self.broke(&error).into()),
        }
        match line.connection.send(&del).await {
            Ok(Value::ServerError(refusal)) => Err(refused_on(&line, refusal)),
            Ok(_) => Ok(()),
            Err(error) => Err(self.broke(&error).into()),
        }
    }

    /// Calls a script, which the server may not know any more.
    pub(super) async fn execute(&self, call: &Call) -> Result<Answer, Failure> {
        debug_assert!(call.is_within_its_token());
        let mut line = self.link.line().await?;
        if let Some(acknowledgement) = &self.ear.acknowledgement
            && call.ttl().is_some()
            && !call.is_renewal()
        {
            // Before it ends anyone's lease.
            acknowledgement.needed()?;
        }
        if call.is_renewal() || call.is_asking {
            // Boxed: these are few, and every future would have room for one.
            let answers = Box::pin(self.pipeline(&mut line, std::slice::from_ref(call))).await?;
            return answers.into_iter().next().unwrap_or_else(|| Err(fault::unexpected(&Value::Nil).into()));
        }
        let has_flags = line.server.knows_flags();
        let mut value = line.connection.send(&call.by_hash(has_flags)).await;
        if value.as_ref().is_ok_and(is_unknown) {
            value = line.connection.send(&call.whole(has_flags)).await;
        }
        let answer = self.answered(&line, value.map_err(|error| self.broke(&error))?)?;
        self.link.answered(call, &answer.reply);
        if let Some(acknowledgement) = &self.ear.acknowledgement
            && call.leases(&answer.reply)
        {
            Box::pin(acknowledgement.confirm(&line, call)).await?;
        }
        Ok(answer)
    }

    /// Calls scripts in one go.
    pub(super) async fn execute_all(&self, calls: &[Call]) -> Result<Vec<Result<Answer, Failure>>, Error> {
        debug_assert!(calls.iter().all(Call::is_within_its_token));
        let mut line = self.link.line().await?;
        self.pipeline(&mut line, calls).await
    }

    /// The same on this connection. A renewal has commands before it: the fence of a lease that is held for days lives on, and the server
    /// tells of changes to the lease's key.
    async fn pipeline(&self, line: &mut Line, calls: &[Call]) -> Result<Vec<Result<Answer, Failure>>, Error> {
        let (has_flags, is_tracked) = (line.server.knows_flags(), line.server.tracking_refused.is_none());
        let values = send(line, calls, |call| call.by_hash(has_flags), is_tracked).await;
        let values = values.map_err(|error| self.broke(&error))?;
        let are_unknown = values.iter().any(is_unknown);
        // One that is known by now is executed once more, which changes nothing.
        let values = match are_unknown {
            true => {
                let values = send(line, calls, |call| call.whole(has_flags), is_tracked).await;
                values.map_err(|error| self.broke(&error))?
            }
            false => values,
        };
        let mut answers: Vec<_> = values.into_iter().map(|value| self.answered(line, value)).collect();
        for (call, answer) in calls.iter().zip(&answers) {
            answer.iter().for_each(|answer| self.link.answered(call, &answer.reply));
        }
        if let Some(acknowledgement) = &self.ear.acknowledgement {
            let leases = |call: &Call, answer: &Result<Answer, Failure>| {
                answer.as_ref().is_ok_and(|answer| call.leases(&answer.reply))
            };
            // The last write stands behind all others.
            let last = calls.iter().zip(&answers).rfind(|(call, answer)| leases(call, answer));
            if let Some((last, _)) = last
                && let Err(error) = acknowledgement.confirm(line, last).await
            {
                let unknown = calls.iter().zip(&mut answers).filter(|(call, answer)| leases(call, answer));
                unknown.for_each(|(_, answer)| *answer = Err(error.clone().into()));
            }
        }
        Ok(answers)
    }

    /// The connection broke under a command.
    fn broke(&self, error: &RedisError) -> Error {
        fault::of_command(error, &self.link.connector.address())
    }

    /// What a refusal means where there is no other server to ask: of a command that uses the keys of this lock.
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

    pub(super) fn answered(&self, line: &Line, value: Value) -> Result<Answer, Failure> {
        if let Value::ServerError(refusal) = value {
            return Err(refused_on(line, refusal));
        }
        let (answer, unpublished) = script::answer(value)?;
        answer.server.into_iter().for_each(|server| self.ear.saw_time(server));
        if let Some(why) = unpublished {
            self.unpublished.get_or_init(|| {
                tracing::warn!(target: "tenure", %why, "redis does not let waiters be told of their turn");
                why
            });
        }
        match answer.reply {
            Reply::Ahead { by } => Err(fault::clock_behind(by, &self.link.connector.address()).into()),
            _ => Ok(answer),
        }
    }
}

/// A refusal that came by this connection. One that is read-only is not the master any more; who is, the next connection will tell.
fn refused_on(line: &Line, refusal: ServerError) -> Failure {
    if fault::is_read_only(&refusal) {
        line.leave();
    }
    Failure::Refused(refusal)
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
) -> RedisResult<Vec<Value>> {
    let has_flags = line.server.knows_flags();
    let mut commands = redis::Pipeline::with_capacity(3 * calls.len());
    let mut ends = Vec::with_capacity(calls.len());
    for call in calls {
        if call.is_renewal() {
            call.ask(&mut commands);
            commands.add_command(call.keep_fence(has_flags));
            // Each of the two is for the next command alone, and undone by the other.
            if is_tracked && !call.is_asking {
                commands.cmd("CLIENT").arg("CACHING").arg("YES");
            }
        }
        call.ask(&mut commands);
        commands.add_command(command(call));
        ends.push(commands.len() - 1);
    }
    let mut answers = line.connection.send_all(&commands).await?;
    Ok(ends.into_iter().map(|end| answers.get_mut(end).map_or(Value::Nil, std::mem::take)).collect())
}
