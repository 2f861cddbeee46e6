//! The connection for commands, and the supervisor that maintains it.
//!
//! The link does not use the driver's reconnection, which mixes up replies and lets commands hang while it reconnects. The supervisor
//! drops a broken connection with all its requests, and makes a new one; a heartbeat finds a silent connection. A command between a break
//! and the first failed attempt waits for the new connection. After that, commands fail at once until a connection is there. The attempts
//! never end, and `pace.rs` spreads those of many clients.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use redis::{Cmd, PushInfo, PushKind};
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};

use super::connect::Connector;
use super::connection::Connection;
use super::fault;
use super::pace::Pace;
use super::script::Call;
use super::server::Server;
use crate::backend::Presence;
use crate::core::record::{Reply, pause_behind};
use crate::sync::Mutex;
use crate::time::backoff::Backoff;
use crate::types::error::Error;
use crate::types::process::Home;

/// How many attempts are made before the link reports an outage, if the server accepts and then closes connections.
const MOST_TRIES: u32 = 5;

/// A connection for commands that is ready for use.
#[derive(Clone)]
pub(super) struct ActiveConnection {
    pub(super) connection: Connection,
    pub(super) server: Arc<Server>,
    /// Notified when it breaks, or must not be used any longer. Each connection has its own, because an old one may break late.
    signal: Arc<Notify>,
}

impl ActiveConnection {
    /// Drops this connection, because its server is not the one to use. A newer connection is not affected.
    pub(super) fn leave(&self) {
        self.signal.notify_one();
    }
}

#[derive(Clone)]
enum LinkState {
    Up(ActiveConnection),
    /// It broke just now, or the first attempt is under way.
    Connecting,
    /// The last attempt failed with this error.
    Down(Error),
    /// The runtime of the supervisor has ended.
    Orphaned,
}

/// Events of a connection. The driver calls them, so they must not block.
pub(super) trait LinkEvents: Send + Sync + 'static {
    /// The server sent a push.
    fn pushed(&self, push: PushInfo);

    /// The connection broke, or does not answer.
    fn broke(&self) {}

    /// A connection is prepared, and no request uses it yet.
    fn prepared(&self, server: &Arc<Server>);

    /// The connection is in use. Tracking and pushes of the connection before it are lost.
    fn connected(&self, server: &Arc<Server>);
}

pub(super) struct Link {
    pub(super) connector: Arc<Connector>,
    events: Arc<dyn LinkEvents>,
    state: watch::Sender<LinkState>,
    /// Counts the connections.
    number: AtomicU64,
    use_of: Mutex<Use>,
}

/// The use of a connection, which decides how often it is checked.
#[derive(Default)]
struct Use {
    /// Until then a client may hold a lease, and must learn of its loss.
    held_until: Option<Instant>,
    /// Then a waiter sends a request, which is a check.
    asked_at: Option<Instant>,
}

impl Use {
    fn is_checked(&self) -> bool {
        let now = Instant::now();
        self.held_until.is_some_and(|until| now < until) || self.asked_at.is_none_or(|at| now >= at)
    }
}

impl Link {
    /// Connects for the first time. If the server need not be there, an unreachable one is not an error.
    pub(super) async fn open(
        connector: Arc<Connector>,
        events: Arc<dyn LinkEvents>,
        presence: Presence,
    ) -> Result<Arc<Self>, Error> {
        let connected = match presence == Presence::Required {
            true => connect(&connector, &events, connector.timeout).await,
            // A caller that can do without the server does not wait for several attempts.
            false => {
                tokio::time::timeout(connector.timeout, connect_once(&connector, &events, connector.timeout))
                    .await
                    .unwrap_or_else(|_| Err(connector.silent()))
            }
        };
        let active = match connected {
            Err(error) if !presence.tolerates(&error) => return Err(error),
            active => active,
        };
        let state = match &active {
            Ok(active) => LinkState::Up(active.clone()),
            Err(error) => LinkState::Down(error.clone()),
        };
        let state = watch::Sender::new(state);
        let link =
            Arc::new(Link { connector, events, state, number: AtomicU64::new(1), use_of: Mutex::default() });
        if let Ok(active) = &active {
            link.events.prepared(&active.server);
            link.events.connected(&active.server);
        }
        link.supervise(active.ok());
        Ok(link)
    }

    /// Connects in the background.
    pub(super) fn begin(connector: Arc<Connector>, events: Arc<dyn LinkEvents>) -> Arc<Self> {
        let state = watch::Sender::new(LinkState::Connecting);
        let link =
            Arc::new(Link { connector, events, state, number: AtomicU64::new(0), use_of: Mutex::default() });
        link.supervise(None);
        link
    }

    /// The connection, if it is there now.
    pub(super) fn try_active(&self) -> Option<ActiveConnection> {
        match &*self.state.borrow() {
            LinkState::Up(active) => Some(active.clone()),
            LinkState::Connecting | LinkState::Down(_) | LinkState::Orphaned => None,
        }
    }

    /// Notes the answer to a call.
    pub(super) fn answered(&self, call: &Call, reply: &Reply) {
        if let Reply::Waiting { ahead, .. } = reply {
            self.use_of.lock().asked_at = Some(Instant::now() + pause_behind(*ahead));
        } else if call.leases(reply) {
            let until = call.ttl().and_then(|ttl| Instant::now().checked_add(ttl));
            let mut use_of = self.use_of.lock();
            use_of.held_until = use_of.held_until.max(until);
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Why there is no connection, if that is known.
    pub(super) fn outage(&self) -> Option<Error> {
        match &*self.state.borrow() {
            LinkState::Down(error) => Some(error.clone()),
            LinkState::Up(_) | LinkState::Connecting | LinkState::Orphaned => None,
        }
    }

    /// The connection, as soon as it is there. Returns an error at once if the last attempt failed.
    pub(super) async fn active(self: &Arc<Self>) -> Result<ActiveConnection, Error> {
        if let LinkState::Up(active) = &*self.state.borrow() {
            return Ok(active.clone());
        }
        let mut state = self.state.subscribe();
        let mut can_revive = true;
        loop {
            let is_orphaned = match &*state.borrow_and_update() {
                LinkState::Up(active) => return Ok(active.clone()),
                LinkState::Down(error) => return Err(error.clone()),
                LinkState::Connecting => false,
                LinkState::Orphaned => true,
            };
            // Once: if the new supervisor ends as well, this runtime is shutting down.
            if is_orphaned && can_revive {
                can_revive = !self.revive();
            }
            drop(state.changed().await);
        }
    }

    /// Starts a supervisor on this runtime, if the runtime of the last one has ended. Returns false if another task does so.
    fn revive(self: &Arc<Self>) -> bool {
        let is_orphaned = |state: &mut LinkState| {
            let is_orphaned = matches!(state, LinkState::Orphaned);
            if is_orphaned {
                *state = LinkState::Connecting;
            }
            is_orphaned
        };
        let is_ours = self.state.send_if_modified(is_orphaned);
        if is_ours {
            self.supervise(None);
        }
        is_ours
    }

    fn supervise(self: &Arc<Self>, active: Option<ActiveConnection>) {
        let supervisor = Supervisor { link: Arc::downgrade(self), has_ended: false };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(supervisor.run(active))),
            Err(_) => drop(supervisor),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.try_active().into_iter().for_each(|active| active.leave());
    }
}

/// Maintains the connection of a link, and ends with it.
struct Supervisor {
    link: Weak<Link>,
    has_ended: bool,
}

impl Supervisor {
    async fn run(mut self, mut active: Option<ActiveConnection>) {
        let mut pace: Option<Pace> = None;
        loop {
            let Some(link) = self.link.upgrade() else { break };
            let connector = Arc::clone(&link.connector);
            let pace = pace.get_or_insert_with(|| Pace::new(connector.timeout));
            let Some(standing) = active.take() else {
                let events = Arc::clone(&link.events);
                // Connecting may take long, and the client may drop the link meanwhile.
                drop(link);
                let connected = connect(&connector, &events, pace.begin_attempt()).await;
                let Some(link) = self.link.upgrade() else { break };
                match connected {
                    Ok(new) => {
                        link.number.fetch_add(1, Ordering::AcqRel);
                        // Waiters of the connection before may not ask again.
                        link.use_of.lock().asked_at = None;
                        link.events.prepared(&new.server);
                        link.state.send_replace(LinkState::Up(new.clone()));
                        link.events.connected(&new.server);
                        active = Some(new);
                    }
                    Err(error) => {
                        tracing::debug!(target: "tenure", %error, "cannot connect to redis");
                        link.state.send_replace(LinkState::Down(error));
                        drop(link);
                        pace.failed().await;
                    }
                }
                continue;
            };
            drop(link);
            pace.connected();
            let ActiveConnection { connection, signal, .. } = standing;
            let is_wanted = || self.link.strong_count() > 0;
            let is_due = |_| self.link.upgrade().is_some_and(|link| link.use_of.lock().is_checked());
            let ended = watch_over(connection, &signal, connector.timeout / 2, is_due, is_wanted).await;
            if ended == ConnectionEnd::Unwanted {
                break;
            }
            let Some(link) = self.link.upgrade() else { break };
            let pause = pace.ended(&ended);
            // Requests do not wait for a server that is silent repeatedly.
            let is_down = ended == ConnectionEnd::Silent && pause.is_some();
            let state = if is_down { LinkState::Down(connector.silent()) } else { LinkState::Connecting };
            link.state.send_replace(state);
            link.events.broke();
            drop(link);
            tokio::time::sleep(pause.unwrap_or_default()).await;
        }
        self.has_ended = true;
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if !self.has_ended
            && let Some(link) = self.link.upgrade()
        {
            link.state.send_replace(LinkState::Orphaned);
        }
    }
}

/// Connects, with some attempts if the server is there and refuses for now.
async fn connect(
    connector: &Connector,
    events: &Arc<dyn LinkEvents>,
    patience: Duration,
) -> Result<ActiveConnection, Error> {
    let mut backoff = Backoff::new();
    for _ in 1..MOST_TRIES {
        match connect_once(connector, events, patience).await {
            Err(error) if error.is_worth_asking_again() => tokio::time::sleep(backoff.pause()).await,
            answer => return answer,
        }
    }
    connect_once(connector, events, patience).await
}

/// Connects, and prepares the connection for commands.
async fn connect_once(
    connector: &Connector,
    events: &Arc<dyn LinkEvents>,
    patience: Duration,
) -> Result<ActiveConnection, Error> {
    let signal = Arc::new(Notify::new());
    let (events, on_disconnect) = (Arc::clone(events), Arc::clone(&signal));
    let mut connection = connector
        .connect(patience, move |push| match push.kind {
            PushKind::Disconnection => on_disconnect.notify_one(),
            _ => events.pushed(push),
        })
        .await?;
    let server = Arc::new(connector.prepare(&mut connection, patience).await?);
    Ok(ActiveConnection { connection, server, signal })
}

/// Why the supervision of a connection ended.
#[derive(PartialEq, Eq)]
pub(super) enum ConnectionEnd {
    /// It was closed, or must not be used any longer.
    Broken,
    /// It did not answer.
    Silent,
    Unwanted,
}

/// Returns when the connection is broken or unwanted, or does not answer a check within `half`. It is checked every `half`, if `is_due`
/// says so; `is_due` gets the time since the last check. A refused check is an answer too.
pub(super) async fn watch_over(
    mut connection: Connection,
    signal: &Notify,
    half: Duration,
    is_due: impl Fn(Duration) -> bool,
    is_wanted: impl Fn() -> bool,
) -> ConnectionEnd {
    let mut ping = Cmd::new();
    ping.arg("PING");
    let (home, mut checked) = (Home::here(), Instant::now());
    loop {
        let is_signalled = tokio::time::timeout(half, signal.notified()).await.is_ok();
        // A forked child must not write to the connection of its parent.
        if !home.is_here() || !is_wanted() {
            return ConnectionEnd::Unwanted;
        }
        if is_signalled {
            return ConnectionEnd::Broken;
        }
        if !is_due(checked.elapsed()) {
            continue;
        }
        checked = Instant::now();
        match tokio::time::timeout(half, connection.send(&ping)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) if fault::server_error(&error).is_some() => {}
            Ok(Err(_)) => return ConnectionEnd::Broken,
            Err(_) => return ConnectionEnd::Silent,
        }
    }
}
