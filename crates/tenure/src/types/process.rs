//! Which process this is, and whether it is the one that something belongs to.
//!
//! A forked child has a copy of everything: of the leases, the connections and the queues, and of each mutex as it was at the fork, held
//! perhaps by a thread that the child does not have. It has none of its parent's rights. So before anything is locked, waited for or sent,
//! the pid is compared.
//!
//! The kernel is not asked each time: getpid takes longer than all else that passing a lease from task to task does. A thread that compared the
//! pid less than [`FRESH`] ago has not forked since, because a fork takes longer; and a child begins as the thread that forked.
//!
//! A future that waits has registered itself with a timer or a notification of the parent's. Polling or dropping it locks their mutexes, so
//! such a future is [`AtHome`].
//!
//! A pid does not tell apart a process and its child if both are the first process of a pid namespace.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::task::{Context, Poll};
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

/// A future of one process. A forked child does not poll it, but gets an error, and leaks it instead of dropping it.
///
/// The future is boxed: only memory that is not on the stack can be leaked.
#[derive(Debug)]
#[must_use = "a future does nothing until it is awaited"]
pub(crate) struct AtHome<F> {
    home: Home,
    /// `None` after it has ended.
    future: Option<Pin<Box<F>>>,
}

impl<F: Future> AtHome<F> {
    pub(crate) fn new(home: Home, future: F) -> Self {
        AtHome { home, future: Some(Box::pin(future)) }
    }
}

impl<F: Future> Future for AtHome<F> {
    type Output = Result<F::Output, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.home.check()?;
        let future = self.future.as_mut().expect("not polled after it has ended");
        let poll = future.as_mut().poll(cx);
        // If the future itself forks, nobody wakes the child's copy.
        self.home.check()?;
        if poll.is_ready() {
            self.future = None;
        }
        poll.map(Ok)
    }
}

impl<F> Drop for AtHome<F> {
    fn drop(&mut self) {
        if self.future.is_some() && !self.home.is_here() {
            std::mem::forget(self.future.take());
        }
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
    use std::sync::Arc;

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

    #[tokio::test]
    async fn a_future_of_another_process_is_neither_polled_nor_dropped() {
        let (witness, parents) = (Arc::new(()), Home(std::process::id() + 1));
        let waits = |witness: Arc<()>| async move {
            let _witness = witness;
            std::future::pending::<()>().await;
        };
        drop(AtHome::new(Home::here(), waits(Arc::clone(&witness))));
        assert_eq!(Arc::strong_count(&witness), 1, "dropped at home");
        assert_eq!(AtHome::new(Home::here(), async { 7 }).await.ok(), Some(7));
        let error = AtHome::new(parents, waits(Arc::clone(&witness))).await.expect_err("not its process");
        assert_eq!(error.kind(), ErrorKind::Forked);
        assert_eq!(Arc::strong_count(&witness), 2, "leaked in a child");
    }
}
