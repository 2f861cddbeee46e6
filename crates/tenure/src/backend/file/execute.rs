//! One operation on one name, from the stripe to those whom it concerns.
//!
//! It is done at once, unless somebody is in the way for longer than some µs: then it is tried again, and the stripe is taken from
//! whoever is stuck with it. Whoever died unseen is buried on the way.

use std::sync::Arc;
use std::time::Duration;

use super::faults::{Point, at};
use super::place::{Place, STRIPES, index_of};
use super::post::Message;
use super::state::State;
use super::stripe::{self, Outcome, Progress};
use super::{Shared, generation, now, replace};
use crate::backend::Answer;
use crate::core::record::{Notice, Now, Op, Record, Reply, Wait};
use crate::time::clock::{Clock, micros};
use crate::types::error::Error;
use crate::types::name::Name;
use crate::types::owner::Token;

/// How long a stripe may make no progress before it is taken from whoever has it.
const STUCK: Duration = Duration::from_millis(20);
/// How often a stripe that is in use is tried again before time is given to it.
const YIELDS: usize = 20;
const PAUSE: Duration = Duration::from_millis(1);

/// An operation that is tried until nobody is in its way.
pub(super) struct Request {
    name: Name,
    op: Op,
    /// It was applied, to a stripe that turned out to be dead; whether that counts is not known.
    was_done: bool,
}

impl Request {
    pub(super) fn new(name: &Name, op: Op) -> Self {
        Request { name: name.clone(), op, was_done: false }
    }
}

/// Finishes what could not be done at once.
pub(super) async fn finish(shared: Arc<Shared>, mut request: Request) -> Result<Answer, Error> {
    let (mut tries, mut stuck): (usize, Option<(Progress, u64)>) = (0, None);
    loop {
        tries += 1;
        if tries <= YIELDS {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(PAUSE).await;
        }
        if let Some(answer) = shared.attempt(&mut request)? {
            return Ok(answer);
        }
        let place = shared.place()?;
        let progress = place.stripe(&request.name).lock().progress();
        let since = match &stuck {
            Some((before, since)) if *before == progress => *since,
            _ => stuck.insert((progress, now().lease)).1,
        };
        if progress.is_some() && now().lease - since < micros(STUCK) {
            continue;
        }
        let dead = place.stripe(&request.name).lock().condemn(&place)?;
        Clock::Awake.sleep_until(Clock::Awake.now() + stripe::SETTLE).await;
        replace::replace(&place, index_of(&request.name), dead)?;
        stuck = None;
    }
}

impl Shared {
    /// Executes a request; `None` when somebody is in the way.
    pub(super) fn attempt(self: &Arc<Self>, request: &mut Request) -> Result<Option<Answer>, Error> {
        let place = self.place()?;
        self.listener.listen(self, &place);
        if request.op == Op::Inspect {
            return self.inspect(&place, &request.name);
        }
        loop {
            let Some((reply, server, suspect)) = self.change(&place, request)? else { return Ok(None) };
            // One that died unseen is in nobody's way. If it can't be buried, the answer is true all the same.
            if let Some(suspect) = suspect.filter(|suspect| place.is_dead(suspect)) {
                match self.reap(&place, &request.name, suspect) {
                    Ok(true) => continue,
                    Ok(false) => return Ok(None),
                    Err(_) => {}
                }
            }
            self.watches.mind(self, &request.name, &request.op, &reply);
            return Ok(Some(Answer { reply, server: Some(server) }));
        }
    }

    /// Applies a request to its stripe, then tells whom it concerns. Also returns who is in its way and was not heard of for a while.
    fn change(
        &self,
        place: &Arc<Place>,
        request: &mut Request,
    ) -> Result<Option<(Reply, u64, Option<Token>)>, Error> {
        let mut notices = Vec::new();
        let answer = self.apply(place, request, &mut notices)?;
        self.tell(place, &request.name, notices);
        Ok(answer)
    }

    /// The same, and appends whom it concerns.
    fn apply(
        &self,
        place: &Arc<Place>,
        request: &mut Request,
        notices: &mut Vec<Notice>,
    ) -> Result<Option<(Reply, u64, Option<Token>)>, Error> {
        let Request { name, op, was_done } = request;
        // The files of a session may be gone with all others. That is looked at every now and then; here it decides who is dead.
        if matches!(op, Op::Death { .. }) && place.is_removed() {
            self.reopen(place)?;
            return Ok(None);
        }
        let mut buried = None;
        let outcome = place.stripe(name).lock().change(place, |state, now| {
            if let Op::Death { token } = &*op {
                let holder = state.record(name).and_then(|record| record.process_bound_holder(now));
                buried = holder.filter(|holder| *holder == token).cloned();
            }
            let mut reply = state.apply(name, op.clone(), now, notices);
            match reply {
                Reply::Done => *was_done = true,
                // What ended the lease was our own release, on a stripe that died later.
                Reply::NotHeld { .. } if *was_done => reply = Reply::Done,
                _ => {}
            }
            let suspect = state.record(name).and_then(|record| suspect(record, op, &reply, now));
            (reply, now.lease, suspect.cloned())
        })?;
        at(Point::Unlocked);
        match outcome {
            Outcome::Done(answer) => {
                buried.into_iter().for_each(|token| self.graves.dig(name, &token));
                Ok(Some(answer))
            }
            Outcome::Locked | Outcome::Dead => Ok(None),
            Outcome::Removed => {
                self.reopen(place)?;
                Ok(None)
            }
        }
    }

    /// Tells everyone whom a change concerns. Whoever can't be told is dead, and the next one is told; one after the other, and not one
    /// inside the other: any number may have died. What goes wrong here is not the answer to whoever asked; those who wait look
    /// by themselves.
    fn tell(&self, place: &Arc<Place>, name: &Name, mut notices: Vec<Notice>) {
        while let Some(wake) = notices.pop() {
            let token = match &wake {
                Notice::Granted { token, .. } | Notice::Revoked { token } => token.clone(),
            };
            let Some(session) = token.session() else { continue };
            let is_told = self.post.send(&place.dir, &session, &Message::of(name, wake));
            if !is_told && place.is_dead(&token) {
                let _ = self.apply(place, &mut Request::new(name, Op::Death { token }), &mut notices);
            }
        }
    }

    /// Ends what a dead session had; false when somebody is in the way.
    pub(super) fn reap(&self, place: &Arc<Place>, name: &Name, token: Token) -> Result<bool, Error> {
        Ok(self.change(place, &mut Request::new(name, Op::Death { token }))?.is_some())
    }

    /// Who holds a name and who waits for it; those who died unseen are buried first.
    fn inspect(&self, place: &Arc<Place>, name: &Name) -> Result<Option<Answer>, Error> {
        loop {
            let Some(state) = self.look(place, index_of(name))? else { return Ok(None) };
            let now = now();
            let mut record = state.record(name).cloned().unwrap_or_else(|| Record::new(0));
            let dead = {
                let mut tokens = record.process_bound_holder(now).into_iter().chain(record.waiting());
                tokens.find(|token| place.is_dead(token)).cloned()
            };
            if let Some(dead) = dead {
                if !self.reap(place, name, dead)? {
                    return Ok(None);
                }
                continue;
            }
            let reply = record.apply(Op::Inspect, now, &mut Vec::new());
            return Ok(Some(Answer { reply, server: Some(now.lease) }));
        }
    }

    /// What a stripe holds; `None` when somebody is in the way.
    pub(super) fn look(&self, place: &Arc<Place>, index: usize) -> Result<Option<State>, Error> {
        let mut stripe = place.stripes[index].lock();
        if let Some(state) = stripe.look(place, State::from_bytes)? {
            return Ok(Some(state));
        }
        match stripe.change(place, |state, _| state.clone())? {
            Outcome::Done(state) => Ok(Some(state)),
            Outcome::Locked | Outcome::Dead => Ok(None),
            Outcome::Removed => {
                drop(stripe);
                self.reopen(place)?;
                Ok(None)
            }
        }
    }

    pub(super) fn list(&self, prefix: &str) -> Result<Vec<Name>, Error> {
        let place = self.place()?;
        let mut stripes: Vec<usize> =
            place.dir.list()?.iter().filter_map(|name| generation::index_of(name)).collect();
        stripes.sort_unstable();
        stripes.dedup();
        let mut names = Vec::new();
        for index in stripes.into_iter().filter(|&index| index < STRIPES) {
            let state = self.look(&place, index)?.ok_or_else(|| {
                Error::unavailable(format!("{} is busy", place.dir.path().display())).fix("try again")
            })?;
            names.extend(state.names(now()).filter(|name| name.as_str().starts_with(prefix)).cloned());
        }
        Ok(names)
    }
}

/// Who is in the way of a request, if it was not heard of for a while.
fn suspect<'a>(record: &'a Record, op: &Op, reply: &Reply, now: Now) -> Option<&'a Token> {
    match (op, reply) {
        (Op::Acquire { .. }, Reply::Busy { .. }) => record.process_bound_holder(now),
        (Op::Acquire { token, wait: Wait::Join, .. }, Reply::Waiting { .. }) => {
            record.silent_ahead_of(token, now)
        }
        _ => None,
    }
}
