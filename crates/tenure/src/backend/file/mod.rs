//! A directory: the domain of one machine, which needs no server.
//!
//! The names are spread over stripes, each a file with the records of its names ([`stripe`], [`slots`]). Every client has a session
//! ([`session`]), whose end is seen at once; grants travel through its pipe ([`post`], [`listener`]), and whoever waits watches the one
//! ahead of it ([`watch`]).
//!
//! Operations take some µs, and are done where they are asked for, also in a drop. Only when somebody else is in the way for longer
//! than that, the answer comes later.

mod directory;
mod examine;
mod execute;
mod faults;
mod generation;
mod graves;
mod listener;
mod place;
mod platform;
mod post;
mod replace;
mod session;
mod sharing;
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
use std::sync::{Arc, Weak};

use self::directory::Directory;
use self::execute::{Request, finish};
use self::graves::Graves;
use self::listener::Listener;
use self::place::{Place, begin_session, swept_away};
use self::platform::ClockIdentity;
use self::post::Post;
use self::session::SessionFiles;
use self::watch::Watches;
use super::{Answer, Backend, Capability, Pending, Sink};
use crate::core::record::{Now, Op};
use crate::sync::Mutex;
use crate::time::clock::Clock;
use crate::types::error::Error;
use crate::types::finding::Finding;
use crate::types::name::Name;
use crate::types::owner::{Session, Token};

/// One client of a directory.
pub(crate) struct FileDomain(Arc<Shared>);

/// What the client and its tasks in the background share.
struct Shared {
    session: Session,
    /// The directory as it is now; another one after it was removed and made again.
    place: Mutex<Arc<Place>>,
    post: Post,
    listener: Listener,
    watches: Watches,
    graves: Graves,
    sink: Weak<dyn Sink>,
}

fn now() -> Now {
    Now { lease: Clock::Awake.now().as_micros(), wall: Clock::Awake.wall_micros() }
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
            place: Mutex::new(Arc::new(place)),
            post: Post::default(),
            listener: Listener::default(),
            watches: Watches::default(),
            graves: Graves::default(),
            sink,
        })))
    }
}

impl Backend for FileDomain {
    fn session(&self) -> &Session {
        &self.0.session
    }

    fn server_now(&self, _: &Name) -> Option<u64> {
        Some(Clock::Awake.now().as_micros())
    }

    fn execute(&self, name: &Name, op: Op) -> Pending<Answer> {
        let mut request = Request::new(name, op);
        match self.0.attempt(&mut request) {
            Ok(None) => Pending::Later(Box::pin(finish(Arc::clone(&self.0), request))),
            Ok(Some(answer)) => Pending::now(Ok(answer)),
            Err(error) => Pending::now(Err(error)),
        }
    }

    fn list(&self, prefix: &str) -> Pending<Vec<Name>> {
        Pending::now(self.0.list(prefix))
    }

    fn reaped(&self, name: &Name) -> Option<Token> {
        self.0.graves.of(name)
    }

    fn capabilities(&self) -> &'static [Capability] {
        use Capability::{Detach, Fifo, Force, List, LossPush};
        &[Fifo, List, Detach, Force, LossPush]
    }

    fn warnings(&self) -> Vec<String> {
        let Ok(place) = self.0.place() else { return Vec::new() };
        let path = place.dir.path().display();
        let foreign = place.dir.foreign_fs().map(|name| {
            format!("file system of {path} is {name}, where locks may not hold; one machine alone may use it")
        });
        let private = place.private_tmp().map(|why| {
            format!("{path} is in {why}; use a directory elsewhere in the URL: file:///var/lib/NAME")
        });
        let almost_shared = place.dir.almost_shared().map(|error| error.to_string());
        foreign.into_iter().chain(private).chain(almost_shared).collect()
    }

    fn examine(&self) -> Pending<Vec<Finding>> {
        let shared = Arc::clone(&self.0);
        Pending::Later(Box::pin(async move { examine::examine(&*shared.place()?).await }))
    }

    fn lifeline(&self) -> Result<Option<OwnedFd>, Error> {
        let place = self.0.place()?;
        place.session.lifeline(&place.dir).map(Some)
    }
}

impl Drop for FileDomain {
    fn drop(&mut self) {
        // In a forked child they are its parent's.
        if self.0.session.home.is_here() {
            self.0.listener.stop();
            self.0.watches.stop_all();
        }
    }
}

impl Shared {
    /// The directory, unless this is a forked child.
    fn place(&self) -> Result<Arc<Place>, Error> {
        self.session.check_process()?;
        Ok(Arc::clone(&self.place.lock()))
    }

    /// Goes on in the directory that has the path now, if there is one.
    fn reopen(&self, removed: &Arc<Place>) -> Result<(), Error> {
        let mut place = self.place.lock();
        if Arc::ptr_eq(&place, removed) {
            let dir = removed.dir.reopen(removed.network_fs_allowed)?;
            let (clock, process, allowed) = (removed.clock, removed.process, removed.network_fs_allowed);
            let id = self.session.id();
            session::refuse_another_boot(&dir, &clock, process)?;
            let files = SessionFiles::create(&dir, id, &clock)?.ok_or_else(|| swept_away(&dir))?;
            files.keep_lifeline_of(&removed.session);
            *place = Arc::new(Place::new(dir, id, files, clock, process, allowed)?);
            self.post.forget_all();
            self.listener.stop();
        }
        Ok(())
    }
}
