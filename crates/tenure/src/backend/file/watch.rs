//! Whoever waits watches the one ahead of it: the waiter before it, or, for the first, the holder.
//!
//! So a death wakes one client, whatever the number of waiters, and the next one in the row is watched in turn. A death is seen by
//! the pipe, which nobody reads any more, within a fraction of a millisecond; where a forked child still holds the pipe open, or a
//! lifeline is held, by looking every now and then. The same look finds a grant of which the message was lost.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::fs::OFlags;
use tokio::io::Interest;
use tokio::net::unix::pipe::Sender;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::place::{Place, index_of};
use super::{Shared, now, session};
use crate::core::record::{Op, Reply};
use crate::sync::Mutex;
use crate::time::clock::micros;
use crate::types::name::Name;
use crate::types::owner::Token;

/// Most waits are over before it is worth to watch: then they cost an entry in a map, and no timer.
const FRESH: Duration = Duration::from_millis(5);
/// How many times in a row nobody was fresh before it is not looked for any more.
const LULL: usize = 20;
/// How often the first of the queue looks by itself.
const FIRST_LOOKS_EVERY: Duration = Duration::from_millis(25);
/// How often the others do.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The tokens of this client that wait.
#[derive(Debug, Default)]
pub(super) struct Watches {
    waits: Mutex<Waits>,
    /// Whether there may be any: most operations are not waited for.
    are_there: AtomicBool,
}

#[derive(Debug, Default)]
struct Waits {
    tokens: HashMap<Token, Wait>,
    /// Looks for waits that are not fresh any more.
    sentry: Option<AbortHandle>,
}

#[derive(Debug)]
enum Wait {
    /// Since this µs of the lease clock.
    Fresh(Name, u64),
    /// A task watches the one ahead.
    Watched(AbortHandle),
}

impl Wait {
    fn is_minded(&self) -> bool {
        matches!(self, Wait::Watched(task) if !task.is_finished())
    }
}

impl Watches {
    /// Watches as long as a token waits.
    pub(super) fn mind(&self, shared: &Arc<Shared>, name: &Name, op: &Op, reply: &Reply) {
        match (op, reply) {
            (Op::Acquire { token, .. }, Reply::Waiting { .. }) => {
                let mut waits = self.waits.lock();
                self.are_there.store(true, Ordering::Release);
                if waits.tokens.get(token).is_some_and(Wait::is_minded) {
                    return;
                }
                waits.tokens.insert(token.clone(), Wait::Fresh(name.clone(), now().lease));
                if waits.sentry.as_ref().is_none_or(AbortHandle::is_finished)
                    && let Ok(runtime) = Handle::try_current()
                {
                    waits.sentry = Some(runtime.spawn(stand_sentry(Arc::downgrade(shared))).abort_handle());
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
        if !self.are_there.load(Ordering::Acquire) {
            return;
        }
        let mut waits = self.waits.lock();
        if let Some(Wait::Watched(task)) = waits.tokens.remove(token) {
            task.abort();
        }
        self.are_there.store(!waits.tokens.is_empty(), Ordering::Release);
    }

    pub(super) fn stop_all(&self) {
        let Waits { tokens, sentry } = std::mem::take(&mut *self.waits.lock());
        let watched = tokens.into_values().filter_map(|wait| match wait {
            Wait::Watched(task) => Some(task),
            Wait::Fresh(..) => None,
        });
        for task in watched.chain(sentry) {
            task.abort();
        }
    }

    /// Has those watched that are not fresh any more; false when nobody is fresh.
    fn promote(&self, shared: &Weak<Shared>) -> bool {
        let now = now().lease;
        let mut is_anybody_fresh = false;
        for (token, wait) in &mut self.waits.lock().tokens {
            if let Wait::Fresh(name, since) = wait {
                is_anybody_fresh = true;
                if now.saturating_sub(*since) >= micros(FRESH) {
                    let task = tokio::spawn(watch(shared.clone(), name.clone(), token.clone()));
                    *wait = Wait::Watched(task.abort_handle());
                }
            }
        }
        is_anybody_fresh
    }
}

/// One timer for all the waits of a client, for as long as there are new ones.
async fn stand_sentry(shared: Weak<Shared>) {
    let mut quiet = 0;
    while quiet < LULL {
        tokio::time::sleep(FRESH).await;
        let Some(strong) = shared.upgrade() else { return };
        quiet = if strong.watches.promote(&shared) { 0 } else { quiet + 1 };
    }
}

async fn watch(shared: Weak<Shared>, name: Name, token: Token) {
    while let Some(wait) = look(&shared, &name, &token) {
        if wait.pause.is_zero() {
            tokio::task::yield_now().await;
            continue;
        }
        match wait.pipe.and_then(|pipe| Sender::from_owned_fd(pipe).ok()) {
            Some(pipe) => drop(tokio::time::timeout(wait.pause, pipe.ready(Interest::ERROR)).await),
            None => tokio::time::sleep(wait.pause).await,
        }
    }
}

/// Until when to wait before the next look: this long, or until nobody reads the pipe.
struct Pause {
    pause: Duration,
    pipe: Option<std::os::fd::OwnedFd>,
}

/// Looks at the one ahead, and buries it if it is dead; `None` when the token does not wait any more.
fn look(shared: &Weak<Shared>, name: &Name, token: &Token) -> Option<Pause> {
    let shared = shared.upgrade()?;
    let soon = Some(Pause { pause: FRESH, pipe: None });
    let Ok(place) = shared.place() else { return soon };
    // What goes wrong here goes wrong for the beats as well, and they say so.
    let Ok(Some(state)) = shared.look(&place, index_of(name)) else { return soon };
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
    let pause = if is_first { FIRST_LOOKS_EVERY } else { LOOK_EVERY };
    let Some(ahead) = ahead.or_else(|| record.process_bound_holder(now())) else {
        return Some(Pause { pause, pipe: None });
    };
    if place.is_dead(ahead) {
        // The one ahead of it may be dead as well: where many died at once, none of them costs a pause.
        let is_buried = shared.reap(&place, name, ahead.clone()).is_ok_and(|is_buried| is_buried);
        return if is_buried { Some(Pause { pause: Duration::ZERO, pipe: None }) } else { soon };
    }
    match pipe_of(&place, ahead) {
        Some(Ok(pipe)) => Some(Pause { pause, pipe: Some(pipe) }),
        // Nobody reads, and it lives: by its lifeline.
        Some(Err(())) => soon,
        None => Some(Pause { pause, pipe: None }),
    }
}

/// The pipe of another process; an error when nobody reads it, `None` when it is this process's own.
fn pipe_of(place: &Place, token: &Token) -> Option<Result<std::os::fd::OwnedFd, ()>> {
    let id = token.session().filter(|id| !id.is_of_process(place.process))?;
    Some(place.dir.open_pipe(&session::pipe_name(&id), OFlags::WRONLY).map_err(drop))
}
