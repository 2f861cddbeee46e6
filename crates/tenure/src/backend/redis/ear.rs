//! What is heard on the connection of the commands, and what is known of the server at its other end.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::{PushInfo, PushKind, Value};

use super::client::Asker;
use super::cluster::router::Router;
use super::hearing::Hearing;
use super::link::Listener;
use super::replicas::Acknowledgement;
use super::server::Server;
use crate::backend::Incarnation;
use crate::sync::Mutex;
use crate::time::clock::Moment;

/// Hears of invalidations and of new connections.
pub(super) struct Ear {
    pub(super) asker: Arc<Asker>,
    pub(super) hearing: Hearing,
    /// Who knows which server is to be asked, where there are several.
    router: Weak<Router>,
    /// What replicas must do before a grant counts.
    pub(super) acknowledgement: Option<Acknowledgement>,
    /// The server that was last connected to.
    server: Mutex<Option<Arc<Server>>>,
    /// The same, and when that was; known before it is asked anything.
    met: Mutex<Option<(Arc<Server>, Moment)>>,
    /// The server's clock, less ours, in µs, as the last answer showed it; `MIN` before there was one.
    pub(super) offset: AtomicI64,
}

impl Ear {
    pub(super) fn new(
        asker: Arc<Asker>,
        hearing: Hearing,
        router: Weak<Router>,
        acknowledgement: Option<Acknowledgement>,
    ) -> Arc<Self> {
        let (server, met, offset) = (Mutex::new(None), Mutex::new(None), AtomicI64::new(i64::MIN));
        Arc::new(Ear { asker, hearing, router, acknowledgement, server, met, offset })
    }

    /// The server's clock was at this when it answered.
    pub(super) fn saw_time(&self, server: u64) {
        let now = self.asker.clock.now().as_micros();
        self.offset.store(server.wrapping_sub(now).cast_signed(), Ordering::Relaxed);
    }

    pub(super) fn server(&self) -> Option<Arc<Server>> {
        self.server.lock().clone()
    }

    /// The run of that server, and how old it is if it may have forgotten something before.
    pub(super) fn incarnation(&self) -> Option<Incarnation> {
        let (server, since) = self.met.lock().clone()?;
        let age = || match server.uptime {
            Some(uptime) => uptime + self.asker.clock.now().since(since),
            None => Duration::MAX,
        };
        Some(Incarnation { id: server.run_id.clone()?, age: (!server.keeps_all).then(age) })
    }
}

impl Listener for Ear {
    fn heard(&self, push: PushInfo) {
        if push.kind != PushKind::Invalidate {
            return;
        }
        let Some(sink) = self.asker.sink.upgrade() else { return };
        match &push.data[..] {
            [Value::Array(keys)] => {
                for key in keys {
                    if let Value::BulkString(key) = key
                        && let Some(name) =
                            std::str::from_utf8(key).ok().and_then(|key| self.asker.keys.name(key))
                    {
                        sink.verify(&name);
                    }
                }
            }
            // Everything was flushed.
            _ => sink.verify_all(),
        }
    }

    fn broke(&self) {
        self.router.upgrade().into_iter().for_each(|router| router.look_again());
    }

    fn meets(&self, server: &Arc<Server>) {
        *self.met.lock() = Some((Arc::clone(server), self.asker.clock.now()));
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
                self.hearing.reconnected(!server.is(&before));
                if let Some(sink) = self.asker.sink.upgrade() {
                    sink.verify_all();
                }
            }
        }
    }
}
