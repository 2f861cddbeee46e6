//! Undoes what a store may have executed although nobody wants it any more.
//!
//! A request that the store did not answer may be executed until the moment that it carries, its `may_execute_until`. So one undo is
//! not enough: the queue sends it now, again until the store answers, and once more after that moment (rule 6 of waiting). The expiry in
//! the store is the backstop, so the queue gives up after it.
//!
//! There is one queue for each store, and one task sends its entries in their order: of two entries on one name, the first is sent first.
//! The queue knows the store by a weak reference and keeps nothing open. Layered has a queue for its outer store, quorum one for each server.
//!
//! `engine/release.rs` can use it, too: the client's backend is the target, `leave` is `undo_now` and `undo_after`, `compensate_after` is
//! `undo_after`, and [`Compensations::pending_until`] replaces its `Leftovers`. It sends the first undo itself, because an in-process store
//! answers inside a drop.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::Pending;
use crate::core::record::Op;
use crate::sync::Mutex;
use crate::time::backoff::Backoff;
use crate::time::clock::{Clock, Moment};
use crate::types::error::Error;
use crate::types::name::Name;

/// How long one attempt may take.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(2);
/// How far a moment may be off that was translated to the store's clock.
const SLACK: Duration = Duration::from_millis(20);
/// How many entries a queue has at most. If the store is away for long, the oldest are dropped: their leases expire first.
const MOST_PENDING: usize = 4_096;

/// A store that executes compensations.
pub(crate) trait Target: Send + Sync {
    /// Sends an operation that undoes an earlier one on this name.
    fn undo(&self, name: &Name, undo: Op) -> Pending<()>;
}

/// The pending compensations of one store.
pub(crate) struct Compensations(Arc<Queue>);

struct Queue {
    target: Weak<dyn Target>,
    clock: Clock,
    state: Mutex<State>,
    added: Notify,
}

#[derive(Default)]
struct State {
    pending: VecDeque<Compensation>,
    /// A task is sending them.
    is_sending: bool,
}

/// One undo: sent at `due` at the earliest, and of no use after `until`.
struct Compensation {
    name: Name,
    undo: Op,
    due: Moment,
    until: Moment,
}

impl Compensations {
    pub(crate) fn new(target: Weak<dyn Target>, clock: Clock) -> Self {
        Compensations(Arc::new(Queue { target, clock, state: Mutex::default(), added: Notify::new() }))
    }

    /// Undoes it now, and again until the store answers. What it undoes lasts for `ttl` in the store.
    pub(crate) fn undo_now(&self, name: &Name, undo: Op, ttl: Duration) {
        self.add(name, undo, self.0.clock.now(), ttl);
    }

    /// Undoes it once the store refuses the unacknowledged request. Does nothing if that moment is over.
    pub(crate) fn undo_after(&self, may_execute_until: Moment, name: &Name, undo: Op, ttl: Duration) {
        if self.is_needed_after(may_execute_until) {
            self.add(name, undo, may_execute_until + SLACK, ttl);
        }
    }

    /// Whether [`undo_after`](Self::undo_after) does anything: an earlier undo came after the last moment of the request otherwise.
    pub(crate) fn is_needed_after(&self, may_execute_until: Moment) -> bool {
        self.0.clock.now() < may_execute_until + SLACK
    }

    /// Until when the store may have something that is still to be undone.
    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn pending_until(&self) -> Option<Moment> {
        let now = self.0.clock.now();
        self.0.state.lock().pending.iter().map(|entry| entry.until).filter(|until| *until > now).max()
    }

    fn add(&self, name: &Name, undo: Op, due: Moment, ttl: Duration) {
        let mut state = self.0.state.lock();
        if state.pending.len() >= MOST_PENDING {
            state.pending.pop_front();
        }
        state.pending.push_back(Compensation { name: name.clone(), undo, due, until: due + ttl });
        if state.is_sending {
            return self.0.added.notify_one();
        }
        // Without a runtime, the next entry that is added inside one starts the task.
        let Ok(runtime) = Handle::try_current() else { return };
        state.is_sending = true;
        drop(state);
        let sending = Sending { queue: Arc::clone(&self.0), is_done: false };
        drop(runtime.spawn(sending.run()));
    }
}

/// The task that sends. Its runtime may shut down before the queue is empty; then the next entry starts another task.
struct Sending {
    queue: Arc<Queue>,
    is_done: bool,
}

impl Drop for Sending {
    fn drop(&mut self) {
        if !self.is_done {
            self.queue.state.lock().is_sending = false;
        }
    }
}

enum Next {
    Send(Compensation),
    SleepUntil(Moment),
    Done,
}

impl Sending {
    async fn run(mut self) {
        let (queue, mut backoff) = (Arc::clone(&self.queue), Backoff::new());
        loop {
            let entry = match queue.next() {
                Next::Send(entry) => entry,
                Next::SleepUntil(due) => {
                    queue.clock.until(due, queue.added.notified()).await;
                    continue;
                }
                Next::Done => {
                    self.is_done = true;
                    return;
                }
            };
            let Some(target) = queue.target.upgrade() else { return };
            let answer = target.undo(&entry.name, entry.undo.clone());
            drop(target);
            let limit = queue.clock.now() + LONGEST_ATTEMPT;
            match queue.clock.until(limit, answer).await {
                Some(Ok(())) => backoff = Backoff::new(),
                // The store would refuse it again, and the other entries would wait for it.
                Some(Err(error)) if !error.is_transient() => log(&entry, &error),
                _ => {
                    queue.state.lock().pending.push_front(entry);
                    queue.clock.sleep_until(queue.clock.now() + backoff.pause()).await;
                }
            }
        }
    }
}

fn log(entry: &Compensation, error: &Error) {
    tracing::debug!(target: "tenure", name = %entry.name, %error, "the store refuses to undo a request; it expires there");
}

impl Queue {
    fn next(&self) -> Next {
        let (mut state, now) = (self.state.lock(), self.clock.now());
        state.pending.retain(|entry| entry.until > now);
        let first_due = state.pending.iter().position(|entry| entry.due <= now);
        if let Some(entry) = first_due.and_then(|index| state.pending.remove(index)) {
            return Next::Send(entry);
        }
        match state.pending.iter().map(|entry| entry.due).min() {
            Some(due) => Next::SleepUntil(due),
            None => {
                // Under the same lock that `add` takes, so that no entry is left without a task.
                state.is_sending = false;
                Next::Done
            }
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::time::manual_clock::ManualClock;
    use crate::types::owner::{Session, Token};

    const MS: Duration = Duration::from_millis(1);
    const TTL: Duration = Duration::from_secs(3);

    /// A store that notes what it is asked to undo, and answers what the test says.
    #[derive(Default)]
    struct Notes {
        undone: Mutex<Vec<String>>,
        error: Mutex<Option<Error>>,
    }

    impl Target for Notes {
        fn undo(&self, name: &Name, _: Op) -> Pending<()> {
            self.undone.lock().push(name.as_str().to_owned());
            Pending::now(self.error.lock().clone().map_or(Ok(()), Err))
        }
    }

    struct Scene {
        time: Arc<ManualClock>,
        store: Arc<Notes>,
        queue: Compensations,
    }

    impl Scene {
        fn new() -> Self {
            let (time, store) = (Arc::new(ManualClock::new()), Arc::new(Notes::default()));
            let target: Weak<dyn Target> = Arc::<Notes>::downgrade(&store);
            let queue = Compensations::new(target, Clock::Manual(Arc::clone(&time)));
            Scene { time, store, queue }
        }

        fn undo(&self, name: &str, after: Option<Moment>) {
            let undo = Op::Leave { token: Token::fresh(&Session::random(), "", TTL) };
            let name = Name::new(name).expect("a name");
            match after {
                None => self.queue.undo_now(&name, undo, TTL),
                Some(moment) => self.queue.undo_after(moment, &name, undo, TTL),
            }
        }

        fn undone(&self) -> Vec<String> {
            self.store.undone.lock().clone()
        }
    }

    // Rule 6
    #[tokio::test]
    async fn an_undo_is_sent_now_and_after_the_last_moment_of_the_request() {
        let scene = Scene::new();
        let until = scene.time.now() + 100 * MS;
        scene.undo("a", Some(until));
        scene.time.advance(MS).await;
        scene.undo("a", None);
        scene.time.advance(MS).await;
        assert_eq!(scene.undone(), ["a"], "an entry that is due does not wait for one that is not");
        scene.time.advance(100 * MS).await;
        assert_eq!(scene.undone(), ["a"], "the clocks may differ a little");
        scene.time.advance(SLACK).await;
        assert_eq!(scene.undone(), ["a", "a"]);
        assert_eq!(scene.queue.pending_until(), None);
        scene.undo("a", Some(until));
        scene.time.advance(TTL).await;
        assert_eq!(scene.undone().len(), 2, "the request can't be executed any more");
    }

    #[tokio::test]
    async fn an_undo_is_repeated_until_the_store_answers_or_the_lease_expires() {
        let scene = Scene::new();
        *scene.store.error.lock() = Some(Error::unavailable("away"));
        scene.undo("a", None);
        for _ in 0..20 {
            scene.time.advance(100 * MS).await;
        }
        assert!(scene.undone().len() > 3 && scene.queue.pending_until().is_some());
        *scene.store.error.lock() = None;
        scene.undo("b", None);
        for _ in 0..10 {
            scene.time.advance(100 * MS).await;
        }
        assert_eq!(scene.undone().iter().rev().take(2).collect::<Vec<_>>(), ["b", "a"], "in their order");
        *scene.store.error.lock() = Some(Error::unavailable("away"));
        scene.undo("c", None);
        for _ in 0..40 {
            scene.time.advance(100 * MS).await;
        }
        let sent = scene.undone().len();
        *scene.store.error.lock() = None;
        scene.time.advance(TTL).await;
        assert_eq!(scene.undone().len(), sent, "it has expired in the store");
    }

    #[tokio::test]
    async fn an_undo_that_the_store_refuses_keeps_no_other_waiting() {
        let scene = Scene::new();
        *scene.store.error.lock() = Some(Error::unsupported("never"));
        scene.undo("a", None);
        scene.undo("b", None);
        scene.time.advance(MS).await;
        assert_eq!(scene.undone(), ["a", "b"]);
    }

    #[tokio::test]
    async fn a_queue_keeps_no_store_open() {
        let scene = Scene::new();
        *scene.store.error.lock() = Some(Error::unavailable("away"));
        scene.undo("a", None);
        scene.time.advance(MS).await;
        assert_eq!(Arc::strong_count(&scene.store), 1);
    }
}
