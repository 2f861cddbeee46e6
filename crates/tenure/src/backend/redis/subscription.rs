//! Where grants are heard: one channel for all names of a session, on a connection of its own.
//!
//! Apart from the commands, because what a server says about subscriptions unasked would shift their replies. It is made when somebody
//! first waits, and ends when nobody has waited for a while. While it does not stand, waiters say that they poll, so nobody takes
//! them for dead; when it begins to stand, and when it breaks, everyone who waits is woken to beat once, because a grant may have
//! been published to nobody.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use redis::{PushInfo, PushKind, Value};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::client::Asker;
use super::connect::Connector;
use super::connection::Connection;
use super::link::{Ended, watch_over};
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
    asker: Arc<Asker>,
    channel: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    phase: Phase,
    /// When somebody last had to wait, and the pause after which it asks again.
    last_wait: Option<(Instant, Duration)>,
    bell: Option<Arc<Notify>>,
}

#[derive(Default, Clone)]
enum Phase {
    #[default]
    None,
    Connecting,
    Stands,
    /// The user may not subscribe.
    Refused(Error),
}

impl Subscription {
    pub(super) fn new(connector: Arc<Connector>, asker: &Arc<Asker>) -> Arc<Self> {
        let channel = asker.keys.channel(asker.session.id(), "");
        Arc::new(Subscription { connector, asker: Arc::clone(asker), channel, state: Mutex::default() })
    }

    /// Whether grants are heard.
    pub(super) fn stands(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Stands)
    }

    /// Why grants are not heard, when the server refuses.
    pub(super) fn refusal(&self) -> Option<Error> {
        match &self.state.lock().phase {
            Phase::Refused(error) => Some(error.clone()),
            _ => None,
        }
    }

    /// Somebody waits, and asks again after this pause.
    pub(super) fn want(self: &Arc<Self>, pause: Duration) {
        let mut state = self.state.lock();
        state.last_wait = Some((Instant::now(), pause));
        if !matches!(state.phase, Phase::None) {
            return;
        }
        state.phase = Phase::Connecting;
        drop(state);
        let listening = Listening { subscription: Arc::downgrade(self), has_ended: false };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(listening.run())),
            Err(_) => drop(listening),
        }
    }

    /// There is a new connection for commands: what was refused may be allowed by now. Another server has another opinion of who is
    /// subscribed.
    pub(super) fn reconnected(&self, is_another_server: bool) {
        let mut state = self.state.lock();
        if let Phase::Refused(_) = state.phase {
            state.phase = Phase::None;
        }
        if is_another_server && let Some(bell) = &state.bell {
            bell.notify_one();
        }
    }

    /// Ends when nobody has waited for a while. In one step: whoever waits from now on begins a new one.
    fn ends_when_idle(&self) -> bool {
        let mut state = self.state.lock();
        let is_idle = state.last_wait.is_none_or(|(last, pause)| last.elapsed() > pause + LINGER);
        if is_idle {
            state.phase = Phase::None;
        }
        is_idle
    }

    /// Whether the connection is checked when it was silent for this long. One that only waiters far from their turn need is checked
    /// seldom: their requests, on the other connection, find a grant that was not heard.
    fn is_checked(&self, silence: Duration) -> bool {
        let pause = self.state.lock().last_wait.map(|(_, pause)| pause);
        pause.is_none_or(|pause| pause <= HEARTBEAT || silence >= 4 * pause)
    }

    fn begin(&self, bell: Arc<Notify>) {
        let mut state = self.state.lock();
        state.phase = Phase::Stands;
        state.bell = Some(bell);
        drop(state);
        self.rouse();
    }

    /// Whoever waits may have missed its turn.
    fn rouse(&self) {
        if let Some(sink) = self.asker.told().upgrade() {
            sink.missed_grants();
        }
    }

    /// It does not stand any longer.
    fn broke(&self, phase: Phase) {
        let mut state = self.state.lock();
        state.bell = None;
        state.phase = phase;
        drop(state);
        self.rouse();
    }

    fn refused(&self, error: Error) {
        tracing::warn!(target: "tenure", %error, "redis does not let waiters subscribe; they ask again and again instead");
        self.broke(Phase::Refused(error));
    }

    fn heard(&self, push: &PushInfo) {
        if push.kind != PushKind::Message {
            return;
        }
        let [_, Value::BulkString(message)] = &push.data[..] else { return };
        grant::heard(&self.asker, message, |_| true);
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(bell) = &self.state.lock().bell {
            bell.notify_one();
        }
    }
}

/// Keeps the subscription while it is wanted. Whoever finds one under way leaves it alone, so there is one at a time.
struct Listening {
    subscription: Weak<Subscription>,
    has_ended: bool,
}

impl Listening {
    async fn run(mut self) {
        let mut pace: Option<Pace> = None;
        while let Some(subscription) = self.subscription.upgrade() {
            if subscription.ends_when_idle() {
                break;
            }
            let (connector, bell) = (Arc::clone(&subscription.connector), Arc::new(Notify::new()));
            let pace = pace.get_or_insert_with(|| Pace::new(connector.timeout));
            let (run, patience) = (connector.run(), pace.tries());
            let connection = match subscribe(&subscription, &bell, patience).await {
                Ok(connection) => connection,
                Err(error) if error.kind() == ErrorKind::Denied => {
                    subscription.refused(error);
                    break;
                }
                Err(error) => {
                    tracing::debug!(target: "tenure", %error, "grants can't be heard");
                    drop(subscription);
                    pace.failed().await;
                    continue;
                }
            };
            subscription.begin(Arc::clone(&bell));
            // The commands went to another server before there was a bell to ring.
            if connector.run() != run {
                bell.notify_one();
            }
            drop(subscription);
            pace.stands();
            let is_wanted = || self.subscription.upgrade().is_some_and(|wanted| !wanted.ends_when_idle());
            let is_due =
                |silence| self.subscription.upgrade().is_some_and(|wanted| wanted.is_checked(silence));
            let ended = watch_over(connection, &bell, connector.timeout / 2, is_due, is_wanted).await;
            if ended == Ended::Unwanted {
                break;
            }
            let Some(subscription) = self.subscription.upgrade() else { break };
            subscription.broke(Phase::Connecting);
            drop(subscription);
            tokio::time::sleep(pace.ended(&ended).unwrap_or_default()).await;
        }
        self.has_ended = true;
    }
}

impl Drop for Listening {
    /// Dropped before its end: its runtime is going down. Whoever waits on another one begins anew.
    fn drop(&mut self) {
        if !self.has_ended
            && let Some(subscription) = self.subscription.upgrade()
        {
            subscription.broke(Phase::None);
        }
    }
}

/// Connects and subscribes; returns when the server has confirmed it.
async fn subscribe(
    subscription: &Arc<Subscription>,
    bell: &Arc<Notify>,
    patience: Duration,
) -> Result<Connection, Error> {
    let (told, rung, connector) = (Arc::downgrade(subscription), Arc::clone(bell), &subscription.connector);
    let mut connection = connector
        .join(patience, move |push| match push.kind {
            PushKind::Disconnection => rung.notify_one(),
            _ => drop(told.upgrade().map(|subscription| subscription.heard(&push))),
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
