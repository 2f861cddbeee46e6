//! Listens on the connection for commands, and knows the server at its other end.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{PushInfo, PushKind, Value};

use super::client::SessionContext;
use super::cluster::router::Router;
use super::grant_listener::GrantListener;
use super::link::LinkEvents;
use super::replicas::RequiredReplicas;
use super::server::Server;
use crate::backend::Incarnation;
use crate::sync::Mutex;
use crate::time::clock::Moment;

/// Gets invalidations and new connections.
pub(super) struct ServerListener {
    pub(super) context: Arc<SessionContext>,
    pub(super) grants: GrantListener,
    /// Knows which node to ask, in a cluster.
    router: Weak<Router>,
    /// The replicas that must acknowledge a grant.
    pub(super) required: Option<RequiredReplicas>,
    /// The server of the last connection.
    server: Mutex<Option<Arc<Server>>>,
    /// The same, with the time of connecting; set before the first request.
    connected: Mutex<Option<(Arc<Server>, Moment)>>,
    /// The server's clock minus ours, in µs, by the last answer; `MIN` before the first one.
    pub(super) offset: AtomicI64,
}

impl ServerListener {
    pub(super) fn new(
        context: Arc<SessionContext>,
        grants: GrantListener,
        router: Weak<Router>,
        required: Option<RequiredReplicas>,
    ) -> Arc<Self> {
        let (server, connected, offset) = (Mutex::new(None), Mutex::new(None), AtomicI64::new(i64::MIN));
        Arc::new(ServerListener { context, grants, router, required, server, connected, offset })
    }

    /// Notes the server's clock at the time of an answer.
    pub(super) fn saw_time(&self, server: u64) {
        let now = self.context.clock.now().as_micros();
        self.offset.store(server.wrapping_sub(now).cast_signed(), Ordering::Relaxed);
    }

    pub(super) fn server(&self) -> Option<Arc<Server>> {
        self.server.lock().clone()
    }

    /// The incarnation of the server, and its age if it may have forgotten leases before.
    pub(super) fn incarnation(&self) -> Option<Incarnation> {
        let (server, since) = self.connected.lock().clone()?;
        let age = || match server.uptime {
            Some(uptime) => uptime + self.context.clock.now().since(since),
            None => Duration::MAX,
        };
        Some(Incarnation { id: server.run_id.clone()?, age: (!server.keeps_all).then(age) })
    }
}

impl LinkEvents for ServerListener {
    fn pushed(&self, push: PushInfo) {
        if push.kind != PushKind::Invalidate {
            return;
        }
        let Some(sink) = self.context.sink.upgrade() else { return };
        match &push.data[..] {
            [Value::Array(keys)] => {
                for key in keys {
                    if let Value::BulkString(key) = key
                        && let Some(name) =
                            std::str::from_utf8(key).ok().and_then(|key| self.context.keys.name(key))
                    {
                        sink.verify(&name);
                    }
                }
            }
            // All keys were flushed.
            _ => sink.verify_all(),
        }
    }

    fn broke(&self) {
        self.router.upgrade().into_iter().for_each(|router| router.refresh_map());
    }

    fn prepared(&self, server: &Arc<Server>) {
        *self.connected.lock() = Some((Arc::clone(server), self.context.clock.now()));
    }

    fn connected(&self, server: &Arc<Server>) {
        // So the first request can carry the time after which the server refuses it (rule 6 of waiting).
        if let Some(time) = server.time {
            self.saw_time(time);
        }
        if let (Some(required), Some(replicas)) = (&self.required, server.replicas) {
            required.saw(replicas);
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
                self.grants.reconnected(!server.is_same(&before));
                if let Some(sink) = self.context.sink.upgrade() {
                    sink.verify_all();
                }
            }
        }
    }
}
