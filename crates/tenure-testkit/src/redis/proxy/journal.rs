//! What has passed the proxy, for tests that wait for it instead of sleeping.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// How far a command has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// It came from the client.
    Received,
    /// It was sent on to the server.
    Forwarded,
    /// The server answered: it was executed, or refused.
    Answered,
    /// The answer was sent on to the client.
    Delivered,
}

/// So long something is waited for: more than a busy machine takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// So many commands are remembered: a test under load asks only for the last ones.
const REMEMBERED: usize = 100_000;

#[derive(Debug, Default)]
pub(super) struct Journal {
    state: Mutex<State>,
    changed: Condvar,
    changes: watch::Sender<()>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Open connections of clients.
    pub(super) open: usize,
    /// Connections so far.
    pub(super) accepted: u64,
    /// The number of the first command that is remembered.
    first: u64,
    commands: VecDeque<Passage>,
}

#[derive(Debug)]
struct Passage {
    words: Vec<Vec<u8>>,
    step: Step,
}

impl State {
    pub(super) fn commands(&self) -> u64 {
        self.first + self.commands.len() as u64
    }

    pub(super) fn names(&self) -> Vec<String> {
        let name = |passage: &Passage| String::from_utf8_lossy(&passage.words[0]).to_uppercase();
        self.commands.iter().map(name).collect()
    }

    pub(super) fn has(&self, step: Step, pred: &impl Fn(&[Vec<u8>]) -> bool) -> bool {
        self.commands.iter().any(|passage| passage.step >= step && pred(&passage.words))
    }

    fn forget(&mut self, count: usize) {
        self.commands.drain(..count);
        self.first += count as u64;
    }
}

impl Journal {
    pub(super) fn opened(&self) {
        self.change(|state| {
            state.open += 1;
            state.accepted += 1;
        });
    }

    pub(super) fn closed(&self) {
        self.change(|state| state.open -= 1);
    }

    /// Enters a command that came from a client, and says which number it has.
    pub(super) fn received(&self, words: &[Vec<u8>]) -> u64 {
        self.change(|state| {
            if state.commands.len() == REMEMBERED {
                state.forget(1);
            }
            state.commands.push_back(Passage { words: words.to_vec(), step: Step::Received });
            state.commands() - 1
        })
    }

    /// Command `number` has come as far as `step`.
    pub(super) fn reached(&self, number: u64, step: Step) {
        self.change(|state| {
            let place = number.checked_sub(state.first).and_then(|place| usize::try_from(place).ok());
            if let Some(passage) = place.and_then(|place| state.commands.get_mut(place)) {
                passage.step = passage.step.max(step);
            }
        });
    }

    pub(super) fn forget(&self) {
        self.change(|state| state.forget(state.commands.len()));
    }

    pub(super) fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.lock())
    }

    pub(super) fn wait(&self, what: &str, is_so: impl Fn(&State) -> bool) {
        let waiting = |state: &mut State| !is_so(state);
        let (state, outcome) = self
            .changed
            .wait_timeout_while(self.lock(), PATIENCE, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        drop(state);
        assert!(
            !outcome.timed_out(),
            "waited {PATIENCE:?} in vain until {what}; commands: {:?}",
            self.last()
        );
    }

    pub(super) async fn wait_async(&self, what: &str, is_so: impl Fn(&State) -> bool) {
        let mut changes = self.changes.subscribe();
        let until_so = async {
            while !self.read(&is_so) {
                changes.changed().await.expect("the journal outlives those who read it");
            }
        };
        let outcome = tokio::time::timeout(PATIENCE, until_so).await;
        assert!(outcome.is_ok(), "waited {PATIENCE:?} in vain until {what}; commands: {:?}", self.last());
    }

    fn last(&self) -> Vec<String> {
        let names = self.read(State::names);
        names[names.len().saturating_sub(50)..].to_vec()
    }

    fn change<T>(&self, make: impl FnOnce(&mut State) -> T) -> T {
        let outcome = make(&mut self.lock());
        self.changed.notify_all();
        self.changes.send_replace(());
        outcome
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
