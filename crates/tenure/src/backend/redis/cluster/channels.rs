//! Where the grants of one node's names are heard: a channel in the slot of each name that is waited for, all on one connection.
//!
//! Which channels stand is known by what the server says of each (`ssubscribe`, `sunsubscribe`) and never by whose answer that was: when a
//! slot moves away the server unsubscribes unasked, and the driver then takes that for the answer to whatever was asked last. For the same
//! reason nothing but subscriptions and the heartbeat goes by this connection. A channel that is gone is not looked for here: its waiters are
//! woken, ask whoever has the slot now, and want it there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use redis::{PushInfo, PushKind, Value};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::super::client::Asker;
use super::super::connect::Connector;
use super::super::grant;
use super::listening::Listening;
use super::router::Router;
use crate::sync::Mutex;
use crate::types::error::Error;
use crate::types::name::Name;

/// How long a channel outlives its last waiter.
const LINGER: Duration = Duration::from_secs(10);
/// How many are subscribed in one go.
pub(super) const AT_ONCE: usize = 128;

/// The channels of one session at one node.
pub(in super::super) struct Channels {
    pub(super) connector: Arc<Connector>,
    asker: Arc<Asker>,
    router: Weak<Router>,
    /// The node's number.
    node: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    channels: HashMap<String, Channel>,
    /// There is one who listens.
    is_listening: bool,
    bell: Option<Arc<Bell>>,
    /// Why it can't be subscribed.
    refusal: Option<Error>,
}

struct Channel {
    name: Name,
    /// When somebody last had to wait, and the pause after which it asks again.
    last_wait: Instant,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Wanted,
    Asked,
    Stands,
}

/// Rung when there is something to do.
#[derive(Default)]
pub(super) struct Bell {
    pub(super) notify: Notify,
    pub(super) is_broken: AtomicBool,
}

impl Bell {
    pub(super) fn broke(&self) {
        self.is_broken.store(true, Ordering::Release);
        self.notify.notify_one();
    }
}

/// What is to be said to the server.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) wanted: Vec<String>,
    pub(super) idle: Vec<String>,
}

impl Channels {
    pub(super) fn new(
        connector: Arc<Connector>,
        asker: Arc<Asker>,
        router: Weak<Router>,
        node: u64,
    ) -> Arc<Self> {
        Arc::new(Channels { connector, asker, router, node, state: Mutex::default() })
    }

    fn channel(&self, name: &Name) -> String {
        self.asker.keys.channel(self.asker.session.id(), &self.asker.keys.lock(name))
    }

    pub(in super::super) fn stands(&self, name: &Name) -> bool {
        let channel = self.channel(name);
        let state = self.state.lock();
        state.channels.get(&channel).is_some_and(|channel| channel.phase == Phase::Stands)
    }

    pub(in super::super) fn refusal(&self) -> Option<Error> {
        self.state.lock().refusal.clone()
    }

    pub(in super::super) fn want(self: &Arc<Self>, name: &Name, pause: Duration) {
        let (channel, last_wait) = (self.channel(name), Instant::now() + pause);
        let mut state = self.state.lock();
        if state.refusal.is_some() {
            return;
        }
        if let Some(known) = state.channels.get_mut(&channel) {
            known.last_wait = last_wait;
        } else {
            let wanted = Channel { name: name.clone(), last_wait, phase: Phase::Wanted };
            state.channels.insert(channel, wanted);
            state.bell.iter().for_each(|bell| bell.notify.notify_one());
        }
        if std::mem::replace(&mut state.is_listening, true) {
            return;
        }
        drop(state);
        let listening = Listening::new(self);
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(listening.run())),
            Err(_) => drop(listening),
        }
    }

    /// There is a new connection for commands: what was refused may be allowed by now. Another server has another opinion of who is
    /// subscribed.
    pub(in super::super) fn reconnected(&self, is_another_server: bool) {
        let mut state = self.state.lock();
        state.refusal = None;
        if is_another_server && let Some(bell) = &state.bell {
            bell.broke();
        }
    }

    /// Ends when nobody has waited for a while. In one step: whoever waits from now on begins a new one.
    pub(super) fn ends_when_idle(&self) -> bool {
        let mut state = self.state.lock();
        let is_idle = state.channels.values().all(|channel| channel.last_wait.elapsed() > LINGER);
        if is_idle {
            *state = State { refusal: state.refusal.take(), ..State::default() };
        }
        is_idle
    }

    /// What has changed since it was last asked for. What is idle is forgotten.
    pub(super) fn changes(&self) -> Changes {
        let (mut state, mut changes) = (self.state.lock(), Changes::default());
        state.channels.retain(|name, channel| {
            let is_idle = channel.last_wait.elapsed() > LINGER;
            if is_idle && channel.phase != Phase::Wanted && changes.idle.len() < AT_ONCE {
                changes.idle.push(name.clone());
                return false;
            }
            if channel.phase == Phase::Wanted && changes.wanted.len() < AT_ONCE {
                changes.wanted.push(name.clone());
                channel.phase = Phase::Asked;
            }
            true
        });
        changes
    }

    pub(super) fn begin(&self, bell: Arc<Bell>) {
        self.state.lock().bell = Some(bell);
    }

    /// Nothing stands any longer.
    pub(super) fn broke(&self, is_listening: bool) {
        let mut state = self.state.lock();
        state.bell = None;
        state.is_listening = is_listening;
        state.channels.values_mut().for_each(|channel| channel.phase = Phase::Wanted);
        drop(state);
        self.rouse();
    }

    pub(super) fn refused(&self, error: Error) {
        tracing::warn!(target: "tenure", %error, "redis does not let waiters subscribe; they ask again and again instead");
        *self.state.lock() = State { refusal: Some(error), ..State::default() };
        self.rouse();
    }

    /// What was asked for and does not stand was refused, or may have been. Whoever still waits wants it again.
    pub(super) fn forget_asked(&self) {
        self.state.lock().channels.retain(|_, channel| channel.phase != Phase::Asked);
        self.router.upgrade().into_iter().for_each(|router| router.look_again());
    }

    /// Whoever waits for this name may have missed its turn.
    fn ask_again(&self, name: &Name) {
        if let Some(sink) = self.asker.told().upgrade() {
            sink.verify(name);
        }
    }

    /// The same for every name.
    fn rouse(&self) {
        if let Some(sink) = self.asker.told().upgrade() {
            sink.missed_grants();
        }
    }

    pub(super) fn heard(&self, push: &PushInfo) {
        let [Value::BulkString(channel), rest @ ..] = &push.data[..] else { return };
        let Ok(channel) = std::str::from_utf8(channel) else { return };
        match (&push.kind, rest) {
            (PushKind::SMessage, [Value::BulkString(message)]) => self.told(message),
            (PushKind::SSubscribe, _) => {
                let mut state = self.state.lock();
                let Some(channel) = state.channels.get_mut(channel) else { return };
                channel.phase = Phase::Stands;
                let name = channel.name.clone();
                drop(state);
                self.ask_again(&name);
            }
            (PushKind::SUnsubscribe, _) => {
                let mut state = self.state.lock();
                // One that was unsubscribed, and is wanted again, is not asked for yet.
                let is_over = |channel: &Channel| channel.phase != Phase::Wanted;
                if !state.channels.get(channel).is_some_and(is_over) {
                    return;
                }
                let gone = state.channels.remove(channel);
                drop(state);
                self.router.upgrade().into_iter().for_each(|router| router.look_again());
                gone.into_iter().for_each(|channel| self.ask_again(&channel.name));
            }
            _ => {}
        }
    }

    /// A grant that a node made before it gave the slot away is dated by another clock than what is asked of its successor: it is a reason to
    /// ask, and no more.
    fn told(&self, message: &[u8]) {
        let is_here = |name: &Name| {
            self.router.upgrade().is_some_and(|router| router.number_of(name) == Some(self.node))
        };
        grant::heard(&self.asker, message, is_here);
    }
}

impl Drop for Channels {
    fn drop(&mut self) {
        if let Some(bell) = &self.state.lock().bell {
            bell.broke();
        }
    }
}
