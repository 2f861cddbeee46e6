//! One server of Redis or Valkey: every operation is one script, and one round trip.
//!
//! The scripts are the transitions of [`record`](crate::core::record) in Lua. This side sends them and interprets the answers. It listens
//! for grants on the session's channel ([`subscription`]), and for changes to the keys of held leases on the connection for commands
//! ([`link`]). A message is a reason to verify a lease, and decides nothing.

mod access;
mod client;
pub(crate) mod cluster;
mod connect;
mod connection;
mod examine;
mod fault;
mod grant;
mod grant_listener;
mod greeting;
mod keys;
mod link;
mod listener;
mod pace;
mod replica_wait;
mod replicas;
mod scan;
mod script;
mod sentinel;
mod server;
mod subscription;
#[cfg(all(test, not(shuttle)))]
mod tests;
mod watcher;

use std::sync::{Arc, Weak};
use std::time::Duration;

use self::client::{ServerClient, SessionContext};
use self::connect::Connector;
use self::keys::Keys;
use self::replicas::RequiredReplicas;
use self::script::Call;
use super::{Admin, Answer, Backend, Capability, Component, Incarnation, Pending, Presence, Sink};
use crate::core::record::{Op, Reply, pause_behind};
use crate::time::clock::Clock;
use crate::types::error::Error;
use crate::types::finding::Finding;
use crate::types::name::Name;
use crate::types::owner::Session;
use crate::url::RedisUrl;

/// How old a lease is when the client starts to track its key: short leases cost nothing.
const TRACKED_AFTER: Duration = Duration::from_millis(10);
/// How many operations one pipeline has at most.
const PIPELINE: usize = 128;

/// One client of a server.
pub(crate) struct Redis(Arc<ServerClient>);

impl Redis {
    /// Connects to the server that the URL names, as this session. If the server need not be there, an unreachable one is not an error:
    /// the client connects later.
    pub(crate) fn open(
        url: &RedisUrl,
        timeout: Option<Duration>,
        clock: &Clock,
        sink: Weak<dyn Sink>,
        session: Session,
        presence: Presence,
    ) -> Pending<Arc<dyn Component>> {
        let connector = match Connector::new(url, timeout) {
            Ok(connector) => Arc::new(connector),
            Err(error) => return Pending::now(Err(error)),
        };
        let wanted = url.replicas().map(|wanted| RequiredReplicas::new(wanted, Arc::clone(&connector)));
        let keys = Keys::new(url.prefix()).remembering(url.fence_memory());
        let context = SessionContext::new(session, keys, clock.clone(), sink, wanted.is_some());
        Pending::Later(Box::pin(async move {
            let client = ServerClient::open(connector, context, wanted, presence).await?;
            Ok(Arc::new(Redis(Arc::new(client))) as Arc<dyn Component>)
        }))
    }
}

impl Backend for Redis {
    fn session(&self) -> &Session {
        &self.0.context().session
    }

    fn server_now(&self, _: &Name) -> Option<u64> {
        self.0.server_now()
    }

    fn execute(&self, name: &Name, op: Op) -> Pending<Answer> {
        if let Err(error) = self.session().check_process() {
            return Pending::now(Err(error));
        }
        let client = Arc::clone(&self.0);
        let op = client.keeping_fences(op);
        let ends_anothers_lease = matches!(op, Op::TakeOver { .. } | Op::Break { .. });
        let (call, name) = (Call::new(&client.context().keys, name, op), name.clone());
        Pending::Later(Box::pin(async move {
            let answer = client.execute(&call).await;
            let answer = answer.map_err(|failure| client.refused(failure, call.lock()))?;
            if let Reply::Waiting { ahead, .. } = answer.reply {
                client.listener.grants.want(&name, pause_behind(ahead));
            }
            // The server reports our changes to all clients except us.
            if ends_anothers_lease && let Some(sink) = client.context().sink.upgrade() {
                sink.verify(&name);
            }
            Ok(answer)
        }))
    }

    fn most_at_once(&self) -> usize {
        PIPELINE
    }

    fn execute_all(&self, operations: &[(Name, Op)]) -> Pending<Vec<Option<Result<Answer, Error>>>> {
        if let Err(error) = self.session().check_process() {
            return Pending::now(Err(error));
        }
        let client = Arc::clone(&self.0);
        let keys = &client.context().keys;
        let calls: Vec<_> = operations.iter().map(|(name, op)| Call::new(keys, name, op.clone())).collect();
        Pending::Later(Box::pin(async move {
            let answers = client.execute_all(&calls).await?.into_iter().zip(&calls);
            let refused = |(answer, call): (Result<_, _>, &Call)| {
                Some(answer.map_err(|failure| client.refused(failure, call.lock())))
            };
            Ok(answers.map(refused).collect())
        }))
    }

    fn list(&self, prefix: &str) -> Pending<Vec<Name>> {
        if let Err(error) = self.session().check_process() {
            return Pending::now(Err(error));
        }
        let (client, prefix) = (Arc::clone(&self.0), prefix.to_owned());
        Pending::Later(Box::pin(async move {
            let active = client.link.active().await?;
            let address = client.link.connector.address();
            scan::names(active.connection, &address, &client.context().keys, &prefix).await
        }))
    }

    fn polls(&self, name: &Name) -> bool {
        !self.0.listener.grants.is_listening(name)
    }

    fn connection(&self, _: &Name) -> u64 {
        self.0.link.number()
    }

    fn reconnects(&self) -> bool {
        true
    }

    fn verifies_after(&self) -> Option<Duration> {
        // A server that was never reached counts as one that reports losses: nothing asks again when it is there.
        let reports_losses = self.0.server().is_none_or(|server| server.tracking_refused.is_none());
        reports_losses.then_some(TRACKED_AFTER)
    }
}

impl Component for Redis {
    fn outage(&self) -> Option<Error> {
        self.0.link.outage()
    }

    fn incarnation(&self) -> Option<Incarnation> {
        self.0.listener.incarnation()
    }
}

impl Admin for Redis {
    fn called(&self) -> String {
        format!("redis at {}", self.0.link.connector.address())
    }

    fn capabilities(&self) -> &'static [Capability] {
        use Capability::{Detach, Fifo, Force, List, LossPush};
        match self.verifies_after() {
            Some(_) => &[Fifo, List, Detach, Force, LossPush],
            None => &[Fifo, List, Detach, Force],
        }
    }

    fn warnings(&self) -> Vec<String> {
        self.0.warnings()
    }

    fn examine(&self) -> Pending<Vec<Finding>> {
        if let Err(error) = self.session().check_process() {
            return Pending::now(Err(error));
        }
        Pending::Later(Box::pin(examine::examine(Arc::clone(&self.0))))
    }

    fn forget(&self, name: &Name) -> Pending<()> {
        if let Err(error) = self.session().check_process() {
            return Pending::now(Err(error));
        }
        let (client, lock) = (Arc::clone(&self.0), self.0.context().keys.lock(name));
        Pending::Later(Box::pin(async move {
            client.forget(&lock).await.map_err(|failure| client.refused(failure, &lock))
        }))
    }
}
