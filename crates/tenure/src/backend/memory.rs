//! A map of records in this process: the reference for every other store, and the test double for users.
//!
//! It answers immediately, so it works inside a drop and without a runtime. Several clients share one store by its name or through
//! [`testing`](crate::api::testing). Each has its own session, as if it were a process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use super::{Admin, Answer, Backend, Capability, Grant, Pending, Sink};
use crate::core::record::{Notice, Now, Op, Record, Reply};
use crate::sync::Mutex;
use crate::time::clock::Clock;
use crate::types::error::Error;
use crate::types::name::{Name, NameMap};
use crate::types::owner::{Session, SessionId, Token};
use crate::types::process::{FirstUser, Home};

/// The number of records from which on a store looks for expired leases that no operation has touched.
const SWEEP_AT_LEAST: usize = 64;

/// The names of one store, and the clients that are connected to it.
#[derive(Debug)]
pub(crate) struct MemoryStore {
    clock: Clock,
    /// The process that made it; a forked child has a copy of the store.
    home: Home,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    records: NameMap<Record>,
    /// The highest fence of the dropped records.
    floor: u64,
    sweep_at: usize,
    sessions: HashMap<SessionId, Connection>,
}

/// How the store notifies a client.
struct Connection {
    sink: Weak<dyn Sink>,
    faults: Arc<Faults>,
}

/// The faults of a client's connection to the store, in tests. The store does not notice them.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Requests fail immediately, and notices are lost.
    pub(crate) is_cut: AtomicBool,
    /// Requests are not executed and never answered, and notices are lost.
    pub(crate) hangs: AtomicBool,
    /// How many requests the store executes without an answer.
    pub(crate) lost_replies: AtomicUsize,
}

impl Faults {
    fn loses_notices(&self) -> bool {
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

    /// The store of this name in this process. It lives as long as a client uses it.
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

    /// Returns an error in a forked child: a thread of the parent may have been changing the store.
    pub(crate) fn check_process(&self) -> Result<(), Error> {
        self.home.check()
    }

    fn now(&self) -> Now {
        Now { lease: self.clock.now().as_micros(), wall: self.clock.wall_micros() }
    }

    /// Applies an operation, then notifies the clients that it concerns. A client that can't be reached is dead: it is reaped, and the next
    /// waiter is notified.
    fn execute(&self, name: &Name, op: Op) -> Answer {
        let now = self.now();
        let (mut notices, mut sent, mut lost) = (Vec::new(), Vec::new(), Vec::new());
        let mut state = self.state.lock();
        let reply = state.apply(name, op, now, &mut notices);
        while let Some(notice) = notices.pop() {
            let (token, is_optional) = match &notice {
                Notice::Granted { token, polls, .. } => (token, *polls),
                Notice::Revoked { token } => (token, true),
            };
            match state.connection(token) {
                // Not dropped under the mutex: it may be the last handle of its client.
                Some((sink, true)) => lost.push(sink),
                Some((sink, false)) => sent.push((sink, notice)),
                None if is_optional => {}
                None => {
                    let death = Op::Death { token: token.clone() };
                    state.apply(name, death, now, &mut notices);
                }
            }
        }
        drop(state);
        for (sink, notice) in sent {
            match notice {
                Notice::Granted { token, fence, at, term, .. } => {
                    sink.granted(name, Grant { token, fence, at, term });
                }
                Notice::Revoked { .. } => sink.verify(name),
            }
        }
        Answer::new(reply, Some(now.lease))
    }

    /// The names in use that start with `prefix`.
    fn list(&self, prefix: &str) -> Vec<Name> {
        let now = self.now();
        let state = self.state.lock();
        let in_use = state.records.iter().filter(|(_, record)| !record.is_idle(now));
        in_use.map(|(name, _)| name.clone()).filter(|name| name.as_str().starts_with(prefix)).collect()
    }

    /// The number of records, including unused ones, but not those that only remember a broken lease.
    #[cfg(test)]
    pub(crate) fn record_count(&self) -> usize {
        let now = self.now();
        let is_trace = |record: &Record| record.is_idle(now) && !record.is_over(now);
        self.state.lock().records.values().filter(|record| !is_trace(record)).count()
    }
}

type ByName = HashMap<String, Weak<MemoryStore>>;

/// The named stores of one process. A forked child has a copy of its parent's, under a mutex that a thread of the parent may have locked at
/// the fork. So the child never touches them, and uses the first unused entry of the array.
struct SharedStores {
    user: FirstUser,
    by_name: std::sync::Mutex<Option<ByName>>,
}

/// How many processes, each forked by the one before it, may have named stores.
const MOST_GENERATIONS: usize = 64;

impl SharedStores {
    fn of_this_process() -> Result<&'static Self, Error> {
        static GENERATIONS: [SharedStores; MOST_GENERATIONS] =
            [const { SharedStores::new() }; MOST_GENERATIONS];
        let ours = GENERATIONS.iter().find(|stores| stores.user.is_this_process());
        ours.ok_or_else(|| {
            let what = "process can't have another named memory store";
            let reason = format!("it has {MOST_GENERATIONS} forked ancestors, and each of them used one");
            Error::unsupported(what).because(reason).fix("use `memory:` without a name")
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

    /// Drops unused records each time that the number of records has doubled.
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

    /// The client of a token, and whether its connection loses notices; `None` if the client is gone.
    fn connection(&self, token: &Token) -> Option<(Arc<dyn Sink>, bool)> {
        let connection = self.sessions.get(&token.session()?)?;
        Some((connection.sink.upgrade()?, connection.faults.loses_notices()))
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

    /// A client whose connection has these faults.
    pub(crate) fn connect_by(store: Arc<MemoryStore>, sink: Weak<dyn Sink>, faults: Arc<Faults>) -> Self {
        Memory::connect_as(store, sink, faults, Session::random())
    }

    /// The same for this session, which other stores may know too.
    pub(crate) fn connect_as(
        store: Arc<MemoryStore>,
        sink: Weak<dyn Sink>,
        faults: Arc<Faults>,
        session: Session,
    ) -> Self {
        let connection = Connection { sink, faults: Arc::clone(&faults) };
        store.state.lock().sessions.insert(session.id().clone(), connection);
        Memory { store, session, faults }
    }

    fn reach<T: Send + 'static>(&self, answer: impl FnOnce() -> T) -> Pending<T> {
        if let Err(error) = self.session.check_process() {
            return Pending::now(Err(error));
        }
        if self.faults.is_cut.load(Ordering::SeqCst) {
            let error =
                Error::unavailable("the store can't be reached").because("a test cut this client off");
            return Pending::now(Err(error));
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
}

/// In tests it is a part of other stores.
#[cfg(all(test, not(shuttle)))]
impl crate::backend::Component for Memory {}

impl Admin for Memory {
    fn capabilities(&self) -> &'static [Capability] {
        use Capability::{Detach, Fifo, Force, List, LossPush};
        &[Fifo, List, Detach, Force, LossPush]
    }

    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}
