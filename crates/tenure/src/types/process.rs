//! Which process this is, and whether it is the one that something belongs to.
//!
//! A forked child has a copy of everything: of the leases, the connections and the queues, and of each mutex as it was at the fork, held
//! perhaps by a thread that the child does not have. It has none of its parent's rights. So before anything is locked, waited for or sent,
//! the pid is compared.
//!
//! The kernel is not asked each time: getpid takes longer than all else that passing a lease from task to task does. A thread that compared the
//! pid less than [`FRESH`] ago has not forked since, because a fork takes longer; and a child begins as the thread that forked.
//!
//! A pid does not tell apart a process and its child if both are the first process of a pid namespace.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::{Duration, Instant};

use crate::types::error::Error;

/// For how long a thread knows that it has not forked. A fork takes tens of µs: copying the page tables alone is many times this.
const FRESH: Duration = Duration::from_micros(5);

/// The pid of this process.
fn id() -> u32 {
    thread_local! {
        /// When this thread last compared, and the pid.
        static ASKED: Cell<Option<(Instant, u32)>> = const { Cell::new(None) };
    }
    // The time from before the question: the answer is never taken for newer than it is.
    let now = Instant::now();
    let pid = match ASKED.get() {
        Some((at, pid)) if now.duration_since(at) < FRESH => pid,
        _ => std::process::id(),
    };
    ASKED.set(Some((now, pid)));
    pid
}

/// The process that something belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home(u32);

impl Home {
    /// This process.
    pub(crate) fn here() -> Self {
        Home(id())
    }

    /// False in a forked child.
    pub(crate) fn is_here(self) -> bool {
        id() == self.0
    }

    /// Refuses a forked child.
    pub(crate) fn check(self) -> Result<(), Error> {
        if self.is_here() { Ok(()) } else { Err(Error::forked()) }
    }
}

/// The process that uses something first. A child may use what its parent made and never used.
#[derive(Debug)]
pub(crate) struct FirstUser(AtomicU32);

impl FirstUser {
    const NOBODY: u32 = 0;

    pub(crate) const fn new() -> Self {
        FirstUser(AtomicU32::new(Self::NOBODY))
    }

    /// Refuses a forked child of the first user. The first call makes its process the first user.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.is_this_process() { Ok(()) } else { Err(Error::forked()) }
    }

    /// False in a forked child of the first user.
    pub(crate) fn is_this_process(&self) -> bool {
        let here = id();
        match self.0.load(Ordering::Relaxed) {
            Self::NOBODY => {
                let first = self.0.compare_exchange(Self::NOBODY, here, Ordering::SeqCst, Ordering::SeqCst);
                // A child that is forked right now sees this before it sees a mutex that is locked after it.
                fence(Ordering::SeqCst);
                first.map_or_else(|first| first == here, |_| true)
            }
            first => first == here,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::error::ErrorKind;

    #[test]
    fn what_another_process_used_first_is_refused() {
        let unused = FirstUser::new();
        assert!(unused.check().is_ok() && unused.check().is_ok(), "the first user goes on to use it");
        let copied = FirstUser(AtomicU32::new(std::process::id() + 1));
        assert_eq!(copied.check().unwrap_err().kind(), ErrorKind::Forked);
        assert_eq!(Home(std::process::id() + 1).check().unwrap_err().kind(), ErrorKind::Forked);
        assert!(Home::here().is_here());
    }
}
