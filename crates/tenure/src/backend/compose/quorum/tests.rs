//! A group of stores in memory, each with a clock of its own, and lines to them that lose and delay what they carry.
//!
//! Time is a manual clock's, and so are the servers' clocks, which are moved with it. All else is the real thing: domains, the keeper, queues.

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

use super::{Ears, Quorum};
use crate::api::domain::Domain;
use crate::backend::memory::{Memory, MemoryStore};
use crate::backend::{Answer, Backend, Capability, Incarnation, Pending, Sink};
use crate::core::deadlines::Terms;
use crate::core::record::Op;
use crate::engine::client::Client;
use crate::sync::Mutex;
use crate::time::clock::Clock;
use crate::time::manual_clock::ManualClock;
use crate::types::error::{Error, ErrorKind};
use crate::types::name::Name;
use crate::types::owner::Session;

const MS: Duration = Duration::from_millis(1);
const TTL: Duration = Duration::from_millis(800);
const NAME: &str = "orders/42";

/// One server.
struct Server {
    store: Arc<MemoryStore>,
    clock: Arc<ManualClock>,
    /// Requests fail at once.
    is_down: AtomicBool,
    /// Requests are not answered, and executed when it is over.
    is_paused: AtomicBool,
    /// Its run, and how old that is in ms, where it says so.
    run: Mutex<Option<(u64, u64)>>,
    /// Requests for this name are refused for good.
    refused: Mutex<Option<Name>>,
    executed: AtomicU64,
}

/// What the lines do, of a hundred requests.
#[derive(Clone, Copy, Debug, Default)]
struct Weather {
    lost_requests: u64,
    lost_replies: u64,
    late_requests: u64,
    late_replies: u64,
}

struct World {
    clock: Arc<ManualClock>,
    servers: Vec<Arc<Server>>,
    weather: Weather,
    dice: Arc<Mutex<Dice>>,
    trail: Trail,
}

/// What happened, in its order: printed when something went wrong.
#[derive(Clone, Default)]
struct Trail(Arc<Mutex<VecDeque<String>>>);

impl Trail {
    /// How much of it is kept.
    const LENGTH: usize = 300;

    fn note(&self, clock: &Clock, what: impl std::fmt::Display) {
        let mut lines = self.0.lock();
        if lines.len() == Trail::LENGTH {
            lines.pop_front();
        }
        lines.push_back(format!("{:?} {what}", clock.now()));
    }

    fn print(&self) {
        self.0.lock().iter().for_each(|line| println!("{line}"));
    }
}

impl World {
    /// Servers whose clocks are ahead by so much.
    fn new(skews: &[Duration], weather: Weather, seed: u64) -> Self {
        let server = |skew: &Duration| {
            let clock = Arc::new(ManualClock::new());
            clock.jump(*skew);
            Arc::new(Server {
                store: Arc::new(MemoryStore::new(Clock::Manual(Arc::clone(&clock)))),
                clock,
                is_down: AtomicBool::new(false),
                is_paused: AtomicBool::new(false),
                run: Mutex::new(None),
                refused: Mutex::new(None),
                executed: AtomicU64::new(0),
            })
        };
        World {
            clock: Arc::new(ManualClock::new()),
            servers: skews.iter().map(server).collect(),
            weather,
            dice: Arc::new(Mutex::new(Dice(seed | 1))),
            trail: Trail::default(),
        }
    }

    fn calm(servers: usize) -> Self {
        World::new(&vec![Duration::ZERO; servers], Weather::default(), 1)
    }

    /// A client that reaches all servers but these.
    fn client_without(&self, cut: &[usize]) -> Domain {
        let lines = self.servers.iter().enumerate();
        self.client_by(lines.map(|(index, _)| Way { is_cut: cut.contains(&index), lag: Duration::ZERO }))
    }

    /// A client whose requests take so many ms to each server.
    fn client_lagging(&self, lags: &[u64]) -> Domain {
        let way = |ms: &u64| Way { is_cut: false, lag: Duration::from_millis(*ms) };
        self.client_by(lags.iter().map(way))
    }

    fn client_by(&self, ways: impl Iterator<Item = Way>) -> Domain {
        let clock = Clock::Manual(Arc::clone(&self.clock));
        let (connect, ways) = (self.connect(), ways.collect::<Vec<_>>());
        let connect = move |sink: Weak<dyn Sink>| {
            let quorum = connect(sink, &ways);
            Pending::now(quorum.map(|quorum| Arc::new(quorum) as Arc<dyn Backend>))
        };
        let client = crate::engine::new_client(clock, Box::new(connect));
        Domain::with(client, Terms::new(TTL, None), "quorum of memory")
    }

    /// A client, and its backend when it has one.
    fn client_shown(&self) -> (Domain, Arc<OnceLock<Arc<Quorum>>>) {
        let opened: Arc<OnceLock<Arc<Quorum>>> = Arc::default();
        let (connect, shown) = (self.connect(), Arc::clone(&opened));
        let ways = vec![Way { is_cut: false, lag: Duration::ZERO }; self.servers.len()];
        let connect = move |sink: Weak<dyn Sink>| {
            let quorum = connect(sink, &ways).map(Arc::new);
            Pending::now(quorum.map(|quorum| Arc::clone(shown.get_or_init(|| quorum)) as Arc<dyn Backend>))
        };
        let client = crate::engine::new_client(Clock::Manual(Arc::clone(&self.clock)), Box::new(connect));
        (Domain::with(client, Terms::new(TTL, None), "quorum of memory"), opened)
    }

    fn connect(&self) -> impl Fn(Weak<dyn Sink>, &[Way]) -> Result<Quorum, Error> + Send + Sync + use<> {
        let (servers, weather, dice) = (self.servers.clone(), self.weather, Arc::clone(&self.dice));
        let (ours, trail) = (Clock::Manual(Arc::clone(&self.clock)), self.trail.clone());
        move |sink, ways| {
            let (session, ears) = (Session::random(), Ears::new(servers.len(), &sink, &ours));
            let lines = servers.iter().zip(ways).enumerate().map(|(index, (server, way))| {
                let store = Arc::clone(&server.store);
                let memory = Memory::connect_as(store, ears.of(index), Arc::default(), session.clone());
                let line = Line {
                    memory: Arc::new(memory),
                    server: Arc::clone(server),
                    clock: ours.clone(),
                    weather,
                    dice: Arc::clone(&dice),
                    way: *way,
                    label: format!("h{}", index + 1),
                    trail: trail.clone(),
                };
                (line.label.clone(), Arc::new(line) as Arc<dyn Backend>)
            });
            let lines = lines.collect();
            Quorum::new(session, lines, ears, TTL, ours.clone(), false)
        }
    }

    fn client(&self) -> Domain {
        self.client_without(&[])
    }

    /// Time passes, everywhere.
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

    /// Time passes until the work is done.
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

    /// How many servers hold the name.
    fn holders(&self) -> Vec<usize> {
        let name = Name::new(NAME).expect("a name");
        let is_held = |server: &Arc<Server>| {
            let line = Memory::connect(Arc::clone(&server.store), Weak::<Client>::new());
            match line.execute(&name, Op::Inspect) {
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

/// A client's line to one server.
struct Line {
    memory: Arc<Memory>,
    server: Arc<Server>,
    clock: Clock,
    weather: Weather,
    dice: Arc<Mutex<Dice>>,
    way: Way,
    label: String,
    trail: Trail,
}

/// How a client gets to a server.
#[derive(Clone, Copy, Debug)]
struct Way {
    is_cut: bool,
    lag: Duration,
}

impl Line {
    fn is_unlucky(&self, of_hundred: u64) -> bool {
        of_hundred > 0 && self.dice.lock().roll(100) < of_hundred
    }

    fn delay(&self) -> Duration {
        Duration::from_millis(1 + self.dice.lock().roll(400))
    }
}

impl Backend for Line {
    fn session(&self) -> &Session {
        self.memory.session()
    }

    fn server_now(&self, name: &Name) -> Option<u64> {
        self.memory.server_now(name)
    }

    fn execute(&self, name: &Name, op: Op) -> Pending<Answer> {
        if let Some(error) = self.outage() {
            return Pending::now(Err(error));
        }
        if self.server.refused.lock().as_ref() == Some(name) {
            return Pending::now(Err(Error::new(ErrorKind::Denied, "no permission; grant it")));
        }
        let Weather { lost_requests, lost_replies, late_requests, late_replies } = self.weather;
        if self.is_unlucky(lost_requests) {
            return Pending::Later(Box::pin(std::future::pending()));
        }
        let (clock, memory) = (self.clock.clone(), Arc::clone(&self.memory));
        let (server, name) = (Arc::clone(&self.server), name.clone());
        let lag = (!self.way.lag.is_zero()).then_some(self.way.lag);
        let before = self.is_unlucky(late_requests).then(|| self.delay()).or(lag);
        let after = self.is_unlucky(late_replies).then(|| self.delay());
        let is_lost = self.is_unlucky(lost_replies);
        let (label, trail) = (self.label.clone(), self.trail.clone());
        // A request goes on by itself, whoever waits for it.
        let running = tokio::spawn(async move {
            if let Some(before) = before {
                clock.sleep_until(clock.now() + before).await;
            }
            while server.is_paused.load(Ordering::SeqCst) {
                clock.sleep_until(clock.now() + MS).await;
            }
            server.executed.fetch_add(1, Ordering::SeqCst);
            let asked = format!("{op:?}");
            let answer = memory.execute(&name, op).await;
            let fate = if is_lost { "lost" } else { "answered" };
            trail.note(&clock, format_args!("{label} {asked}, {fate}: {answer:?}"));
            if is_lost {
                std::future::pending::<()>().await;
            }
            if let Some(after) = after {
                clock.sleep_until(clock.now() + after).await;
            }
            answer
        });
        Pending::Later(Box::pin(async move { running.await.expect("no panic") }))
    }

    fn list(&self, prefix: &str) -> Pending<Vec<Name>> {
        let (clock, server, lag) = (self.clock.clone(), Arc::clone(&self.server), self.way.lag);
        let (memory, prefix) = (Arc::clone(&self.memory), prefix.to_owned());
        Pending::Later(Box::pin(async move {
            clock.sleep_until(clock.now() + lag).await;
            while server.is_paused.load(Ordering::SeqCst) {
                clock.sleep_until(clock.now() + MS).await;
            }
            memory.list(&prefix).await
        }))
    }

    fn outage(&self) -> Option<Error> {
        let is_away = self.way.is_cut || self.server.is_down.load(Ordering::SeqCst);
        is_away.then(|| Error::unavailable("connection refused"))
    }

    fn incarnation(&self) -> Option<Incarnation> {
        let (id, age) = (*self.server.run.lock())?;
        Some(Incarnation { id: Arc::from(id.to_string()), age: Some(Duration::from_millis(age)) })
    }

    fn capabilities(&self) -> &'static [Capability] {
        self.memory.capabilities()
    }

    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}
