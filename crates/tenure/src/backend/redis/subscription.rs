//! Listens for grants: one channel for all names of a session, on its own connection.
//!
//! The connection is separate from the commands, because unrequested messages about subscriptions would shift the replies. The first
//! waiter opens it, and it ends some time after the last one. Waiters without a subscription say that they poll, so that the server does
//! not take them for dead. When the subscription begins or breaks, every waiter sends a heartbeat, because the server may have published
//! a grant that nobody received.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use redis::{PushInfo, PushKind, Value};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::client::SessionContext;
use super::connect::Connector;
use super::connection::Connection;
use super::link::{ConnectionEnd, watch_over};
use super::pace::Pace;
use super::{fault, grant};
use crate::core::record::HEARTBEAT;
use crate::sync::Mutex;
use crate::types::error::{Error, ErrorKind};

/// How long a subscription outlives its last waiter.
const LINGER: Duration = Duration::from_secs(10);

/// The subscription of one session.
pub(super) struct Subscription {
    connector: Arc<Connector>,
    context: Arc<SessionContext>,
    channel: String,
    state: Mutex<SubscriptionState>,
}

#[derive(Default)]
struct SubscriptionState {
    phase: SubscriptionPhase,
    /// When a request last had to wait, and the pause before its next heartbeat.
    last_wait: Option<(Instant, Duration)>,
    signal: Option<Arc<Notify>>,
}

#[derive(Default, Clone)]
enum SubscriptionPhase {
    #[default]
    None,
    Connecting,
    Subscribed,
    /// The user may not subscribe.
    Refused(Error),
}

impl Subscription {
    pub(super) fn new(connector: Arc<Connector>, context: &Arc<SessionContext>) -> Arc<Self> {
        let channel = context.keys.channel(context.session.id(), "");
        Arc::new(Subscription { connector, context: Arc::clone(context), channel, state: Mutex::default() })
    }

    /// Whether the client is subscribed.
    pub(super) fn is_subscribed(&self) -> bool {
        matches!(self.state.lock().phase, SubscriptionPhase::Subscribed)
    }

    /// Why the client cannot subscribe, if the server refuses.
    pub(super) fn refusal(&self) -> Option<Error> {
        match &self.state.lock().phase {
            SubscriptionPhase::Refused(error) => Some(error.clone()),
            _ => None,
        }
    }

    /// A waiter sends its next request after this pause.
    pub(super) fn want(self: &Arc<Self>, pause: Duration) {
        let mut state = self.state.lock();
        state.last_wait = Some((Instant::now(), pause));
        if !matches!(state.phase, SubscriptionPhase::None) {
            return;
        }
        state.phase = SubscriptionPhase::Connecting;
        drop(state);
        let task = SubscriptionTask { subscription: Arc::downgrade(self), has_ended: false };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(task.run())),
            Err(_) => drop(task),
        }
    }

    /// The connection for commands was replaced: the server may allow now what it refused. Another server does not know of this
    /// subscription.
    pub(super) fn reconnected(&self, is_another_server: bool) {
        let mut state = self.state.lock();
        if let SubscriptionPhase::Refused(_) = state.phase {
            state.phase = SubscriptionPhase::None;
        }
        if is_another_server && let Some(signal) = &state.signal {
            signal.notify_one();
        }
    }

    /// Ends the subscription if no client has waited for a while. In one step, so that the next waiter starts a new one.
    fn ends_when_idle(&self) -> bool {
        let mut state = self.state.lock();
        let is_idle = state.last_wait.is_none_or(|(last, pause)| last.elapsed() > pause + LINGER);
        if is_idle {
            state.phase = SubscriptionPhase::None;
        }
        is_idle
    }

    /// Whether to check a connection that was silent for this long. If all waiters are far from the head, it is checked rarely: their
    /// requests, on the other connection, find a missed grant.
    fn is_checked(&self, silence: Duration) -> bool {
        let pause = self.state.lock().last_wait.map(|(_, pause)| pause);
        pause.is_none_or(|pause| pause <= HEARTBEAT || silence >= 4 * pause)
    }

    fn begin(&self, signal: Arc<Notify>) {
        let mut state = self.state.lock();
        state.phase = SubscriptionPhase::Subscribed;
        state.signal = Some(signal);
        drop(state);
        self.wake_waiters();
    }

    /// Waiters may have missed a grant.
    fn wake_waiters(&self) {
        if let Some(sink) = self.context.grant_sink().upgrade() {
            sink.missed_grants();
        }
    }

    /// The subscription broke.
    fn broke(&self, phase: SubscriptionPhase) {
        let mut state = self.state.lock();
        state.signal = None;
        state.phase = phase;
        drop(state);
        self.wake_waiters();
    }

    fn refused(&self, error: Error) {
        tracing::warn!(target: "tenure", %error, "redis does not let waiters subscribe; they poll instead");
        self.broke(SubscriptionPhase::Refused(error));
    }

    fn received(&self, push: &PushInfo) {
        if push.kind != PushKind::Message {
            return;
        }
        let [_, Value::BulkString(message)] = &push.data[..] else { return };
        grant::deliver(&self.context, message, |_| true);
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(signal) = &self.state.lock().signal {
            signal.notify_one();
        }
    }
}

/// Maintains the subscription while it is wanted. There is one task at a time.
struct SubscriptionTask {
    subscription: Weak<Subscription>,
    has_ended: bool,
}

impl SubscriptionTask {
    async fn run(mut self) {
        let mut pace: Option<Pace> = None;
        while let Some(subscription) = self.subscription.upgrade() {
            if subscription.ends_when_idle() {
                break;
            }
            let (connector, signal) = (Arc::clone(&subscription.connector), Arc::new(Notify::new()));
            let pace = pace.get_or_insert_with(|| Pace::new(connector.timeout));
            let (incarnation, patience) = (connector.incarnation(), pace.begin_attempt());
            let connection = match subscribe(&subscription, &signal, patience).await {
                Ok(connection) => connection,
                Err(error) if error.kind() == ErrorKind::Denied => {
                    subscription.refused(error);
                    break;
                }
                Err(error) => {
                    tracing::debug!(target: "tenure", %error, "cannot listen for grants");
                    drop(subscription);
                    pace.failed().await;
                    continue;
                }
            };
            subscription.begin(Arc::clone(&signal));
            // The commands went to another server before this connection had a signal.
            if connector.incarnation() != incarnation {
                signal.notify_one();
            }
            drop(subscription);
            pace.connected();
            let is_wanted = || self.subscription.upgrade().is_some_and(|wanted| !wanted.ends_when_idle());
            let is_due =
                |silence| self.subscription.upgrade().is_some_and(|wanted| wanted.is_checked(silence));
            let ended = watch_over(connection, &signal, connector.timeout / 2, is_due, is_wanted).await;
            if ended == ConnectionEnd::Unwanted {
                break;
            }
            let Some(subscription) = self.subscription.upgrade() else { break };
            subscription.broke(SubscriptionPhase::Connecting);
            drop(subscription);
            tokio::time::sleep(pace.ended(&ended).unwrap_or_default()).await;
        }
        self.has_ended = true;
    }
}

impl Drop for SubscriptionTask {
    /// Dropped before its end if its runtime shuts down. A waiter on another runtime starts a new task.
    fn drop(&mut self) {
        if !self.has_ended
            && let Some(subscription) = self.subscription.upgrade()
        {
            subscription.broke(SubscriptionPhase::None);
        }
    }
}

/// Connects and subscribes. Returns when the server has confirmed it.
async fn subscribe(
    subscription: &Arc<Subscription>,
    signal: &Arc<Notify>,
    patience: Duration,
) -> Result<Connection, Error> {
    let (receiver, on_disconnect, connector) =
        (Arc::downgrade(subscription), Arc::clone(signal), &subscription.connector);
    let mut connection = connector
        .connect_to_same_server(patience, move |push| match push.kind {
            PushKind::Disconnection => on_disconnect.notify_one(),
            _ => drop(receiver.upgrade().map(|subscription| subscription.received(&push))),
        })
        .await?;
    let confirmed = tokio::time::timeout(patience, connection.subscribe(&subscription.channel)).await;
    match confirmed {
        Ok(confirmed) => {
            confirmed.map(|()| connection).map_err(|error| fault::of_command(&error, &connector.address()))
        }
        Err(_) => Err(connector.silent()),
    }
}
