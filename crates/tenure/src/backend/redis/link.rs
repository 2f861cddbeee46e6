//! The connection for commands, and the supervisor that keeps it.
//!
//! The driver's own reconnection is not used: it mixes up replies, and lets commands hang while it reconnects. Here a connection is
//! used until it breaks, then dropped with all that was under way on it, and a new one is made; a heartbeat finds the one that is
//! silent. A command that comes between a break and the first failed attempt waits for the new connection; after that it fails at
//! once, until a connection stands again. The attempts never end, and never come at the same time from all clients (`pace.rs`).

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
use crate::core::record::{Reply, pause_behind};
use crate::sync::Mutex;
use crate::time::backoff::Backoff;
use crate::types::error::{Error, ErrorKind};
use crate::types::process::Home;

/// How often a connection is tried before it is said that there is none, where the server is there and breaks it off.
const MOST_TRIES: u32 = 5;

/// A connection that stands.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) connection: Connection,
    pub(super) server: Arc<Server>,
    /// Rung when it breaks, or when it is not to be used any longer. Each connection has its own: an old one may break late.
    bell: Arc<Notify>,
}

impl Line {
    /// Its server is not, or no longer, the one to use. A connection that has taken its place is another one's.
    pub(super) fn leave(&self) {
        self.bell.notify_one();
    }
}

#[derive(Clone)]
enum State {
    Up(Line),
    /// It broke just now, and nothing is known yet.
    Connecting,
    /// It can't be made, for this reason.
    Down(Error),
    /// The supervisor went down with its runtime.
    Orphaned,
}

/// What happens around a connection. Called from inside the driver: it never blocks.
pub(super) trait Listener: Send + Sync + 'static {
    /// The server said something unasked.
    fn heard(&self, push: PushInfo);

    /// The connection broke, or is silent.
    fn broke(&self) {}

    /// A connection is made, and nobody uses it yet.
    fn meets(&self, server: &Arc<Server>);

    /// There is a connection. What was armed on the one before, and what it would have told, is gone.
    fn connected(&self, server: &Arc<Server>);
}

pub(super) struct Link {
    pub(super) connector: Arc<Connector>,
    listener: Arc<dyn Listener>,
    state: watch::Sender<State>,
    /// Counts connections.
    number: AtomicU64,
    use_of: Mutex<Use>,
}

/// What a connection is used for, as far as that says how often it is checked.
#[derive(Default)]
struct Use {
    /// Until then somebody may hold a lease, and must hear of its loss.
    held_until: Option<Instant>,
    /// Then somebody who waits asks again, which is a check.
    asked_at: Option<Instant>,
}

impl Use {
    fn is_checked(&self) -> bool {
        let now = Instant::now();
        self.held_until.is_some_and(|until| now < until) || self.asked_at.is_none_or(|at| now >= at)
    }
}

impl Link {
    /// Connects for the first time; one that need not be there at once is connected to later.
    pub(super) async fn open(
        connector: Arc<Connector>,
        listener: Arc<dyn Listener>,
        must_be_there: bool,
    ) -> Result<Arc<Self>, Error> {
        let connected = match must_be_there {
            true => connect(&connector, &listener, connector.timeout).await,
            // Whoever can do without it does not wait for it.
            false => tokio::time::timeout(
                connector.timeout,
                connect_once(&connector, &listener, connector.timeout),
            )
            .await
            .unwrap_or_else(|_| Err(connector.silent())),
        };
        let line = match connected {
            Err(error) if must_be_there || error.kind() != ErrorKind::Unavailable => return Err(error),
            line => line,
        };
        let state = match &line {
            Ok(line) => State::Up(line.clone()),
            Err(error) => State::Down(error.clone()),
        };
        let state = watch::Sender::new(state);
        let link = Arc::new(Link {
            connector,
            listener,
            state,
            number: AtomicU64::new(1),
            use_of: Mutex::default(),
        });
        if let Ok(line) = &line {
            link.listener.meets(&line.server);
            link.listener.connected(&line.server);
        }
        link.supervise(line.ok());
        Ok(link)
    }

    /// Begins to connect, and returns.
    pub(super) fn begin(connector: Arc<Connector>, listener: Arc<dyn Listener>) -> Arc<Self> {
        let state = watch::Sender::new(State::Connecting);
        let link = Arc::new(Link {
            connector,
            listener,
            state,
            number: AtomicU64::new(0),
            use_of: Mutex::default(),
        });
        link.supervise(None);
        link
    }

    /// The connection, if one stands.
    pub(super) fn standing(&self) -> Option<Line> {
        match &*self.state.borrow() {
            State::Up(line) => Some(line.clone()),
            State::Connecting | State::Down(_) | State::Orphaned => None,
        }
    }

    /// A call was answered on the connection.
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

    /// Why there is no connection, when that is known.
    pub(super) fn outage(&self) -> Option<Error> {
        match &*self.state.borrow() {
            State::Down(error) => Some(error.clone()),
            State::Up(_) | State::Connecting | State::Orphaned => None,
        }
    }

    /// The connection, once it stands; an error at once when it is known that it does not.
    pub(super) async fn line(self: &Arc<Self>) -> Result<Line, Error> {
        if let State::Up(line) = &*self.state.borrow() {
            return Ok(line.clone());
        }
        let mut state = self.state.subscribe();
        let mut can_revive = true;
        loop {
            let is_orphaned = match &*state.borrow_and_update() {
                State::Up(line) => return Ok(line.clone()),
                State::Down(error) => return Err(error.clone()),
                State::Connecting => false,
                State::Orphaned => true,
            };
            // Once: if that one goes down as well, this runtime is shutting down.
            if is_orphaned && can_revive {
                can_revive = !self.revive();
            }
            drop(state.changed().await);
        }
    }

    /// Starts another supervisor, on this runtime, where the one before went down with its own; false when somebody else does.
    fn revive(self: &Arc<Self>) -> bool {
        let is_orphaned = |state: &mut State| {
            let is_orphaned = matches!(state, State::Orphaned);
            if is_orphaned {
                *state = State::Connecting;
            }
            is_orphaned
        };
        let is_ours = self.state.send_if_modified(is_orphaned);
        if is_ours {
            self.supervise(None);
        }
        is_ours
    }

    fn supervise(self: &Arc<Self>, line: Option<Line>) {
        let supervisor = Supervisor { link: Arc::downgrade(self), has_ended: false };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(supervisor.run(line))),
            Err(_) => drop(supervisor),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.standing().into_iter().for_each(|line| line.leave());
    }
}

/// Keeps the connection of a link, and ends with it.
struct Supervisor {
    link: Weak<Link>,
    has_ended: bool,
}

impl Supervisor {
    async fn run(mut self, mut line: Option<Line>) {
        let mut pace: Option<Pace> = None;
        loop {
            let Some(link) = self.link.upgrade() else { break };
            let connector = Arc::clone(&link.connector);
            let pace = pace.get_or_insert_with(|| Pace::new(connector.timeout));
            let Some(standing) = line.take() else {
                let listener = Arc::clone(&link.listener);
                // Connecting may take long, and the client may drop the link meanwhile.
                drop(link);
                let connected = connect(&connector, &listener, pace.tries()).await;
                let Some(link) = self.link.upgrade() else { break };
                match connected {
                    Ok(new) => {
                        link.number.fetch_add(1, Ordering::AcqRel);
                        // Who asked on the one before may ask no more.
                        link.use_of.lock().asked_at = None;
                        link.listener.meets(&new.server);
                        link.state.send_replace(State::Up(new.clone()));
                        link.listener.connected(&new.server);
                        line = Some(new);
                    }
                    Err(error) => {
                        tracing::debug!(target: "tenure", %error, "redis can't be reached");
                        link.state.send_replace(State::Down(error));
                        drop(link);
                        pace.failed().await;
                    }
                }
                continue;
            };
            drop(link);
            pace.stands();
            let Line { connection, bell, .. } = standing;
            let is_wanted = || self.link.strong_count() > 0;
            let is_due = |_| self.link.upgrade().is_some_and(|link| link.use_of.lock().is_checked());
            let ended = watch_over(connection, &bell, connector.timeout / 2, is_due, is_wanted).await;
            if ended == Ended::Unwanted {
                break;
            }
            let Some(link) = self.link.upgrade() else { break };
            let pause = pace.ended(&ended);
            // Nobody waits for a server that is silent again and again.
            let is_down = ended == Ended::Silent && pause.is_some();
            let state = if is_down { State::Down(connector.silent()) } else { State::Connecting };
            link.state.send_replace(state);
            link.listener.broke();
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
            link.state.send_replace(State::Orphaned);
        }
    }
}

/// Connects; a few times while the server is there and does not let us in yet.
async fn connect(
    connector: &Connector,
    listener: &Arc<dyn Listener>,
    patience: Duration,
) -> Result<Line, Error> {
    let mut backoff = Backoff::new();
    for _ in 1..MOST_TRIES {
        match connect_once(connector, listener, patience).await {
            Err(error) if error.is_worth_asking_again() => tokio::time::sleep(backoff.pause()).await,
            answer => return answer,
        }
    }
    connect_once(connector, listener, patience).await
}

/// Connects, and prepares the connection for commands.
async fn connect_once(
    connector: &Connector,
    listener: &Arc<dyn Listener>,
    patience: Duration,
) -> Result<Line, Error> {
    let bell = Arc::new(Notify::new());
    let (listener, rung) = (Arc::clone(listener), Arc::clone(&bell));
    let mut connection = connector
        .connect(patience, move |push| match push.kind {
            PushKind::Disconnection => rung.notify_one(),
            _ => listener.heard(push),
        })
        .await?;
    let server = Arc::new(connector.prepare(&mut connection, patience).await?);
    Ok(Line { connection, server, bell })
}

/// Why a connection is not watched over any more.
#[derive(PartialEq, Eq)]
pub(super) enum Ended {
    /// It was closed, or is not to be used any longer.
    Broken,
    /// It did not answer.
    Silent,
    Unwanted,
}

/// Returns when the connection is broken, or not wanted any longer, or does not answer a check within `half`. It is checked every `half`, if
/// that is due: `is_due` gets the time since the last check. An error is a sign of life too.
pub(super) async fn watch_over(
    mut connection: Connection,
    bell: &Notify,
    half: Duration,
    is_due: impl Fn(Duration) -> bool,
    is_wanted: impl Fn() -> bool,
) -> Ended {
    let mut ping = Cmd::new();
    ping.arg("PING");
    let (home, mut checked) = (Home::here(), Instant::now());
    loop {
        let is_rung = tokio::time::timeout(half, bell.notified()).await.is_ok();
        // A forked child must not write to the connection of its parent.
        if !home.is_here() || !is_wanted() {
            return Ended::Unwanted;
        }
        if is_rung {
            return Ended::Broken;
        }
        if !is_due(checked.elapsed()) {
            continue;
        }
        checked = Instant::now();
        match tokio::time::timeout(half, connection.send(&ping)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) if fault::server_error(&error).is_some() => {}
            Ok(Err(_)) => return Ended::Broken,
            Err(_) => return Ended::Silent,
        }
    }
}
