//! A directory: the domain of one machine, which needs no server.
//!
//! The names are spread over stripes, each a file with the records of its names ([`stripe`], [`slots`]). Every client has a session
//! ([`session`]), whose end is seen at once; grants travel through its pipe ([`post`], [`listener`]), and whoever waits watches the one
//! ahead of it ([`watch`]).
//!
//! Operations take some µs, and are done where they are asked for, also in a drop. Only when somebody else is in the way for longer
//! than that, the answer comes later.

mod directory;
mod faults;
mod listener;
mod platform;
mod post;
mod session;
mod slots;
mod state;
mod stripe;
#[cfg(all(test, not(shuttle)))]
mod tests;
#[cfg(all(test, not(shuttle)))]
mod torture;
mod watch;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, RwLock, Weak};
use std::time::Duration;

use self::directory::Directory;
use self::faults::{Point, at};
use self::listener::Listener;
use self::platform::ClockIdentity;
use self::post::{Message, Post};
use self::session::SessionFiles;
use self::state::State;
use self::stripe::{Outcome, Progress, Stripe};
use self::watch::Watches;
use super::{Answer, Backend, Capability, Pending, Sink};
use crate::clock::Clock;
use crate::error::Error;
use crate::name::Name;
use crate::owner::{Session, SessionId, Token};
use crate::record::{Now, Op, Record, Reply, Wait, Wake};
use crate::sync::Mutex;

/// How many files the names are spread over.
const STRIPES: usize = 64;
/// How often a session is begun again because somebody who swept was in its way.
const SESSION_TRIES: usize = 100;
/// How long a stripe may make no progress before it is taken from whoever has it.
const STUCK: Duration = Duration::from_millis(20);
/// How often a stripe that is in use is tried again before time is given to it.
const YIELDS: usize = 20;
const PAUSE: Duration = Duration::from_millis(1);

/// One client of a directory.
pub(crate) struct FileDomain(Arc<Shared>);

/// What the client and its tasks in the background share.
struct Shared {
    session: Session,
    /// The process that opened it.
    pid: u32,
    /// The directory as it is now; another one after it was removed and made again.
    place: RwLock<Arc<Place>>,
    post: Post,
    listener: Listener,
    watches: Watches,
    sink: Weak<dyn Sink>,
}

/// A directory that is open, and this client's session in it.
struct Place {
    dir: Directory,
    session_id: SessionId,
    session: SessionFiles,
    stripes: Vec<Mutex<Stripe>>,
    clock: ClockIdentity,
    /// What the ids of this process's sessions begin with.
    process: u32,
    network_fs_allowed: bool,
}

impl Place {
    fn new(
        dir: Directory,
        session_id: &SessionId,
        session: SessionFiles,
        clock: ClockIdentity,
        process: u32,
        network_fs_allowed: bool,
    ) -> Result<Self, Error> {
        let stripes = (0..STRIPES).map(|index| Mutex::new(Stripe::new(index))).collect();
        let session_id = session_id.clone();
        let place = Place { dir, session_id, session, stripes, clock, process, network_fs_allowed };
        let names = place.dir.list()?;
        session::sweep(&place.dir, &names, process);
        stripe::sweep_all(&place, &names)?;
        Ok(place)
    }

    /// Whether nobody can find this client here any more.
    fn is_removed(&self) -> bool {
        self.dir.is_removed() || !self.session.is_there()
    }

    fn stripe(&self, name: &Name) -> &Mutex<Stripe> {
        &self.stripes[index_of(name)]
    }

    fn is_dead(&self, token: &Token) -> bool {
        token.session().is_some_and(|id| session::is_dead(&self.dir, &id, self.process))
    }
}

/// Begins a session: with another id when somebody who swept was in its way.
fn begin_session(
    dir: &Directory,
    clock: ClockIdentity,
    process: u32,
) -> Result<(Session, SessionFiles), Error> {
    for _ in 0..SESSION_TRIES {
        let session = Session::of_process(process);
        if let Some(files) = SessionFiles::create(dir, session.id(), &clock)? {
            return Ok((session, files));
        }
    }
    Err(swept_away(dir))
}

fn swept_away(dir: &Directory) -> Error {
    let path = dir.path().display();
    Error::unavailable(format!(
        "somebody removes files from {path} as they are made; stop that, and try again"
    ))
}

impl Drop for Place {
    fn drop(&mut self) {
        self.session.remove(&self.dir);
    }
}

/// The stripe of a name: the same in every process.
fn index_of(name: &Name) -> usize {
    crc32fast::hash(name.as_str().as_bytes()) as usize % STRIPES
}

fn now() -> Now {
    Now { lease: Clock::Awake.now().as_micros(), wall: Clock::Awake.wall_micros() }
}

/// An operation that is tried until nobody is in its way.
struct Request {
    name: Name,
    op: Op,
    /// It was applied, to a stripe that turned out to be dead; whether that counts is not known.
    was_done: bool,
}

impl FileDomain {
    pub(crate) fn open(
        path: Option<PathBuf>,
        network_fs_allowed: bool,
        sink: Weak<dyn Sink>,
    ) -> Result<Self, Error> {
        let clock = ClockIdentity::of_this_process()?;
        let process = platform::process_identity(&clock)?;
        let dir = Directory::open(path.as_deref(), network_fs_allowed)?;
        let (session, files) = begin_session(&dir, clock, process)?;
        let place = Place::new(dir, session.id(), files, clock, process, network_fs_allowed)?;
        Ok(FileDomain(Arc::new(Shared {
            session,
            pid: std::process::id(),
            place: RwLock::new(Arc::new(place)),
            post: Post::default(),
            listener: Listener::default(),
            watches: Watches::default(),
            sink,
        })))
    }
}

impl Backend for FileDomain {
    fn session(&self) -> &Session {
        &self.0.session
    }

    fn server_now(&self) -> Option<u64> {
        Some(Clock::Awake.now().as_micros())
    }

    fn execute(&self, name: &Name, op: Op) -> Pending<Answer> {
        let mut request = Request { name: name.clone(), op, was_done: false };
        match self.0.attempt(&mut request) {
            Ok(None) => Pending::Later(Box::pin(finish(Arc::clone(&self.0), request))),
            Ok(Some(answer)) => Pending::now(Ok(answer)),
            Err(error) => Pending::now(Err(error)),
        }
    }

    fn list(&self, prefix: &str) -> Pending<Vec<Name>> {
        Pending::now(self.0.list(prefix))
    }

    fn capabilities(&self) -> &'static [Capability] {
        use Capability::{Detach, Fifo, Force, List, LossPush};
        &[Fifo, List, Detach, Force, LossPush]
    }

    fn warnings(&self) -> Vec<String> {
        let Ok(place) = self.0.place() else { return Vec::new() };
        let foreign = place.dir.foreign_fs().map(|name| {
            let path = place.dir.path().display();
            format!("file system of {path} is {name}, where locks may not hold; one machine alone may use it")
        });
        foreign.into_iter().collect()
    }

    fn lifeline(&self) -> Result<Option<OwnedFd>, Error> {
        let place = self.0.place()?;
        place.session.lifeline(&place.dir).map(Some)
    }
}

impl Drop for FileDomain {
    fn drop(&mut self) {
        self.0.listener.stop();
        self.0.watches.stop_all();
    }
}

/// Finishes what could not be done at once.
async fn finish(shared: Arc<Shared>, mut request: Request) -> Result<Answer, Error> {
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
        if progress.is_some() && now().lease - since < STUCK.as_micros() as u64 {
            continue;
        }
        let dead = place.stripe(&request.name).lock().condemn(&place)?;
        Clock::Awake.sleep_until(Clock::Awake.now() + stripe::SETTLE).await;
        stripe::replace(&place, index_of(&request.name), dead)?;
        stuck = None;
    }
}

impl Shared {
    /// The directory, unless this is a forked child, which has none of its parent's rights.
    fn place(&self) -> Result<Arc<Place>, Error> {
        if std::process::id() != self.pid {
            return Err(Error::unsupported(
                "domain was opened before this process was forked; open it again in the child",
            ));
        }
        Ok(Arc::clone(&self.place.read().unwrap_or_else(std::sync::PoisonError::into_inner)))
    }

    /// Goes on in the directory that has the path now, if there is one.
    fn reopen(&self, removed: &Arc<Place>) -> Result<(), Error> {
        let mut place = self.place.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        if Arc::ptr_eq(&place, removed) {
            let dir = removed.dir.reopen(removed.network_fs_allowed)?;
            let (clock, process, allowed) = (removed.clock, removed.process, removed.network_fs_allowed);
            let id = self.session.id();
            let files = SessionFiles::create(&dir, id, &clock)?.ok_or_else(|| swept_away(&dir))?;
            *place = Arc::new(Place::new(dir, id, files, clock, process, allowed)?);
            self.post.forget_all();
            self.listener.stop();
        }
        Ok(())
    }

    /// Executes a request; `None` when somebody is in the way.
    fn attempt(self: &Arc<Self>, request: &mut Request) -> Result<Option<Answer>, Error> {
        let place = self.place()?;
        self.listener.listen(self, &place);
        if request.op == Op::Inspect {
            return self.inspect(&place, &request.name);
        }
        loop {
            let Some((reply, server, suspect)) = self.change(&place, request)? else { return Ok(None) };
            // One that died unseen is in nobody's way.
            if let Some(suspect) = suspect.filter(|suspect| place.is_dead(suspect)) {
                if !self.bury(&place, &request.name, suspect)? {
                    return Ok(None);
                }
                continue;
            }
            self.watches.mind(self, &request.name, &request.op, &reply);
            return Ok(Some(Answer { reply, server }));
        }
    }

    /// Applies a request to its stripe, then tells whom it concerns. Also returns who is in its way and was not heard of for a while.
    fn change(
        self: &Arc<Self>,
        place: &Arc<Place>,
        request: &mut Request,
    ) -> Result<Option<(Reply, u64, Option<Token>)>, Error> {
        let Request { name, op, was_done } = request;
        let mut wakes = Vec::new();
        let outcome = place.stripe(name).lock().change(place, |state, now| {
            let mut reply = state.apply(name, op.clone(), now, &mut wakes);
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
        self.tell(place, name, wakes)?;
        match outcome {
            Outcome::Done(answer) => Ok(Some(answer)),
            Outcome::Locked | Outcome::Dead => Ok(None),
            Outcome::Removed => {
                self.reopen(place)?;
                Ok(None)
            }
        }
    }

    /// Tells everyone whom a change concerns. Whoever can't be told is dead, and the next one is told.
    fn tell(self: &Arc<Self>, place: &Arc<Place>, name: &Name, wakes: Vec<Wake>) -> Result<(), Error> {
        for wake in wakes {
            let token = match &wake {
                Wake::Granted { token, .. } | Wake::Revoked { token } => token.clone(),
            };
            let Some(session) = token.session() else { continue };
            let is_told = self.post.send(&place.dir, &session, &Message::of(name, wake));
            if !is_told && place.is_dead(&token) {
                self.bury(place, name, token)?;
            }
        }
        Ok(())
    }

    /// Ends what a dead session had; false when somebody is in the way.
    fn bury(self: &Arc<Self>, place: &Arc<Place>, name: &Name, token: Token) -> Result<bool, Error> {
        let mut death = Request { name: name.clone(), op: Op::Death { token }, was_done: false };
        Ok(self.change(place, &mut death)?.is_some())
    }

    /// Who holds a name and who waits for it; those who died unseen are buried first.
    fn inspect(self: &Arc<Self>, place: &Arc<Place>, name: &Name) -> Result<Option<Answer>, Error> {
        loop {
            let Some(state) = self.look(place, index_of(name))? else { return Ok(None) };
            let now = now();
            let mut record = state.record(name).cloned().unwrap_or_else(|| Record::new(0));
            let dead = {
                let mut tokens = record.mortal_holder(now).into_iter().chain(record.waiting());
                tokens.find(|token| place.is_dead(token)).cloned()
            };
            if let Some(dead) = dead {
                if !self.bury(place, name, dead)? {
                    return Ok(None);
                }
                continue;
            }
            let reply = record.apply(Op::Inspect, now, &mut Vec::new());
            return Ok(Some(Answer { reply, server: now.lease }));
        }
    }

    /// What a stripe holds; `None` when somebody is in the way.
    fn look(self: &Arc<Self>, place: &Arc<Place>, index: usize) -> Result<Option<State>, Error> {
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

    fn list(self: &Arc<Self>, prefix: &str) -> Result<Vec<Name>, Error> {
        let place = self.place()?;
        let mut stripes: Vec<usize> =
            place.dir.list()?.iter().filter_map(|name| stripe::index_of(name)).collect();
        stripes.sort_unstable();
        stripes.dedup();
        let mut names = Vec::new();
        for index in stripes.into_iter().filter(|&index| index < STRIPES) {
            let state = self.look(&place, index)?.ok_or_else(|| {
                Error::unavailable(format!("{} is busy; try again", place.dir.path().display()))
            })?;
            names.extend(state.names(now()).filter(|name| name.as_str().starts_with(prefix)).cloned());
        }
        Ok(names)
    }
}

/// Who is in the way of a request, if it was not heard of for a while.
fn suspect<'a>(record: &'a Record, op: &Op, reply: &Reply, now: Now) -> Option<&'a Token> {
    match (op, reply) {
        (Op::Acquire { .. }, Reply::Busy { .. }) => record.mortal_holder(now),
        (Op::Acquire { token, wait: Wait::Join, .. }, Reply::Waiting { .. }) => {
            record.silent_ahead_of(token, now)
        }
        _ => None,
    }
}
