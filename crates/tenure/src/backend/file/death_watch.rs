//! Every waiter watches the client ahead of it: the waiter before it or, for the first waiter, the holder.
//!
//! So a death wakes one client, whatever the number of waiters, and that client then watches the next one ahead. A waiter sees a death
//! within a fraction of a millisecond, because no process reads the dead client's pipe any more. If a forked child still has the pipe
//! open, or a process has the lifeline, the waiter finds the death by polling. Polling also finds a grant whose message was lost.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::fs::OFlags;
use tokio::io::Interest;
use tokio::net::unix::pipe::Sender;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::execute::Reaping;
use super::open_directory::{OpenDirectory, index_of};
use super::{Shared, now, session};
use crate::core::record::{Op, Reply};
use crate::sync::Mutex;
use crate::time::clock::micros;
use crate::types::name::Name;
use crate::types::owner::Token;

/// How long a token waits before a task watches for it. Most waits end earlier, and cost an entry in a map and no timer.
const WATCH_AFTER: Duration = Duration::from_millis(5);
/// How many periods without a new wait pass before the timer for new waits ends.
const IDLE_PERIODS: usize = 20;
/// How often the first waiter polls.
const FIRST_POLLS_EVERY: Duration = Duration::from_millis(25);
/// How often the other waiters poll.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// The tokens of this client that wait.
#[derive(Debug, Default)]
pub(super) struct DeathWatch {
    waits: Mutex<Waits>,
    /// Whether there may be waits: most operations never wait, and skip the mutex.
    has_waits: AtomicBool,
}

#[derive(Debug, Default)]
struct Waits {
    tokens: HashMap<Token, Wait>,
    /// Starts a task for every wait that is no longer new.
    timer: Option<AbortHandle>,
}

#[derive(Debug)]
enum Wait {
    /// Since this µs of the lease clock.
    New(Name, u64),
    /// A task watches the client ahead.
    Watched(AbortHandle),
}

impl Wait {
    fn is_watched(&self) -> bool {
        matches!(self, Wait::Watched(task) if !task.is_finished())
    }
}

impl DeathWatch {
    /// Starts or stops to watch for a token, as the reply to its operation says.
    pub(super) fn update(&self, shared: &Arc<Shared>, name: &Name, op: &Op, reply: &Reply) {
        match (op, reply) {
            (Op::Acquire { token, .. }, Reply::Waiting { .. }) => {
                let mut waits = self.waits.lock();
                self.has_waits.store(true, Ordering::Release);
                if waits.tokens.get(token).is_some_and(Wait::is_watched) {
                    return;
                }
                waits.tokens.insert(token.clone(), Wait::New(name.clone(), now().lease));
                if waits.timer.as_ref().is_none_or(AbortHandle::is_finished)
                    && let Ok(runtime) = Handle::try_current()
                {
                    waits.timer = Some(runtime.spawn(watch_new_waits(Arc::downgrade(shared))).abort_handle());
                }
            }
            (
                Op::Acquire { token, .. }
                | Op::Release { token, .. }
                | Op::Leave { token }
                | Op::Adopt { from: token, .. },
                _,
            ) => self.stop(token),
            _ => {}
        }
    }

    pub(super) fn stop(&self, token: &Token) {
        if !self.has_waits.load(Ordering::Acquire) {
            return;
        }
        let mut waits = self.waits.lock();
        if let Some(Wait::Watched(task)) = waits.tokens.remove(token) {
            task.abort();
        }
        self.has_waits.store(!waits.tokens.is_empty(), Ordering::Release);
    }

    pub(super) fn stop_all(&self) {
        let Waits { tokens, timer } = std::mem::take(&mut *self.waits.lock());
        let watched = tokens.into_values().filter_map(|wait| match wait {
            Wait::Watched(task) => Some(task),
            Wait::New(..) => None,
        });
        for task in watched.chain(timer) {
            task.abort();
        }
    }

    /// Starts a task for every wait that is no longer new; false if no wait was new.
    fn watch_old_waits(&self, shared: &Weak<Shared>) -> bool {
        let now = now().lease;
        let mut has_new = false;
        for (token, wait) in &mut self.waits.lock().tokens {
            if let Wait::New(name, since) = wait {
                has_new = true;
                if now.saturating_sub(*since) >= micros(WATCH_AFTER) {
                    let task = tokio::spawn(watch(shared.clone(), name.clone(), token.clone()));
                    *wait = Wait::Watched(task.abort_handle());
                }
            }
        }
        has_new
    }
}

/// One timer for all the waits of a client, for as long as there are new ones.
async fn watch_new_waits(shared: Weak<Shared>) {
    let mut idle = 0;
    while idle < IDLE_PERIODS {
        tokio::time::sleep(WATCH_AFTER).await;
        let Some(strong) = shared.upgrade() else { return };
        idle = if strong.death_watch.watch_old_waits(&shared) { 0 } else { idle + 1 };
    }
}

async fn watch(shared: Weak<Shared>, name: Name, token: Token) {
    while let Some(next) = poll(&shared, &name, &token) {
        if next.pause.is_zero() {
            tokio::task::yield_now().await;
            continue;
        }
        match next.pipe.and_then(|pipe| Sender::from_owned_fd(pipe).ok()) {
            Some(pipe) => drop(tokio::time::timeout(next.pause, pipe.ready(Interest::ERROR)).await),
            None => tokio::time::sleep(next.pause).await,
        }
    }
}

/// When to poll again: after this pause, or earlier if the pipe loses its reader.
struct NextPoll {
    pause: Duration,
    pipe: Option<std::os::fd::OwnedFd>,
}

/// Looks at the client ahead, and reaps it if it is dead; `None` if the token no longer waits.
fn poll(shared: &Weak<Shared>, name: &Name, token: &Token) -> Option<NextPoll> {
    let shared = shared.upgrade()?;
    let soon = Some(NextPoll { pause: WATCH_AFTER, pipe: None });
    let Ok(store) = shared.store() else { return soon };
    // The waiter's heartbeats meet the same error, and report it.
    let Ok(Some(state)) = shared.look(&store, index_of(name)) else { return soon };
    let record = state.record(name)?;
    if record.is_held_by(token) {
        shared.sink.upgrade()?.verify(name);
        return None;
    }
    let ahead = record.waiting().take_while(|other| *other != token).last();
    if !record.waiting().any(|other| other == token) {
        return None;
    }
    let is_first = ahead.is_none();
    let pause = if is_first { FIRST_POLLS_EVERY } else { POLL_EVERY };
    let Some(ahead) = ahead.or_else(|| record.process_bound_holder(now())) else {
        return Some(NextPoll { pause, pipe: None });
    };
    match shared.reap_dead(&store, name, [ahead]) {
        Ok(Reaping::NoneDead) => {}
        // The client ahead of the dead one may be dead too. If many died together, no death costs a pause.
        Ok(Reaping::Reaped) => return Some(NextPoll { pause: Duration::ZERO, pipe: None }),
        Ok(Reaping::Blocked) | Err(_) => return soon,
    }
    match pipe_of(&store, ahead) {
        Some(Ok(pipe)) => Some(NextPoll { pause, pipe: Some(pipe) }),
        // The process is gone, and its lifeline keeps the session alive.
        Some(Err(())) => soon,
        None => Some(NextPoll { pause, pipe: None }),
    }
}

/// The pipe of another process: an error if no process reads it, `None` if it belongs to this process.
fn pipe_of(store: &OpenDirectory, token: &Token) -> Option<Result<std::os::fd::OwnedFd, ()>> {
    let id = token.session().filter(|id| !id.is_of_process(store.process))?;
    Some(store.dir.open_pipe(&session::pipe_name(&id), OFlags::WRONLY).map_err(drop))
}
