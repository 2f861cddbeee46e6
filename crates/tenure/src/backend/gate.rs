//! A store behind gates: every request can be refused, broken off, slowed down, swallowed, or executed long after its client gave up.
//!
//! The memory store answers inside the call, so no future that uses it ever waits. Here a request travels: it is executed by a task of
//! its own, whatever becomes of the future that waits for the answer, as on a network. What was asked and what was executed is
//! written down. Only pushes pass ungated; where one would overtake an answer, the answer is slow.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::oneshot;

use super::memory::{Memory, MemoryStore};
use super::{Admin, Answer, Backend, Capability, Component, Pending, Sink};
use crate::core::record::{Op, Wait};
use crate::engine::client::Connect;
use crate::sync::Mutex;
use crate::time::clock::Clock;
use crate::types::error::{Error, ErrorKind};
use crate::types::name::Name;
use crate::types::owner::Session;
use crate::types::replicas::TooFewReplicas;

/// What passes a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Connect,
    Join,
    Beat,
    Try,
    Renew,
    Detach,
    Release,
    Leave,
    Adopt,
    TakeOver,
    Break,
    Inspect,
    List,
}

impl Kind {
    fn of(op: &Op) -> Self {
        match op {
            Op::Acquire { wait, .. } => match wait {
                Wait::No => Kind::Try,
                Wait::Join => Kind::Join,
                Wait::Keep { .. } => Kind::Beat,
            },
            Op::Renew { .. } | Op::Raise { .. } => Kind::Renew,
            Op::Detach { .. } => Kind::Detach,
            Op::Release { .. } => Kind::Release,
            Op::Leave { .. } | Op::Death { .. } => Kind::Leave,
            Op::Adopt { .. } => Kind::Adopt,
            Op::TakeOver { .. } => Kind::TakeOver,
            Op::Break { .. } => Kind::Break,
            Op::Inspect => Kind::Inspect,
        }
    }
}

/// What becomes of a request. Times are the manual clock's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Executed inside the call, and answered by it.
    AtOnce,
    /// Executed and answered as fast as a network can.
    Wire,
    /// Executed after half of this time, answered after all of it.
    Slow(Duration),
    /// Executed as fast as a network can, answered after this time.
    Sticky(Duration),
    /// Known to be out of reach: not executed, and the client knows.
    Down,
    /// The connection breaks while the answer is awaited.
    Broken(Run),
    /// No answer, ever.
    Never(Run),
    /// Executed, and acknowledged by none of the two replicas that had to.
    Short,
    /// Executed, and answered by something that is not understood.
    Garbled,
}

/// When a request is executed that is never answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    Not,
    First,
    /// A ghost: after this time, whether or not its client still waits.
    Late(Duration),
}

/// The gates of one client.
pub(crate) struct Gates {
    clock: Clock,
    always: Mutex<HashMap<Kind, Fate>>,
    next: Mutex<HashMap<Kind, VecDeque<Fate>>>,
    asked: Mutex<Vec<Kind>>,
    executed: Arc<Mutex<Vec<Kind>>>,
}

impl Gates {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Gates {
            clock,
            always: Mutex::default(),
            next: Mutex::default(),
            asked: Mutex::default(),
            executed: Arc::default(),
        })
    }

    /// How a client connects through these gates.
    pub(crate) fn connect(self: &Arc<Self>, store: &Arc<MemoryStore>) -> Connect {
        let (gates, store) = (Arc::clone(self), Arc::clone(store));
        Box::new(move |sink: Weak<dyn Sink>| {
            let (store, behind) = (Arc::clone(&store), Arc::clone(&gates));
            gates.pass(Kind::Connect, move || {
                Ok(behind.before(Memory::connect(store, sink)) as Arc<dyn Backend>)
            })
        })
    }

    /// A client of a store, behind these gates.
    pub(crate) fn before(self: &Arc<Self>, client: Memory) -> Arc<dyn Component> {
        Arc::new(Gate { inner: Arc::new(client), gates: Arc::clone(self) })
    }

    /// What becomes of every request of this kind from now on.
    pub(crate) fn set(&self, kind: Kind, fate: Fate) {
        self.always.lock().insert(kind, fate);
    }

    /// What becomes of the next request of this kind, before `set` counts again.
    pub(crate) fn once(&self, kind: Kind, fate: Fate) {
        self.next.lock().entry(kind).or_default().push_back(fate);
    }

    /// Every request is executed and answered at once from now on.
    pub(crate) fn open(&self) {
        self.always.lock().clear();
        self.next.lock().clear();
    }

    pub(crate) fn asked(&self, kind: Kind) -> usize {
        self.asked.lock().iter().filter(|&&asked| asked == kind).count()
    }

    pub(crate) fn executed(&self, kind: Kind) -> usize {
        self.executed.lock().iter().filter(|&&ran| ran == kind).count()
    }

    fn fate(&self, kind: Kind) -> Fate {
        self.asked.lock().push(kind);
        let next = self.next.lock().get_mut(&kind).and_then(VecDeque::pop_front);
        next.unwrap_or_else(|| self.always.lock().get(&kind).copied().unwrap_or(Fate::AtOnce))
    }

    fn pass<T: Send + Unpin + 'static>(
        &self,
        kind: Kind,
        request: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Pending<T> {
        let executed = Arc::clone(&self.executed);
        let execute = move || {
            executed.lock().push(kind);
            request()
        };
        let broken = || Error::unanswered("the connection broke");
        let clock = self.clock.clone();
        match self.fate(kind) {
            Fate::AtOnce => Pending::now(execute()),
            Fate::Down => Pending::now(Err(Error::unavailable("the store is known to be down"))),
            Fate::Wire => travel(async move { execute() }),
            Fate::Slow(time) => travel(async move {
                let sent = clock.now();
                clock.sleep_until(sent + time / 2).await;
                let answer = execute();
                clock.sleep_until(sent + time).await;
                answer
            }),
            Fate::Sticky(time) => travel(async move {
                let (sent, answer) = (clock.now(), execute());
                clock.sleep_until(sent + time).await;
                answer
            }),
            Fate::Broken(run) => {
                drop(travel(run_it(run, clock, execute)));
                later(async move {
                    tokio::task::yield_now().await;
                    Err(broken())
                })
            }
            Fate::Never(run) => {
                drop(travel(run_it(run, clock, execute)));
                later(std::future::pending())
            }
            Fate::Short => travel(async move {
                execute()?;
                let shortage = TooFewReplicas::new(0, 2);
                Err(Error::unconfirmed(shortage, format!("{shortage}")).fix("bring them back"))
            }),
            Fate::Garbled => travel(async move {
                execute()?;
                Err(Error::new(ErrorKind::Protocol, "the answer is not understood").half_way())
            }),
        }
    }
}

async fn run_it<T>(run: Run, clock: Clock, execute: impl FnOnce() -> T) -> Result<(), Error> {
    match run {
        Run::Not => {}
        Run::First => drop(execute()),
        Run::Late(time) => {
            clock.sleep_until(clock.now() + time).await;
            drop(execute());
        }
    }
    Ok(())
}

fn later<T>(answer: impl Future<Output = Result<T, Error>> + Send + 'static) -> Pending<T> {
    Pending::Later(Box::pin(answer))
}

/// Sends a request on its way: from here on it goes by itself, and dies only with its runtime.
fn travel<T: Send + 'static>(journey: impl Future<Output = Result<T, Error>> + Send + 'static) -> Pending<T> {
    let (tell, answer) = oneshot::channel();
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move {
            tokio::task::yield_now().await;
            let _ = tell.send(journey.await);
        });
    }
    later(async move {
        answer.await.unwrap_or_else(|_| Err(Error::unanswered("the runtime of the driver is gone")))
    })
}

/// The memory store behind gates.
struct Gate {
    inner: Arc<Memory>,
    gates: Arc<Gates>,
}

impl Backend for Gate {
    fn session(&self) -> &Session {
        self.inner.session()
    }

    fn server_now(&self, name: &Name) -> Option<u64> {
        self.inner.server_now(name)
    }

    fn execute(&self, name: &Name, op: Op) -> Pending<Answer> {
        let (inner, name) = (Arc::clone(&self.inner), name.clone());
        self.gates.pass(Kind::of(&op), move || answer(inner.execute(&name, op)))
    }

    fn list(&self, prefix: &str) -> Pending<Vec<Name>> {
        let (inner, prefix) = (Arc::clone(&self.inner), prefix.to_owned());
        self.gates.pass(Kind::List, move || answer(inner.list(&prefix)))
    }
}

impl Component for Gate {}

impl Admin for Gate {
    fn capabilities(&self) -> &'static [Capability] {
        self.inner.capabilities()
    }

    fn warnings(&self) -> Vec<String> {
        self.inner.warnings()
    }
}

fn answer<T>(at_once: Pending<T>) -> Result<T, Error> {
    match at_once {
        Pending::Now(Some(answer)) => answer,
        _ => unreachable!("the memory store answers at once"),
    }
}
