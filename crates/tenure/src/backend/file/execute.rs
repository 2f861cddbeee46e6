//! One operation on one name: it changes the stripe, then notifies the clients that it concerns.
//!
//! An operation takes a few µs, and the caller gets its answer immediately. If another process has the stripe for longer, this client
//! tries again in the background, and takes the stripe from a process that is stuck. Dead sessions that nobody has noticed yet are
//! reaped on the way, all of them by [`Shared::reap_dead`].

use std::sync::Arc;
use std::time::Duration;

use super::faults::{Point, at};
use super::message::Message;
use super::open_directory::{OpenDirectory, index_of};
use super::state::State;
use super::stripe::{self, Outcome, Progress};
use super::{Shared, generation, now, replace};
use crate::backend::Answer;
use crate::core::record::{Notice, Now, Op, Record, Reply, Wait};
use crate::time::clock::{Clock, micros};
use crate::types::error::Error;
use crate::types::name::Name;
use crate::types::owner::Token;

/// How long a locked stripe may make no progress before this client takes it from the process that has it.
const STUCK: Duration = Duration::from_millis(20);
/// How many times a client tries a stripe that is in use before it sleeps between two tries.
const YIELDS: usize = 20;
const PAUSE: Duration = Duration::from_millis(1);

/// An operation that a client tries until no other process is in its way.
pub(super) struct PendingOp {
    name: Name,
    op: Op,
    /// It was applied to a file that turned out to be dead. It is not known whether that counts.
    was_applied: bool,
}

/// The result of applying an operation to its stripe.
struct Applied {
    reply: Reply,
    /// The lease clock.
    at: u64,
    /// Tokens that are in the way of the operation, and whose sessions may be dead.
    suspects: Vec<Token>,
}

/// What [`Shared::reap_dead`] did.
pub(super) enum Reaping {
    NoneDead,
    Reaped,
    /// Another process has the stripe.
    Blocked,
}

impl PendingOp {
    pub(super) fn new(name: &Name, op: Op) -> Self {
        PendingOp { name: name.clone(), op, was_applied: false }
    }

    fn death(name: &Name, token: Token) -> Self {
        PendingOp::new(name, Op::Death { token })
    }
}

/// Repeats an operation that could not be done immediately until it is done.
pub(super) async fn finish(shared: Arc<Shared>, mut pending: PendingOp) -> Result<Answer, Error> {
    let (mut tries, mut stuck): (usize, Option<(Progress, u64)>) = (0, None);
    loop {
        tries += 1;
        if tries <= YIELDS {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(PAUSE).await;
        }
        if let Some(answer) = shared.attempt(&mut pending)? {
            return Ok(answer);
        }
        let store = shared.store()?;
        let progress = store.stripe(&pending.name).lock().progress();
        let since = match &stuck {
            Some((before, since)) if *before == progress => *since,
            _ => stuck.insert((progress, now().lease)).1,
        };
        if progress.is_some() && now().lease - since < micros(STUCK) {
            continue;
        }
        let dead = store.stripe(&pending.name).lock().mark_dead(&store)?;
        Clock::Awake.sleep_until(Clock::Awake.now() + stripe::SETTLE).await;
        replace::replace(&store, index_of(&pending.name), dead)?;
        stuck = None;
    }
}

impl Shared {
    /// Executes an operation; `None` if another process is in its way.
    pub(super) fn attempt(self: &Arc<Self>, pending: &mut PendingOp) -> Result<Option<Answer>, Error> {
        let store = self.store()?;
        self.listener.listen(self, &store);
        let only_reads = pending.op == Op::Inspect;
        loop {
            let applied = match only_reads {
                true => self.inspect(&store, &pending.name)?,
                false => self.change(&store, pending)?,
            };
            let Some(Applied { reply, at, suspects }) = applied else { return Ok(None) };
            match self.reap_dead(&store, &pending.name, &suspects) {
                Ok(Reaping::Reaped) => continue,
                Ok(Reaping::Blocked) => return Ok(None),
                Err(error) if only_reads => return Err(error),
                // The change was made: its answer is true even if the dead session can't be reaped.
                Ok(Reaping::NoneDead) | Err(_) => {}
            }
            self.death_watch.update(self, &pending.name, &pending.op, &reply);
            return Ok(Some(Answer::new(reply, Some(at))));
        }
    }

    /// Reaps the first of these tokens whose session is dead: ends its lease or its wait on the name.
    pub(super) fn reap_dead<'a>(
        &self,
        store: &Arc<OpenDirectory>,
        name: &Name,
        tokens: impl IntoIterator<Item = &'a Token>,
    ) -> Result<Reaping, Error> {
        let Some(dead) = tokens.into_iter().find(|token| store.is_dead(token)) else {
            return Ok(Reaping::NoneDead);
        };
        let reaped = self.change(store, &mut PendingOp::death(name, dead.clone()))?;
        Ok(reaped.map_or(Reaping::Blocked, |_| Reaping::Reaped))
    }

    /// Applies an operation to its stripe, then notifies the clients that it concerns; `None` if another process is in its way.
    fn change(&self, store: &Arc<OpenDirectory>, pending: &mut PendingOp) -> Result<Option<Applied>, Error> {
        let mut notices = Vec::new();
        let applied = self.apply(store, pending, &mut notices)?;
        self.notify(store, &pending.name, notices);
        Ok(applied)
    }

    /// Applies an operation to its stripe, and appends a notice for each client that it concerns.
    fn apply(
        &self,
        store: &Arc<OpenDirectory>,
        pending: &mut PendingOp,
        notices: &mut Vec<Notice>,
    ) -> Result<Option<Applied>, Error> {
        let PendingOp { name, op, was_applied } = pending;
        // If the whole directory was removed, sessions have lost their files and are not dead. Other operations look for that only every
        // few ms; a death must be certain.
        if matches!(op, Op::Death { .. }) && store.is_removed() {
            self.reopen(store)?;
            return Ok(None);
        }
        let mut reaped = None;
        let outcome = store.stripe(name).lock().change(store, |state, now| {
            if let Op::Death { token } = &*op {
                let holder = state.record(name).and_then(|record| record.process_bound_holder(now));
                reaped = holder.filter(|holder| *holder == token).cloned();
            }
            let mut reply = state.apply(name, op.clone(), now, notices);
            match reply {
                Reply::Done => *was_applied = true,
                // This operation's first attempt ended the lease, on a file that died later.
                Reply::NotHeld { .. } if *was_applied => reply = Reply::Done,
                _ => {}
            }
            let suspect = state.record(name).and_then(|record| suspect(record, op, &reply, now));
            Applied { reply, at: now.lease, suspects: suspect.into_iter().cloned().collect() }
        })?;
        at(Point::Unlocked);
        match outcome {
            Outcome::Done(applied) => {
                reaped.into_iter().for_each(|token| self.reaped.remember(name, &token));
                Ok(Some(applied))
            }
            Outcome::Locked | Outcome::Dead => Ok(None),
            Outcome::Removed => {
                self.reopen(store)?;
                Ok(None)
            }
        }
    }

    /// Sends every notice. A client that can't be reached and is dead is reaped, which may add a notice for the next waiter: a loop and no
    /// recursion, because any number of clients may have died. Errors here are not the answer to the operation; waiters poll as well.
    fn notify(&self, store: &Arc<OpenDirectory>, name: &Name, mut notices: Vec<Notice>) {
        while let Some(notice) = notices.pop() {
            let token = match &notice {
                Notice::Granted { token, .. } | Notice::Revoked { token } => token.clone(),
            };
            let Some(session) = token.session() else { continue };
            let is_sent = self.messages.send(&store.dir, &session, &Message::of(name, notice));
            if !is_sent && store.is_dead(&token) {
                let _ = self.apply(store, &mut PendingOp::death(name, token), &mut notices);
            }
        }
    }

    /// Reads the holder and the waiters of a name. All of them are suspects: the answer shows no dead session.
    fn inspect(&self, store: &Arc<OpenDirectory>, name: &Name) -> Result<Option<Applied>, Error> {
        let Some(state) = self.look(store, index_of(name))? else { return Ok(None) };
        let now = now();
        let mut record = state.record(name).cloned().unwrap_or_else(|| Record::new(0));
        let suspects =
            record.process_bound_holder(now).into_iter().chain(record.waiting()).cloned().collect();
        let reply = record.apply(Op::Inspect, now, &mut Vec::new());
        Ok(Some(Applied { reply, at: now.lease, suspects }))
    }

    /// Reads a stripe; `None` if another process is in the way.
    pub(super) fn look(&self, store: &Arc<OpenDirectory>, index: usize) -> Result<Option<State>, Error> {
        let mut stripe = store.stripes[index].lock();
        if let Some(state) = stripe.look(store, State::from_bytes)? {
            return Ok(Some(state));
        }
        match stripe.change(store, |state, _| state.clone())? {
            Outcome::Done(state) => Ok(Some(state)),
            Outcome::Locked | Outcome::Dead => Ok(None),
            Outcome::Removed => {
                drop(stripe);
                self.reopen(store)?;
                Ok(None)
            }
        }
    }

    pub(super) fn list(&self, prefix: &str) -> Result<Vec<Name>, Error> {
        let store = self.store()?;
        let mut names = Vec::new();
        for index in generation::stripes_in(&store.dir.list()?) {
            let state = self.look(&store, index)?.ok_or_else(|| {
                Error::unavailable(format!("{} is busy", store.dir.path().display())).fix("try again")
            })?;
            names.extend(state.names(now()).filter(|name| name.as_str().starts_with(prefix)).cloned());
        }
        Ok(names)
    }
}

/// The token in the way of an operation, if its client has been silent for a while.
fn suspect<'a>(record: &'a Record, op: &Op, reply: &Reply, now: Now) -> Option<&'a Token> {
    match (op, reply) {
        (Op::Acquire { .. }, Reply::Busy { .. }) => record.process_bound_holder(now),
        (Op::Acquire { token, wait: Wait::Join, .. }, Reply::Waiting { .. }) => {
            record.silent_ahead_of(token, now)
        }
        _ => None,
    }
}
