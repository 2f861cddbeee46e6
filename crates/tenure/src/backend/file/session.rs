//! A session: one client of the directory, as long as its process lives.
//!
//! A file under a POSIX record lock, because that is the one lock that ends with its process and not with the last descriptor: a forked
//! child can't keep it. It has a price: closing *any* descriptor of the file drops the lock. So a process never opens a session of its
//! own a second time; it knows them by their ids, which begin alike. Beside it lies a pipe, which others write to; whether anybody
//! reads it is the quick hint that its session has died, and the lock is the proof.
//!
//! A session becomes visible, by a rename, when it is locked. It is dead when it can be locked by another, and when nobody holds its
//! lifeline either: a file under a lock that does live by its descriptors, and so in every process that they were given to.

use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{FlockOperation, OFlags, fcntl_lock};
use rustix::io::Errno;

use super::directory::Directory;
use super::place::swept_away;
use super::platform::ClockIdentity;
use crate::sync::Mutex;
use crate::types::error::{Error, ErrorKind};
use crate::types::owner::{SessionId, hex};

/// How often the kernel's list of locks is read before a lock counts as missing.
const LOOKS: usize = 5;
/// How much of a session's file is read: more than a session writes.
const LONGEST_ABOUT: u64 = 256;

/// The files of this client's session; removed when it is dropped.
#[derive(Debug)]
pub(super) struct SessionFiles {
    id: SessionId,
    /// The process that has the lock. A forked child has this value too, and none of its rights.
    pid: u32,
    lock: File,
    /// Somebody reads the pipe as long as this process lives, whichever runtime listens.
    _pipe: OwnedFd,
    lifeline: Mutex<Option<File>>,
}

pub(super) fn lock_name(id: &SessionId) -> String {
    format!("session-{}", id.as_str())
}

pub(super) fn pipe_name(id: &SessionId) -> String {
    format!("pipe-{}", id.as_str())
}

fn lifeline_name(id: &SessionId) -> String {
    format!("lifeline-{}", id.as_str())
}

fn unborn_name(id: &SessionId) -> String {
    format!("unborn-{}", id.as_str())
}

impl SessionFiles {
    /// `None` when somebody who swept took it for a dead one's before it was locked.
    pub(super) fn create(
        dir: &Directory,
        id: &SessionId,
        clock: &ClockIdentity,
    ) -> Result<Option<Self>, Error> {
        let created = SessionFiles::try_create(dir, id, clock);
        if !matches!(created, Ok(Some(_))) {
            // Nobody else removes them as long as this process lives.
            dir.remove(&pipe_name(id));
            dir.remove(&unborn_name(id));
        }
        created
    }

    fn try_create(dir: &Directory, id: &SessionId, clock: &ClockIdentity) -> Result<Option<Self>, Error> {
        let (unborn, pipe) = (unborn_name(id), pipe_name(id));
        let mut lock = dir.create(&unborn)?;
        match fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::AGAIN | Errno::ACCESS) => return Ok(None),
            answer => answer.map_err(|error| dir.trouble("locked", error))?,
        }
        let about = format!("boot {}\npid {}\n", hex(clock.boot), std::process::id());
        lock.write_all(about.as_bytes()).map_err(|error| dir.io_trouble("written", &error))?;
        // One may be left of this session, if its other file was removed.
        dir.remove(&pipe);
        // It may be swept away with the unborn one that it belongs to.
        if !dir.create_pipe(&pipe)? {
            return Ok(None);
        }
        let reader = match dir.open_pipe(&pipe, OFlags::RDWR) {
            Err(Errno::NOENT) => return Ok(None),
            answer => answer.map_err(|error| dir.trouble("opened", error))?,
        };
        if !dir.rename(&unborn, &lock_name(id))? {
            return Ok(None);
        }
        let pid = std::process::id();
        Ok(Some(SessionFiles { id: id.clone(), pid, lock, _pipe: reader, lifeline: Mutex::new(None) }))
    }

    /// Whether others can still see it.
    pub(super) fn is_there(&self, dir: &Directory) -> bool {
        dir.is_named(&self.lock, &lock_name(&self.id))
    }

    /// Keeps the lifeline of the same session before it was removed and begun again, if that was not removed.
    pub(super) fn keep_lifeline_of(&self, before: &SessionFiles) {
        let is_there = |file: &File| rustix::fs::fstat(file).is_ok_and(|stat| stat.st_nlink > 0);
        *self.lifeline.lock() = before.lifeline.lock().take().filter(is_there);
    }

    /// Whether the kernel knows that this process has locked it, as it tells everyone; `None` when it does not show its locks.
    pub(super) fn is_seen_locked(&self) -> Option<bool> {
        let inode = rustix::fs::fstat(&self.lock).ok()?.st_ino;
        // It is read in pieces, and a lock that comes or goes meanwhile may hide another one.
        for _ in 0..LOOKS {
            let locks = std::fs::read_to_string("/proc/locks").ok()?;
            if locks.lines().any(|line| is_lock_of(line, self.pid, inode)) {
                return Some(true);
            }
        }
        Some(false)
    }

    /// A descriptor that keeps the session alive, in whichever process has it open.
    pub(super) fn lifeline(&self, dir: &Directory) -> Result<OwnedFd, Error> {
        let mut lifeline = self.lifeline.lock();
        let file = match lifeline.take() {
            Some(file) => file,
            None => {
                // Under another name until it has its mode: others could else not tell whether it is locked, if this process were killed before.
                let draft = format!("draft-{}-lifeline", self.id.as_str());
                // An attempt that failed may have left one.
                dir.remove(&draft);
                let file = dir.create(&draft)?;
                file.lock().map_err(|error| dir.io_trouble("locked", &error))?;
                if !dir.rename(&draft, &lifeline_name(&self.id))? {
                    return Err(swept_away(dir));
                }
                file
            }
        };
        let another = lifeline.insert(file).try_clone();
        another.map(OwnedFd::from).map_err(|error| dir.io_trouble("opened", &error))
    }

    /// Removes the files, if this process made them, and they are not those of the same session begun again.
    pub(super) fn remove(&self, dir: &Directory) {
        if std::process::id() == self.pid && self.is_there(dir) {
            remove(dir, &self.id);
        }
    }
}

/// Whether a line of /proc/locks is a record lock of this process for writing, on this file: `1: POSIX  ADVISORY  WRITE 4711 fe:00:1234 0 EOF`. The
/// device is left out: some file systems show another one there.
fn is_lock_of(line: &str, pid: u32, inode: u64) -> bool {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, "POSIX", _, "WRITE", owner, file, ..] = fields[..] else { return false };
    let is_file = file.rsplit(':').next().and_then(|number| number.parse().ok()) == Some(inode);
    is_file && owner.parse() == Ok(pid)
}

/// Whether the session has ended, or its process has. When that can't be known, it lives.
pub(super) fn is_dead(dir: &Directory, id: &SessionId, process: u32) -> bool {
    if id.is_of_process(process) {
        return !dir.has(&lock_name(id));
    }
    is_unlocked(dir, &lock_name(id)) && is_cut(dir, id)
}

/// Whether nobody holds the record lock of the file, or it is gone.
fn is_unlocked(dir: &Directory, name: &str) -> bool {
    match dir.open_file(name) {
        Ok(None) => true,
        // Shared: two that look at the same time don't take each other for the owner.
        Ok(Some(file)) => fcntl_lock(&file, FlockOperation::NonBlockingLockShared).is_ok(),
        Err(_) => false,
    }
}

/// Whether nobody holds the session's lifeline.
fn is_cut(dir: &Directory, id: &SessionId) -> bool {
    match dir.open_file(&lifeline_name(id)) {
        Ok(None) => true,
        Ok(Some(file)) => is_free(&file.try_lock_shared()),
        Err(_) => false,
    }
}

/// Whether nobody has a lock that was tried. If the file system could not tell, somebody has.
fn is_free(tried: &Result<(), TryLockError>) -> bool {
    tried.is_ok()
}

fn remove(dir: &Directory, id: &SessionId) {
    for name in [pipe_name(id), lifeline_name(id), lock_name(id)] {
        dir.remove(&name);
    }
}

/// Removes what dead sessions left behind; returns how many there were.
pub(super) fn sweep(dir: &Directory, names: &[String], process: u32) -> usize {
    let mut dead = 0;
    // A pipe goes when what it belongs to has gone.
    let (unborn, others): (Vec<&String>, Vec<&String>) =
        names.iter().partition(|name| name.starts_with("unborn-"));
    for name in unborn.into_iter().chain(others) {
        let Some((kind, id)) = name.split_once('-') else { continue };
        let Some(id) = SessionId::parse(id).filter(|id| !id.is_of_process(process)) else { continue };
        match kind {
            "session" if is_dead(dir, &id, process) => {
                remove(dir, &id);
                dead += 1;
            }
            // Nothing else of it: it may be born meanwhile.
            // One that does not have its mode yet may live: then it is begun again.
            "unborn" if is_unlocked(dir, name) || dir.is_unshared(name) => dir.remove(name),
            // In this order: what is born is always one of the two.
            "pipe" | "lifeline" if !dir.has(&unborn_name(&id)) && !dir.has(&lock_name(&id)) => {
                dir.remove(name)
            }
            _ => {}
        }
    }
    dead
}

/// Refuses to go on beside a living session that shows another boot id. What it has written looks like that of an earlier boot, and
/// is not: its process runs in a container that has a boot id of its own, or on another machine.
pub(super) fn refuse_another_boot(dir: &Directory, clock: &ClockIdentity, process: u32) -> Result<(), Error> {
    let own = format!("boot {}\n", hex(clock.boot));
    for name in dir.list()?.iter().filter(|name| name.starts_with("session-")) {
        let Some(id) = name.strip_prefix("session-").and_then(SessionId::parse) else { continue };
        if id.is_of_process(process) {
            continue;
        }
        let file = match dir.open_file(name) {
            Ok(Some(file)) => file,
            // One that ended since it was listed is in nobody's way, and neither is what is not a file: nobody can have locked it.
            Ok(None) => continue,
            Err(error) if error.kind() == ErrorKind::Protocol => continue,
            Err(error) => return Err(error),
        };
        let mut about = Vec::new();
        let read = file.take(LONGEST_ABOUT).read_to_end(&mut about);
        read.map_err(|error| dir.io_trouble("read", &error))?;
        // Whatever it says: if somebody has locked it, that may be a session.
        if !about.starts_with(own.as_bytes()) && !is_dead(dir, &id, process) {
            return Err(Error::unsupported(format!("{} is in use by a process with another boot id, in another container or on another machine", dir.path().display())).fix("use a directory \
                 for each, or one boot id for all (/proc/sys/kernel/random/boot_id); between machines use Redis"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // S1
    #[test]
    fn a_lock_that_the_file_system_cannot_test_is_held() {
        let no_locks = std::io::Error::from_raw_os_error(Errno::NOLCK.raw_os_error());
        assert!(is_free(&Ok(())));
        assert!(!is_free(&Err(TryLockError::WouldBlock)));
        assert!(!is_free(&Err(TryLockError::Error(no_locks))));
    }
}
