//! A group of stores in memory, each with a clock of its own, and connections that lose and delay requests and replies.
//!
//! The test moves the clock of the clients and those of the servers. Domains, the keeper and queues are the real ones.

mod attacks;
mod errors;
mod liveness;
mod properties;
mod rules;
mod tokens;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tenure_testkit::dice::Dice;

use super::{MemberListeners, Quorum};
use crate::api::domain::Domain;
use crate::backend::memory::{Memory, MemoryStore};
use crate::backend::{Admin, Answer, Backend, Capability, Component, Incarnation, Pending, Sink};
use crate::core::deadlines::Terms;
use crate::core::record::Op;
use crate::engine::client::Client;
use crate::sync::Mutex;
use crate::time::clock::{Clock, Moment, micros};
use crate::time::manual_clock::ManualClock;
use crate::types::error::{Error, ErrorKind};
use crate::types::name::Name;
use crate::types::owner::Session;

const MS: Duration = Duration::from_millis(1);
const TTL: Duration = Duration::from_millis(800);
const NAME: &str = "orders/42";

/// One server.
struct Server {
    store: Mutex<Arc<MemoryStore>>,
    clock: Arc<ManualClock>,
    /// Requests fail at once.
    is_down: AtomicBool,
    /// The server executes and answers requests when it is resumed.
    is_paused: AtomicBool,
    incarnation: Mutex<ServerIncarnation>,
    /// It refuses requests for this name for good.
    refused: Mutex<Option<Name>>,
    executed: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ServerIncarnation {
    id: u64,
    /// By the clock of the world; `None` if the server does not say it.
    started: Option<Moment>,
}

impl Server {
    /// It started that long ago.
    fn set_age(&self, id: u64, now: Moment, age: Duration) {
        let started = Moment::from_micros(now.as_micros() - micros(age));
        *self.incarnation.lock() = ServerIncarnation { id, started: Some(started) };
    }

    /// It restarts without its data, and its connections break.
    fn restart(&self, now: Moment) {
        *self.store.lock() = Arc::new(MemoryStore::new(Clock::Manual(Arc::clone(&self.clock))));
        let id = self.incarnation.lock().id + 1_000;
        self.set_age(id, now, Duration::ZERO);
    }
}

/// How many of a hundred requests a connection loses or delays.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    lost_requests: u64,
    lost_replies: u64,
    late_requests: u64,
    late_replies: u64,
}

struct World {
    clock: Arc<ManualClock>,
    servers: Vec<Arc<Server>>,
    faults: Faults,
    dice: Arc<Mutex<Dice>>,
    log: Log,
}

/// What happened, in its order; printed if a test fails.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<VecDeque<String>>>);

impl Log {
    /// How many lines it keeps.
    const LENGTH: usize = 300;

    fn note(&self, clock: &Clock, what: impl std::fmt::Display) {
        let mut lines = self.0.lock();
        if lines.len() == Log::LENGTH {
            lines.pop_front();
        }
        lines.push_back(format!("{:?} {what}", clock.now()));
    }

    fn print(&self) {
        self.0.lock().iter().for_each(|line| println!("{line}"));
    }
}

impl World {
    /// Servers whose clocks are ahead by these times.
    fn new(skews: &[Duration], faults: Faults, seed: u64) -> Self {
        let server = |skew: &Duration| {
            let clock = Arc::new(ManualClock::new());
            clock.jump(*skew);
            Arc::new(Server {
                store: Mutex::new(Arc::new(MemoryStore::new(Clock::Manual(Arc::clone(&clock))))),
                clock,
                is_down: AtomicBool::new(false),
                is_paused: AtomicBool::new(false),
                incarnation: Mutex::new(ServerIncarnation { id: 0, started: None }),
                refused: Mutex::new(None),
                executed: AtomicU64::new(0),
            })
        };
        let servers: Vec<_> = skews.iter().map(server).collect();
        for (id, server) in (1..).zip(&servers) {
            server.incarnation.lock().id = id;
        }
        World {
            clock: Arc::new(ManualClock::new()),
            servers,
            faults,
            dice: Arc::new(Mutex::new(Dice(seed | 1))),
            log: Log::default(),
        }
    }

    fn calm(servers: usize) -> Self {
        World::new(&vec![Duration::ZERO; servers], Faults::default(), 1)
    }

    /// A client that reaches all servers but these.
    fn client_without(&self, cut: &[usize]) -> Domain {
        let servers = self.servers.iter().enumerate();
        self.client_by(servers.map(|(index, _)| Route { is_cut: cut.contains(&index), lag: Duration::ZERO }))
    }

    /// A client whose requests take so many ms to each server.
    fn client_lagging(&self, lags: &[u64]) -> Domain {
        let route = |ms: &u64| Route { is_cut: false, lag: Duration::from_millis(*ms) };
        self.client_by(lags.iter().map(route))
    }

    fn client_by(&self, routes: impl Iterator<Item = Route>) -> Domain {
        let clock = Clock::Manual(Arc::clone(&self.clock));
        let (connect, routes) = (self.connect(), routes.collect::<Vec<_>>());
        let connect = move |sink: Weak<dyn Sink>| {
            let quorum = connect(sink, &routes);
            Pending::now(quorum.map(|quorum| Arc::new(quorum) as Arc<dyn Backend>))
        };
        let client = crate::engine::new_client(clock, Box::new(connect));
        Domain::with(client, Terms::new(TTL, None), "quorum of memory")
    }

    /// A client, and its backend when it has one.
    fn client_shown(&self) -> (Domain, Arc<OnceLock<Arc<Quorum>>>) {
        let opened: Arc<OnceLock<Arc<Quorum>>> = Arc::default();
        let (connect, shown) = (self.connect(), Arc::clone(&opened));
        let routes = vec![Route { is_cut: false, lag: Duration::ZERO }; self.servers.len()];
        let connect = move |sink: Weak<dyn Sink>| {
            let quorum = connect(sink, &routes).map(Arc::new);
            Pending::now(quorum.map(|quorum| Arc::clone(shown.get_or_init(|| quorum)) as Arc<dyn Backend>))
        };
        let client = crate::engine::new_client(Clock::Manual(Arc::clone(&self.clock)), Box::new(connect));
        (Domain::with(client, Terms::new(TTL, None), "quorum of memory"), opened)
    }

    fn connect(&self) -> impl Fn(Weak<dyn Sink>, &[Route]) -> Result<Quorum, Error> + Send + Sync + use<> {
        let (servers, faults, dice) = (self.servers.clone(), self.faults, Arc::clone(&self.dice));
        let (ours, log) = (Clock::Manual(Arc::clone(&self.clock)), self.log.clone());
        move |sink, routes| {
            let (session, listeners) = (Session::random(), MemberListeners::new(servers.len(), &sink, &ours));
            let connections = servers.iter().zip(routes).enumerate().map(|(index, (server, route))| {
                let connection = Connection {
                    session: session.clone(),
                    sink: listeners.of(index),
                    current: Mutex::default(),
                    server: Arc::clone(server),
                    clock: ours.clone(),
                    faults,
                    dice: Arc::clone(&dice),
                    route: *route,
                    label: format!("h{}", index + 1),
                    log: log.clone(),
                };
                connection.memory();
                (connection.label.clone(), Arc::new(connection) as Arc<dyn Component>)
            });
            let connections = connections.collect();
            Quorum::new(session, connections, listeners, TTL, ours.clone(), false)
        }
    }

    fn client(&self) -> Domain {
        self.client_without(&[])
    }

    /// Moves all clocks.
    async fn pass(&self, time: Duration) {
        const STEP: Duration = Duration::from_millis(2);
        let mut left = time;
        while !left.is_zero() {
            let step = left.min(STEP);
            self.servers.iter().for_each(|server| server.clock.jump(step));
            self.clock.advance(step).await;
            left -= step;
        }
    }

    /// Moves all clocks until the work is done.
    async fn drive<F: Future>(&self, work: F) -> F::Output {
        let mut work = std::pin::pin!(work);
        for _ in 0..20_000 {
            let pass = std::pin::pin!(self.pass(2 * MS));
            match race(work.as_mut(), pass).await {
                Some(output) => return output,
                None => continue,
            }
        }
        panic!("it does not end within 40 s");
    }

    /// The servers that hold the name.
    fn holders(&self) -> Vec<usize> {
        let name = Name::new(NAME).expect("a name");
        let is_held = |server: &Arc<Server>| {
            let client = Memory::connect(Arc::clone(&server.store.lock()), Weak::<Client>::new());
            match client.execute(&name, Op::Inspect) {
                Pending::Now(Some(Ok(Answer {
                    reply: crate::core::record::Reply::Seen { holding, .. },
                    ..
                }))) => holding.is_some(),
                _ => unreachable!("it answers at once"),
            }
        };
        (0..self.servers.len()).filter(|&index| is_held(&self.servers[index])).collect()
    }
}

/// The first one's output, unless the second one ends before.
async fn race<A: Future, B: Future>(
    mut first: std::pin::Pin<&mut A>,
    mut second: std::pin::Pin<&mut B>,
) -> Option<A::Output> {
    std::future::poll_fn(|cx| {
        if let std::task::Poll::Ready(output) = first.as_mut().poll(cx) {
            return std::task::Poll::Ready(Some(output));
        }
        second.as_mut().poll(cx).map(|_| None)
    })
    .await
}

/// A client's connection to one server, which is made again after a restart.
struct Connection {
    session: Session,
    sink: Weak<dyn Sink>,
    current: Mutex<Option<(ServerIncarnation, Arc<Memory>)>>,
    server: Arc<Server>,
    clock: Clock,
    faults: Faults,
    dice: Arc<Mutex<Dice>>,
    route: Route,
    label: String,
    log: Log,
}

/// Whether a client reaches a server, and how fast.
#[derive(Clone, Copy, Debug)]
struct Route {
    is_cut: bool,
    lag: Duration,
}

impl Connection {
    /// The connection that stands, or a new one if the server has restarted.
    fn memory(&self) -> Arc<Memory> {
        let incarnation = *self.server.incarnation.lock();
        let mut current = self.current.lock();
        if let Some((known, memory)) = &*current
            && known.id == incarnation.id
        {
            return Arc::clone(memory);
        }
        let store = Arc::clone(&self.server.store.lock());
        let memory = Memory::connect_as(store, self.sink.clone(), Arc::default(), self.session.clone());
        let memory = Arc::new(memory);
        let before = current.replace((incarnation, Arc::clone(&memory)));
        drop(current);
        if before.is_some()
            && let Some(sink) = self.sink.upgrade()
        {
            sink.verify_all();
        }
        memory
    }

    fn is_unlucky(&self, of_hundred: u64) -> bool {
        of_hundred > 0 && self.dice.lock().roll(100) < of_hundred
    }

    fn delay(&self) -> Duration {
        Duration::from_millis(1 + self.dice.lock().roll(400))
    }
}

impl Backend for Connection {
    fn session(&self) -> &Session {
        &self.session
    }

    fn server_now(&self, name: &Name) -> Option<u64> {
        self.current.lock().as_ref().and_then(|(_, memory)| memory.server_now(name))
    }

    fn execute(&self, name: &Name, op: Op) -> Pending<Answer> {
        if let Some(error) = self.outage() {
            return Pending::now(Err(error));
        }
        if self.server.refused.lock().as_ref() == Some(name) {
            let denied = Error::new(ErrorKind::Denied, format!("{}: no permission", self.label));
            return Pending::now(Err(denied.fix("grant it")));
        }
        let Faults { lost_requests, lost_replies, late_requests, late_replies } = self.faults;
        if self.is_unlucky(lost_requests) {
            return Pending::Later(Box::pin(std::future::pending()));
        }
        let (clock, memory) = (self.clock.clone(), self.memory());
        let id = self.server.incarnation.lock().id;
        let (server, name) = (Arc::clone(&self.server), name.clone());
        let lag = (!self.route.lag.is_zero()).then_some(self.route.lag);
        let before = self.is_unlucky(late_requests).then(|| self.delay()).or(lag);
        let after = self.is_unlucky(late_replies).then(|| self.delay());
        let is_lost = self.is_unlucky(lost_replies);
        let is_cut_short = self.dice.lock().roll(2) == 0;
        let (label, log) = (self.label.clone(), self.log.clone());
        // A request continues although its caller may drop it.
        let running = tokio::spawn(async move {
            if let Some(before) = before {
                clock.sleep_until(clock.now() + before).await;
            }
            while server.is_paused.load(Ordering::SeqCst) {
                clock.sleep_until(clock.now() + MS).await;
            }
            let broken = || Err(Error::unanswered(format!("{label}: the connection broke")));
            if server.incarnation.lock().id != id {
                return broken();
            }
            server.executed.fetch_add(1, Ordering::SeqCst);
            let asked = format!("{op:?}");
            let answer = memory.execute(&name, op).await;
            let fate = if is_lost { "lost" } else { "answered" };
            log.note(&clock, format_args!("{label} {asked}, {fate}: {answer:?}"));
            if is_lost {
                std::future::pending::<()>().await;
            }
            if let Some(after) = after {
                clock.sleep_until(clock.now() + after).await;
            }
            // A reply that the server sent before it died may still arrive, or not.
            if server.incarnation.lock().id != id && is_cut_short {
                return broken();
            }
            answer
        });
        Pending::Later(Box::pin(async move { running.await.expect("no panic") }))
    }

    fn list(&self, prefix: &str) -> Pending<Vec<Name>> {
        let (clock, server, lag) = (self.clock.clone(), Arc::clone(&self.server), self.route.lag);
        let (memory, prefix) = (self.memory(), prefix.to_owned());
        Pending::Later(Box::pin(async move {
            clock.sleep_until(clock.now() + lag).await;
            while server.is_paused.load(Ordering::SeqCst) {
                clock.sleep_until(clock.now() + MS).await;
            }
            memory.list(&prefix).await
        }))
    }
}

impl Component for Connection {
    fn outage(&self) -> Option<Error> {
        let is_away = self.route.is_cut || self.server.is_down.load(Ordering::SeqCst);
        is_away.then(|| Error::unavailable("connection refused").of(&self.label))
    }

    fn incarnation(&self) -> Option<Incarnation> {
        let (ServerIncarnation { id, started }, _) = self.current.lock().clone()?;
        let age = started.map(|started| self.clock.now().since(started));
        Some(Incarnation { id: Arc::from(id.to_string()), age })
    }
}

impl Admin for Connection {
    fn capabilities(&self) -> &'static [Capability] {
        &[Capability::List, Capability::Detach, Capability::Force]
    }

    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}
