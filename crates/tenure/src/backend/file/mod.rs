//! A directory: the domain of one machine, without a server.
//!
//! The names are spread over stripes, each a file with the records of its names ([`stripe`], [`copies`]). Every client has a session
//! ([`session`]), and other clients see its end immediately. Grants reach a client through its pipe ([`message`], [`listener`]), and
//! every waiter watches the client ahead of it ([`death_watch`]).
//!
//! An operation takes a few µs, so the caller executes it itself, even in a drop. The answer comes later only if another process is in
//! the way for longer than that.

mod copies;
mod death_watch;
mod directory;
mod examine;
mod execute;
mod faults;
mod generation;
mod listener;
mod message;
mod open_directory;
mod platform;
mod reaped;
mod replace;
mod session;
mod sharing;
mod state;
mod stripe;
#[cfg(all(test, not(shuttle)))]
mod tests;
#[cfg(all(test, not(shuttle)))]
mod torture;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use self::death_watch::DeathWatch;
use self::directory::Directory;
use self::execute::{PendingOp, finish};
use self::listener::Listener;
use self::message::MessageSender;
use self::open_directory::{OpenDirectory, begin_session, files_removed_by_others};
use self::platform::ClockIdentity;
use self::reaped::ReapedHolders;
use self::session::SessionFiles;
use super::{Admin, Answer, Backend, Capability, Component, Pending, Sink};
use crate::core::record::{Now, Op};
use crate::sync::Mutex;
use crate::time::clock::Clock;
use crate::types::error::Error;
use crate::types::finding::Finding;
use crate::types::name::Name;
use crate::types::owner::{Session, Token};

/// One client of a directory.
pub(crate) struct FileDomain(Arc<Shared>);

/// What the client shares with its background tasks.
struct Shared {
    session: Session,
    /// The directory that has the path now. It changes if the directory is removed and made again.
    store: Mutex<Arc<OpenDirectory>>,
    messages: MessageSender,
    listener: Listener,
    death_watch: DeathWatch,
    reaped: ReapedHolders,
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
        let store = OpenDirectory::new(dir, session.id(), files, clock, process, network_fs_allowed)?;
        Ok(FileDomain(Arc::new(Shared {
            session,
            store: Mutex::new(Arc::new(store)),
            messages: MessageSender::default(),
            listener: Listener::default(),
            death_watch: DeathWatch::default(),
            reaped: ReapedHolders::default(),
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
        let mut pending = PendingOp::new(name, op);
        match self.0.attempt(&mut pending) {
            Ok(None) => Pending::Later(Box::pin(finish(Arc::clone(&self.0), pending))),
            Ok(Some(answer)) => Pending::now(Ok(answer)),
            Err(error) => Pending::now(Err(error)),
        }
    }

    fn list(&self, prefix: &str) -> Pending<Vec<Name>> {
        Pending::now(self.0.list(prefix))
    }
}

impl Component for FileDomain {
    fn reaped(&self, name: &Name) -> Option<Token> {
        self.0.reaped.last_of(name)
    }
}

impl Admin for FileDomain {
    fn capabilities(&self) -> &'static [Capability] {
        use Capability::{Detach, Fifo, Force, List, LossPush};
        &[Fifo, List, Detach, Force, LossPush]
    }

    fn warnings(&self) -> Vec<String> {
        let Ok(store) = self.0.store() else { return Vec::new() };
        let path = store.dir.path().display();
        let foreign = store.dir.foreign_fs().map(|name| {
            format!("file system of {path} is {name}, where locks may not hold; one machine alone may use it")
        });
        let private = store.private_tmp().map(|why| {
            format!("{path} is in {why}; use a directory elsewhere in the URL: file:///var/lib/NAME")
        });
        let almost_shared = store.dir.almost_shared().map(|error| error.to_string());
        foreign.into_iter().chain(private).chain(almost_shared).collect()
    }

    fn examine(&self) -> Pending<Vec<Finding>> {
        let shared = Arc::clone(&self.0);
        Pending::Later(Box::pin(async move { examine::examine(&*shared.store()?).await }))
    }

    fn lifeline(&self) -> Result<Option<OwnedFd>, Error> {
        let store = self.0.store()?;
        store.session.lifeline(&store.dir).map(Some)
    }
}

impl Drop for FileDomain {
    fn drop(&mut self) {
        // In a forked child, the tasks belong to the parent.
        if self.0.session.home.is_here() {
            self.0.listener.stop();
            self.0.death_watch.stop_all();
        }
    }
}

impl Shared {
    /// The directory; an error in a forked child.
    fn store(&self) -> Result<Arc<OpenDirectory>, Error> {
        self.session.check_process()?;
        Ok(Arc::clone(&self.store.lock()))
    }

    /// Continues in the directory that has the path now, if there is one.
    fn reopen(&self, removed: &Arc<OpenDirectory>) -> Result<(), Error> {
        let mut store = self.store.lock();
        if Arc::ptr_eq(&store, removed) {
            let dir = removed.dir.reopen(removed.network_fs_allowed)?;
            let (clock, process, allowed) = (removed.clock, removed.process, removed.network_fs_allowed);
            let id = self.session.id();
            session::refuse_another_boot(&dir, &clock, process)?;
            let files =
                SessionFiles::create(&dir, id, &clock)?.ok_or_else(|| files_removed_by_others(&dir))?;
            files.keep_lifeline_of(&removed.session);
            *store = Arc::new(OpenDirectory::new(dir, id, files, clock, process, allowed)?);
            self.messages.close_all();
            self.listener.stop();
        }
        Ok(())
    }
}
