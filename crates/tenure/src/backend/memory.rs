//! A map of records in this process: the reference for every other store, and the test double for users.
//!
//! It answers at once, so it can be used from a drop and without a runtime. Several clients share one store by its name or through
//! [`testing`](crate::api::testing), each with a session of its own, as if they were processes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use super::{Answer, Backend, Capability, Grant, Pending, Sink};
use crate::core::record::{Notice, Now, Op, Record, Reply};
use crate::sync::Mutex;
use crate::time::clock::Clock;
use crate::types::error::Error;
use crate::types::name::{Name, NameMap};
use crate::types::owner::{Session, SessionId, Token};
use crate::types::process::{FirstUser, Home};

/// Records beyond which a store looks for leases that expired unnoticed.
const SWEEP_AT_LEAST: usize = 64;

/// The names of one store, and who is connected to it.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    clock: Clock,
    /// The process that it is in; a forked child has a copy.
    home: Home,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    records: NameMap<Record>,
    /// The highest fence of the records that were dropped.
    floor: u64,
    sweep_at: usize,
    sessions: HashMap<SessionId, Line>,
}

/// How a client is told.
struct Line {
    sink: Weak<dyn Sink>,
    faults: Arc<Faults>,
}

/// What is wrong with a client's line to the store, in tests. The store does not notice.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Requests fail at once, and pushes are lost.
    pub(crate) is_cut: AtomicBool,
    /// Requests are not executed and never answered, and pushes are lost.
    pub(crate) hangs: AtomicBool,
    /// How many requests are executed without an answer.
    pub(crate) lost_replies: AtomicUsize,
}

impl Faults {
    fn loses_pushes(&self) -> bool {
        self.is_cut.load(Ordering::SeqCst) || self.hangs.load(Ordering::SeqCst)
    }

    fn loses_this_reply(&self) -> bool {
        self.lost_replies.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }
}

impl MemoryStore {
    pub(crate) fn new(clock: Clock) -> Self {
        let state = Mutex::new(State { sweep_at: SWEEP_AT_LEAST, ..State::default() });
        MemoryStore { clock, home: Home::here(), state }
    }

    /// The store of this name in this process. It lives as long as someone uses it.
    pub(crate) fn shared(name: &str) -> Result<Arc<Self>, Error> {
        let mut stores = SharedStores::of_this_process()?.lock();
        let stores = stores.get_or_insert_default();
        if let Some(store) = stores.get(name).and_then(Weak::upgrade) {
            return Ok(store);
        }
        stores.retain(|_, store| store.strong_count() > 0);
        let store = Arc::new(MemoryStore::new(Clock::System));
        stores.insert(name.to_owned(), Arc::downgrade(&store));
        Ok(store)
    }

    /// Refuses a forked child: a thread of its parent may have been at work here.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        self.home.check()
    }

    fn now(&self) -> Now {
        Now { lease: self.clock.now().as_micros(), wall: self.clock.wall_micros() }
    }

    /// Applies an operation, then tells whom it concerns. Whoever can't be told is dead, and the next one is told.
    fn execute(&self, name: &Name, op: Op) -> Answer {
        let now = self.now();
        let (mut notices, mut told, mut cut) = (Vec::new(), Vec::new(), Vec::new());
        let mut state = self.state.lock();
        let reply = state.apply(name, op, now, &mut notices);
        while let Some(wake) = notices.pop() {
            let (token, may_be_out_of_reach) = match &wake {
                Notice::Granted { token, polls, .. } => (token, *polls),
                Notice::Revoked { token } => (token, true),
            };
            match state.line(token) {
                // Not dropped under the lock: it may be the last handle of its client.
                Some((sink, true)) => cut.push(sink),
                Some((sink, false)) => told.push((sink, wake)),
                None if may_be_out_of_reach => {}
                None => {
                    let death = Op::Death { token: token.clone() };
                    state.apply(name, death, now, &mut notices);
                }
            }
        }
        drop(state);
        for (sink, wake) in told {
            match wake {
                Notice::Granted { token, fence, at, term, .. } => {
                    sink.granted(name, Grant { token, fence, at, term });
                }
                Notice::Revoked { .. } => sink.verify(name),
            }
        }
        Answer { reply, server: Some(now.lease) }
    }

    /// The names in use that start with `prefix`.
    fn list(&self, prefix: &str) -> Vec<Name> {
        let now = self.now();
        let state = self.state.lock();
        let in_use = state.records.iter().filter(|(_, record)| !record.is_idle(now));
        in_use.map(|(name, _)| name.clone()).filter(|name| name.as_str().starts_with(prefix)).collect()
    }

    /// How many records there are, those that nobody uses included; but for what is remembered of force.
    #[cfg(test)]
    pub(crate) fn record_count(&self) -> usize {
        let now = self.now();
        let is_trace = |record: &Record| record.is_idle(now) && !record.is_over(now);
        self.state.lock().records.values().filter(|record| !is_trace(record)).count()
    }
}

type ByName = HashMap<String, Weak<MemoryStore>>;

/// The stores of one process that have a name. Each process has its own: a child finds those of its parent as they were at the fork, under a
/// mutex that a thread of the parent may have held. So it never touches them, and begins with the first that nobody has used.
struct SharedStores {
    user: FirstUser,
    by_name: std::sync::Mutex<Option<ByName>>,
}

/// How many processes in a row, each forked by the one before it, may have such stores.
const MOST_GENERATIONS: usize = 64;

impl SharedStores {
    fn of_this_process() -> Result<&'static Self, Error> {
        static GENERATIONS: [SharedStores; MOST_GENERATIONS] =
            [const { SharedStores::new() }; MOST_GENERATIONS];
        let ours = GENERATIONS.iter().find(|stores| stores.user.is_this_process());
        ours.ok_or_else(|| {
            Error::unsupported(format!("process was forked {MOST_GENERATIONS} times over, and each of its ancestors used a memory store with a name")).fix("use `memory:` without one")
        })
    }

    const fn new() -> Self {
        SharedStores { user: FirstUser::new(), by_name: std::sync::Mutex::new(None) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<ByName>> {
        self.by_name.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl State {
    fn apply(&mut self, name: &Name, op: Op, now: Now, notices: &mut Vec<Notice>) -> Reply {
        self.sweep(now);
        let floor = self.floor;
        let record = self.records.entry(name.clone()).or_insert_with(|| Record::new(floor));
        let reply = record.apply(op, now, notices);
        if record.is_over(now) {
            self.floor = self.floor.max(record.last_fence());
            self.records.remove(name);
        }
        reply
    }

    /// Drops what nobody uses any more, each time that the number of records has doubled.
    fn sweep(&mut self, now: Now) {
        if self.records.len() < self.sweep_at {
            return;
        }
        let floor = &mut self.floor;
        self.records.retain(|_, record| {
            let is_over = record.is_over(now);
            if is_over {
                *floor = record.last_fence().max(*floor);
            }
            !is_over
        });
        self.sweep_at = SWEEP_AT_LEAST.max(self.records.len() * 2);
    }

    /// Whom to tell, and whether the line is cut.
    fn line(&self, token: &Token) -> Option<(Arc<dyn Sink>, bool)> {
        let line = self.sessions.get(&token.session()?)?;
        Some((line.sink.upgrade()?, line.faults.loses_pushes()))
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("records", &self.records)
            .field("floor", &self.floor)
            .finish_non_exhaustive()
    }
}

/// One client of a store in this process.
pub(crate) struct Memory {
    store: Arc<MemoryStore>,
    session: Session,
    faults: Arc<Faults>,
}

impl Memory {
    pub(crate) fn connect(store: Arc<MemoryStore>, sink: Weak<dyn Sink>) -> Self {
        Memory::connect_by(store, sink, Arc::default())
    }

    /// A client whose line has these faults.
    pub(crate) fn connect_by(store: Arc<MemoryStore>, sink: Weak<dyn Sink>, faults: Arc<Faults>) -> Self {
        Memory::connect_as(store, sink, faults, Session::random())
    }

    /// The same for this session, which other stores may know as well.
    pub(crate) fn connect_as(
        store: Arc<MemoryStore>,
        sink: Weak<dyn Sink>,
        faults: Arc<Faults>,
        session: Session,
    ) -> Self {
        let line = Line { sink, faults: Arc::clone(&faults) };
        store.state.lock().sessions.insert(session.id().clone(), line);
        Memory { store, session, faults }
    }

    fn reach<T: Send + 'static>(&self, answer: impl FnOnce() -> T) -> Pending<T> {
        if let Err(error) = self.session.check_process() {
            return Pending::now(Err(error));
        }
        if self.faults.is_cut.load(Ordering::SeqCst) {
            return Pending::now(Err(
                Error::unavailable("the store can't be reached").fix("this client is cut off from it")
            ));
        }
        if self.faults.hangs.load(Ordering::SeqCst) {
            return Pending::Later(Box::pin(std::future::pending()));
        }
        let answer = answer();
        if self.faults.loses_this_reply() {
            return Pending::now(Err(Error::unanswered("the store's answer was lost")));
        }
        Pending::now(Ok(answer))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.session.home.is_here() {
            self.store.state.lock().sessions.remove(self.session.id());
        }
    }
}

impl Backend for Memory {
    fn session(&self) -> &Session {
        &self.session
    }

    fn server_now(&self, _: &Name) -> Option<u64> {
        Some(self.store.clock.now().as_micros())
    }

    fn execute(&self, name: &Name, op: Op) -> Pending<Answer> {
        self.reach(|| self.store.execute(name, op))
    }

    fn list(&self, prefix: &str) -> Pending<Vec<Name>> {
        self.reach(|| self.store.list(prefix))
    }

    fn capabilities(&self) -> &'static [Capability] {
        use Capability::{Detach, Fifo, Force, List, LossPush};
        &[Fifo, List, Detach, Force, LossPush]
    }

    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}
