//! Which commands meet which fault.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What happens to a command, or to its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Executed; when its reply comes, the connection is reset instead.
    SwallowThenReset,
    /// Executed, but from its reply on nothing comes back on this connection, which stays open. Later commands are executed too.
    Silence,
    /// Not executed, nor is any later command of this connection, which stays open. Replies to earlier ones and pushes still come.
    Drop,
    /// Sent on later, with all later commands of its connection behind it; also when the client has gone meanwhile.
    DelayCommand(Duration),
    /// The reply comes later, with all that follows it behind it.
    DelayReply(Duration),
    /// Executed twice, one right after the other; only the first reply comes back.
    Duplicate,
    /// Executed, but the connection is reset as soon as it was sent on.
    ResetAfter,
    /// Not executed: the connection is reset.
    ResetBefore,
}

/// Satisfied by the commands of this name, in capitals or not.
pub fn named(name: &str) -> impl Fn(&[Vec<u8>]) -> bool + Send + Clone + 'static {
    let name = name.to_owned();
    move |words| words.first().is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
}

pub(super) type Predicate = Box<dyn Fn(&[Vec<u8>]) -> bool + Send>;

struct Rule {
    fault: Fault,
    left: u64,
    pred: Predicate,
}

#[derive(Default)]
pub(super) struct Rules {
    rules: Mutex<Vec<Rule>>,
    met: AtomicU64,
}

impl Rules {
    pub(super) fn add(&self, fault: Fault, left: u64, pred: Predicate) {
        self.lock().push(Rule { fault, left, pred });
    }

    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    pub(super) fn met(&self) -> u64 {
        self.met.load(Ordering::Relaxed)
    }

    /// The fault that this command meets; it counts as met.
    pub(super) fn meet(&self, words: &[Vec<u8>]) -> Option<Fault> {
        let mut rules = self.lock();
        let rule = rules.iter_mut().find(|rule| rule.left > 0 && (rule.pred)(words))?;
        rule.left -= 1;
        let fault = rule.fault;
        rules.retain(|rule| rule.left > 0);
        self.met.fetch_add(1, Ordering::Relaxed);
        Some(fault)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.lock().iter().map(|rule| (rule.fault, rule.left))).finish()
    }
}
