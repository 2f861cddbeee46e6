//! Background work of one client, on whatever runtime there is.
//!
//! A guard may be dropped outside a runtime, on another runtime, or while its own shuts down; a domain in a `static` outlives the runtimes
//! of many tests. So background work starts on the caller's runtime if that can measure time, and else on one that used the client before.
//! A runtime that is gone drops the work at once. All work that is spawned here cleans up when it is dropped, and the lease's expiry is the
//! backstop.

use std::future::Future;
use std::sync::Arc;

use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;

#[cfg(not(shuttle))]
use crate::backend::runtime;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::time::clock::Clock;

/// How many runtimes are remembered.
const MOST_RUNTIMES: usize = 8;

#[derive(Clone, Debug, Default)]
pub(crate) struct Tasks(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// The runtimes that use this client, the last one last.
    runtimes: Mutex<Vec<Handle>>,
    /// Time is tokio's, and not that of a test.
    #[cfg_attr(shuttle, expect(dead_code, reason = "no runtime of tokio's is chosen"))]
    needs_time: bool,
    /// Which runtimes can measure time, the last one last.
    #[cfg_attr(shuttle, expect(dead_code, reason = "no runtime of tokio's is chosen"))]
    with_time: Mutex<Vec<(Id, bool)>>,
    running: AtomicUsize,
    /// How many calls of `run` have not ended.
    runs: AtomicUsize,
    finished: Notify,
}

impl Tasks {
    /// Work that sleeps on this clock.
    pub(crate) fn on(clock: &Clock) -> Self {
        let needs_time = !matches!(clock, Clock::Manual(_));
        Tasks(Arc::new(State { needs_time, ..State::default() }))
    }

    /// Remembers the caller's runtime, for work that is started outside of one. False if this client never saw a runtime.
    pub(crate) fn see_runtime(&self) -> bool {
        let current = Handle::try_current();
        let mut runtimes = self.0.runtimes.lock();
        let Ok(handle) = current else { return cfg!(shuttle) || !runtimes.is_empty() };
        if runtimes.last().is_some_and(|last| last.id() == handle.id()) {
            return true;
        }
        runtimes.retain(|other| other.id() != handle.id());
        if runtimes.len() == MOST_RUNTIMES {
            runtimes.remove(0);
        }
        runtimes.push(handle);
        true
    }

    /// Another runtime, if the caller's shuts down. It is forgotten until it is seen again, so that one that is gone too is tried once.
    pub(crate) fn take_other_runtime(&self) -> Option<Handle> {
        let mut runtimes = self.0.runtimes.lock();
        if let Ok(handle) = Handle::try_current() {
            runtimes.retain(|other| other.id() != handle.id());
        }
        runtimes.pop()
    }

    /// Starts work that `all_done` waits for.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.spawn_daemon(self.counted(work));
    }

    fn counted<F>(&self, work: F) -> impl Future<Output = ()> + Send + use<F>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.0.running.fetch_add(1, Ordering::SeqCst);
        let running = Running(Arc::clone(&self.0));
        async move {
            let _running = running;
            work.await;
        }
    }

    /// The same on this runtime.
    pub(crate) fn spawn_on(&self, runtime: &Handle, work: impl Future<Output = ()> + Send + 'static) {
        drop(runtime.spawn(self.counted(work)));
    }

    /// Starts work that ends by itself when its client is gone.
    pub(crate) fn spawn_daemon(&self, work: impl Future<Output = ()> + Send + 'static) {
        #[cfg(shuttle)]
        drop(shuttle::future::spawn(work));
        #[cfg(not(shuttle))]
        if let Some(handle) = self.runtime() {
            drop(handle.spawn(work));
        }
    }

    /// Where to start work: on the caller's runtime or else the last one, preferably on one that can measure time.
    #[cfg(not(shuttle))]
    fn runtime(&self) -> Option<Handle> {
        let nearest = Handle::try_current().ok().or_else(|| self.last_runtime())?;
        if !self.0.needs_time || self.has_time(&nearest) {
            return Some(nearest);
        }
        let others: Vec<_> = self.0.runtimes.lock().iter().rev().cloned().collect();
        Some(others.into_iter().find(|other| self.has_time(other)).unwrap_or(nearest))
    }

    /// Whether the runtime can measure time; it is tried out once.
    #[cfg(not(shuttle))]
    fn has_time(&self, runtime: &Handle) -> bool {
        let known = self.0.with_time.lock().iter().rev().find(|(id, _)| *id == runtime.id()).copied();
        if let Some((_, has_time)) = known {
            return has_time;
        }
        let has_time = runtime::has_time(runtime);
        let mut with_time = self.0.with_time.lock();
        if with_time.len() == MOST_RUNTIMES {
            with_time.remove(0);
        }
        with_time.push((runtime.id(), has_time));
        has_time
    }

    /// Whether there is a runtime to start work on.
    pub(crate) fn has_runtime(&self) -> bool {
        cfg!(shuttle) || Handle::try_current().is_ok() || self.last_runtime().is_some()
    }

    fn last_runtime(&self) -> Option<Handle> {
        self.0.runtimes.lock().last().cloned()
    }

    /// Counts a call of `run`, until it has ended.
    pub(crate) fn run_begins(&self) {
        self.0.runs.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn run_ended(&self) {
        self.0.runs.fetch_sub(1, Ordering::SeqCst);
        self.0.finished.notify_waiters();
    }

    /// Waits until nothing that was spawned is running.
    pub(crate) async fn all_done(&self) {
        self.none_left(|state| &state.running).await;
    }

    /// Waits until no call of `run` is left.
    pub(crate) async fn runs_ended(&self) {
        self.none_left(|state| &state.runs).await;
    }

    async fn none_left(&self, count: impl Fn(&State) -> &AtomicUsize) {
        loop {
            let finished = self.0.finished.notified();
            if count(&self.0).load(Ordering::SeqCst) == 0 {
                return;
            }
            finished.await;
        }
    }
}

struct Running(Arc<State>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
        self.0.finished.notify_waiters();
    }
}
