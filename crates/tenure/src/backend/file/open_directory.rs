//! A directory that one client has open, and the client's session in it.

use std::sync::Arc;

use super::directory::Directory;
use super::platform::{self, ClockIdentity};
use super::replace;
use super::session::{self, SessionFiles};
use super::stripe::Stripe;
use crate::sync::Mutex;
use crate::types::error::Error;
use crate::types::name::Name;
use crate::types::owner::{Session, SessionId, Token};

/// How many stripes the names are spread over.
pub(super) const STRIPES: usize = 64;
/// How many times a client begins a session that another client takes for a dead one and removes.
const SESSION_TRIES: usize = 100;

/// A directory that this client has open, and the client's session in it.
pub(super) struct OpenDirectory {
    pub(super) dir: Arc<Directory>,
    pub(super) session_id: SessionId,
    pub(super) session: SessionFiles,
    pub(super) stripes: Vec<Mutex<Stripe>>,
    pub(super) clock: ClockIdentity,
    /// Whether the boot id that this process sees is mounted over the kernel's.
    pub(super) is_boot_replaced: bool,
    /// When the machine was booted, in seconds of the wall clock as it is set now; `None` if unknown.
    pub(super) booted_at: fn() -> Option<u64>,
    /// The prefix of all session ids of this process.
    pub(super) process: u32,
    pub(super) network_fs_allowed: bool,
    /// How many dead sessions had left files behind when this client opened the directory.
    pub(super) swept: usize,
}

impl OpenDirectory {
    pub(super) fn new(
        dir: Directory,
        session_id: &SessionId,
        session: SessionFiles,
        clock: ClockIdentity,
        process: u32,
        network_fs_allowed: bool,
    ) -> Result<Self, Error> {
        let stripes = (0..STRIPES).map(|index| Mutex::new(Stripe::new(index))).collect();
        let (session_id, is_boot_replaced) = (session_id.clone(), platform::is_boot_replaced()?);
        let mut store = OpenDirectory {
            dir: Arc::new(dir),
            session_id,
            session,
            stripes,
            clock,
            is_boot_replaced,
            booted_at: if is_boot_replaced { || None } else { platform::booted_at },
            process,
            network_fs_allowed,
            swept: 0,
        };
        let names = store.dir.list()?;
        store.swept = session::sweep(&store.dir, &names, process);
        replace::sweep_all(&store, &names);
        Ok(store)
    }

    /// Whether other clients can no longer find this client here.
    pub(super) fn is_removed(&self) -> bool {
        self.dir.is_removed() || !self.session.is_there(&self.dir)
    }

    /// Why a directory inside a private `/tmp` is a problem; `None` if it is elsewhere.
    pub(super) fn private_tmp(&self) -> Option<String> {
        let temporary = platform::private_tmp(self.dir.path())?;
        Some(format!("a private {temporary}, so processes outside of this service are not excluded"))
    }

    pub(super) fn stripe(&self, name: &Name) -> &Mutex<Stripe> {
        &self.stripes[index_of(name)]
    }

    pub(super) fn is_dead(&self, token: &Token) -> bool {
        token.session().is_some_and(|id| session::is_dead(&self.dir, &id, self.process))
    }
}

/// Begins a session; with another id if another client removed the files of the first one.
pub(super) fn begin_session(
    dir: &Directory,
    clock: ClockIdentity,
    process: u32,
) -> Result<(Session, SessionFiles), Error> {
    // Before this client makes a file: a refused client leaves no trace.
    session::refuse_another_boot(dir, &clock, process)?;
    for _ in 0..SESSION_TRIES {
        let session = Session::of_process(process);
        if let Some(files) = SessionFiles::create(dir, session.id(), &clock)? {
            return Ok((session, files));
        }
    }
    Err(files_removed_by_others(dir))
}

pub(super) fn files_removed_by_others(dir: &Directory) -> Error {
    let path = dir.path().display();
    Error::unavailable(format!("another process removes new files from {path}"))
        .fix("stop that process, and try again")
}

impl Drop for OpenDirectory {
    fn drop(&mut self) {
        self.session.remove(&self.dir);
    }
}

/// The stripe of a name, the same in every process.
pub(super) fn index_of(name: &Name) -> usize {
    crc32fast::hash(name.as_str().as_bytes()) as usize % STRIPES
}
