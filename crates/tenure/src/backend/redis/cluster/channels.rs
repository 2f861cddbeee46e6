//! Listens for the grants of one node's names: one channel in the slot of each name with a waiter, all on one connection.
//!
//! The server's messages (`ssubscribe`, `sunsubscribe`) decide which channels are subscribed, and not the answers to requests. When a
//! slot moves away, the server unsubscribes by itself, and the driver takes that for the answer to the last request. For the same reason
//! this connection carries only subscriptions and the heartbeat. When a channel is gone, its waiters wake, ask the node that has the slot
//! now, and subscribe there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use redis::{PushInfo, PushKind, Value};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::super::client::SessionContext;
use super::super::connect::Connector;
use super::super::grant;
use super::channels_task::ChannelsTask;
use super::router::Router;
use crate::sync::Mutex;
use crate::types::error::Error;
use crate::types::name::Name;

/// How long a channel outlives its last waiter.
const LINGER: Duration = Duration::from_secs(10);
/// How many channels one pipeline subscribes to.
pub(super) const AT_ONCE: usize = 128;

/// The channels of one session at one node.
pub(in super::super) struct Channels {
    pub(super) connector: Arc<Connector>,
    context: Arc<SessionContext>,
    router: Weak<Router>,
    /// The node's number.
    node: u64,
    state: Mutex<ChannelsState>,
}

#[derive(Default)]
struct ChannelsState {
    channels: HashMap<String, Channel>,
    /// A task maintains the connection.
    is_listening: bool,
    signal: Option<Arc<ChannelsSignal>>,
    /// Why the server refuses subscriptions.
    refusal: Option<Error>,
}

struct Channel {
    name: Name,
    /// When the last waiter sends its next request.
    next_request: Instant,
    phase: ChannelPhase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ChannelPhase {
    Wanted,
    Requested,
    Subscribed,
}

/// Wakes the task of the connection.
#[derive(Default)]
pub(super) struct ChannelsSignal {
    pub(super) notify: Notify,
    pub(super) is_broken: AtomicBool,
}

impl ChannelsSignal {
    pub(super) fn broke(&self) {
        self.is_broken.store(true, Ordering::Release);
        self.notify.notify_one();
    }
}

/// The subscriptions to change.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) wanted: Vec<String>,
    pub(super) idle: Vec<String>,
}

impl Channels {
    pub(super) fn new(
        connector: Arc<Connector>,
        context: Arc<SessionContext>,
        router: Weak<Router>,
        node: u64,
    ) -> Arc<Self> {
        Arc::new(Channels { connector, context, router, node, state: Mutex::default() })
    }

    fn channel(&self, name: &Name) -> String {
        self.context.keys.channel(self.context.session.id(), &self.context.keys.lock(name))
    }

    pub(in super::super) fn is_subscribed(&self, name: &Name) -> bool {
        let channel = self.channel(name);
        let state = self.state.lock();
        state.channels.get(&channel).is_some_and(|channel| channel.phase == ChannelPhase::Subscribed)
    }

    pub(in super::super) fn refusal(&self) -> Option<Error> {
        self.state.lock().refusal.clone()
    }

    pub(in super::super) fn want(self: &Arc<Self>, name: &Name, pause: Duration) {
        let (channel, next_request) = (self.channel(name), Instant::now() + pause);
        let mut state = self.state.lock();
        if state.refusal.is_some() {
            return;
        }
        if let Some(known) = state.channels.get_mut(&channel) {
            known.next_request = next_request;
        } else {
            let wanted = Channel { name: name.clone(), next_request, phase: ChannelPhase::Wanted };
            state.channels.insert(channel, wanted);
            state.signal.iter().for_each(|signal| signal.notify.notify_one());
        }
        if std::mem::replace(&mut state.is_listening, true) {
            return;
        }
        drop(state);
        let task = ChannelsTask::new(self);
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(task.run())),
            Err(_) => drop(task),
        }
    }

    /// The connection for commands was replaced: the server may allow now what it refused. Another server does not know of these
    /// subscriptions.
    pub(in super::super) fn reconnected(&self, is_another_server: bool) {
        let mut state = self.state.lock();
        state.refusal = None;
        if is_another_server && let Some(signal) = &state.signal {
            signal.broke();
        }
    }

    /// Ends the subscriptions if no client has waited for a while. In one step, so that the next waiter starts a new task.
    pub(super) fn ends_when_idle(&self) -> bool {
        let mut state = self.state.lock();
        let is_idle = state.channels.values().all(|channel| channel.next_request.elapsed() > LINGER);
        if is_idle {
            *state = ChannelsState { refusal: state.refusal.take(), ..ChannelsState::default() };
        }
        is_idle
    }

    /// The changes since the last call. Idle channels are forgotten.
    pub(super) fn changes(&self) -> Changes {
        let (mut state, mut changes) = (self.state.lock(), Changes::default());
        state.channels.retain(|name, channel| {
            let is_idle = channel.next_request.elapsed() > LINGER;
            if is_idle && channel.phase != ChannelPhase::Wanted && changes.idle.len() < AT_ONCE {
                changes.idle.push(name.clone());
                return false;
            }
            if channel.phase == ChannelPhase::Wanted && changes.wanted.len() < AT_ONCE {
                changes.wanted.push(name.clone());
                channel.phase = ChannelPhase::Requested;
            }
            true
        });
        changes
    }

    pub(super) fn begin(&self, signal: Arc<ChannelsSignal>) {
        self.state.lock().signal = Some(signal);
    }

    /// The connection broke, and with it all subscriptions.
    pub(super) fn broke(&self, is_listening: bool) {
        let mut state = self.state.lock();
        state.signal = None;
        state.is_listening = is_listening;
        state.channels.values_mut().for_each(|channel| channel.phase = ChannelPhase::Wanted);
        drop(state);
        self.wake_waiters();
    }

    pub(super) fn refused(&self, error: Error) {
        tracing::warn!(target: "tenure", %error, "redis does not let waiters subscribe; they poll instead");
        *self.state.lock() = ChannelsState { refusal: Some(error), ..ChannelsState::default() };
        self.wake_waiters();
    }

    /// Forgets requested channels without confirmation, which the server may have refused. Their waiters request them again.
    pub(super) fn forget_requested(&self) {
        self.state.lock().channels.retain(|_, channel| channel.phase != ChannelPhase::Requested);
        self.router.upgrade().into_iter().for_each(|router| router.refresh_map());
    }

    /// Waiters for this name may have missed a grant.
    fn verify(&self, name: &Name) {
        if let Some(sink) = self.context.grant_sink().upgrade() {
            sink.verify(name);
        }
    }

    /// The same for every name.
    fn wake_waiters(&self) {
        if let Some(sink) = self.context.grant_sink().upgrade() {
            sink.missed_grants();
        }
    }

    pub(super) fn received(&self, push: &PushInfo) {
        let [Value::BulkString(channel), rest @ ..] = &push.data[..] else { return };
        let Ok(channel) = std::str::from_utf8(channel) else { return };
        match (&push.kind, rest) {
            (PushKind::SMessage, [Value::BulkString(message)]) => self.deliver(message),
            (PushKind::SSubscribe, _) => {
                let mut state = self.state.lock();
                let Some(channel) = state.channels.get_mut(channel) else { return };
                channel.phase = ChannelPhase::Subscribed;
                let name = channel.name.clone();
                drop(state);
                self.verify(&name);
            }
            (PushKind::SUnsubscribe, _) => {
                let mut state = self.state.lock();
                // A channel that was unsubscribed and is wanted again has not been requested yet.
                let is_over = |channel: &Channel| channel.phase != ChannelPhase::Wanted;
                if !state.channels.get(channel).is_some_and(is_over) {
                    return;
                }
                let gone = state.channels.remove(channel);
                drop(state);
                self.router.upgrade().into_iter().for_each(|router| router.refresh_map());
                gone.into_iter().for_each(|channel| self.verify(&channel.name));
            }
            _ => {}
        }
    }

    /// A grant by a node that has given the slot away is dated by another clock than the answers of its successor. So it is only a reason
    /// to verify.
    fn deliver(&self, message: &[u8]) {
        let is_here = |name: &Name| {
            self.router.upgrade().is_some_and(|router| router.number_of(name) == Some(self.node))
        };
        grant::deliver(&self.context, message, is_here);
    }
}

impl Drop for Channels {
    fn drop(&mut self) {
        if let Some(signal) = &self.state.lock().signal {
            signal.broke();
        }
    }
}
