//! A directory that is open, and one client's session in it.

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

/// How many files the names are spread over.
pub(super) const STRIPES: usize = 64;
/// How often a session is begun again because somebody who swept was in its way.
const SESSION_TRIES: usize = 100;

/// A directory that is open, and this client's session in it.
pub(super) struct Place {
    pub(super) dir: Arc<Directory>,
    pub(super) session_id: SessionId,
    pub(super) session: SessionFiles,
    pub(super) stripes: Vec<Mutex<Stripe>>,
    pub(super) clock: ClockIdentity,
    /// Whether the boot id that this process sees is not the kernel's.
    pub(super) is_boot_replaced: bool,
    /// Tells when the machine was booted, in s of the wall clock as it is set now, if that can be known.
    pub(super) booted_at: fn() -> Option<u64>,
    /// What the ids of this process's sessions begin with.
    pub(super) process: u32,
    pub(super) network_fs_allowed: bool,
    /// How many dead sessions had left something behind when it was opened.
    pub(super) swept: usize,
}

impl Place {
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
        let mut place = Place {
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
        let names = place.dir.list()?;
        place.swept = session::sweep(&place.dir, &names, process);
        replace::sweep_all(&place, &names);
        Ok(place)
    }

    /// Whether nobody can find this client here any more.
    pub(super) fn is_removed(&self) -> bool {
        self.dir.is_removed() || !self.session.is_there(&self.dir)
    }

    /// What to say if it is in a directory for temporary files that only this service sees.
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

/// Begins a session: with another id when somebody who swept was in its way.
pub(super) fn begin_session(
    dir: &Directory,
    clock: ClockIdentity,
    process: u32,
) -> Result<(Session, SessionFiles), Error> {
    // Before this client makes a file: a client that is refused leaves no trace.
    session::refuse_another_boot(dir, &clock, process)?;
    for _ in 0..SESSION_TRIES {
        let session = Session::of_process(process);
        if let Some(files) = SessionFiles::create(dir, session.id(), &clock)? {
            return Ok((session, files));
        }
    }
    Err(swept_away(dir))
}

pub(super) fn swept_away(dir: &Directory) -> Error {
    let path = dir.path().display();
    Error::unavailable(format!("somebody removes files from {path} as they are made"))
        .fix("stop that, and try again")
}

impl Drop for Place {
    fn drop(&mut self) {
        self.session.remove(&self.dir);
    }
}

/// The stripe of a name: the same in every process.
pub(super) fn index_of(name: &Name) -> usize {
    crc32fast::hash(name.as_str().as_bytes()) as usize % STRIPES
}
