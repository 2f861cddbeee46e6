//! A session: one client of the directory, for as long as its process lives.
//!
//! A session is a file under a POSIX record lock: the only lock that ends with its process, and not with the last descriptor, so that a
//! forked child can't keep it. In return, closing *any* descriptor of the file drops the lock. So a process never opens one of its own
//! sessions again; it recognizes them by their ids, which have the same prefix. Other clients write to the pipe of a session. A pipe
//! without a reader is the quick hint that the session is dead, and the lock is the proof.
//!
//! A client locks the file of a pending session, and then renames it, so that other clients never see an unlocked session that lives. A
//! session is dead if another process can lock it, and if no process has its lifeline. The lifeline is a file under a lock that does
//! live as long as its descriptors, in every process that has one.

use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{FlockOperation, OFlags, fcntl_lock};
use rustix::io::Errno;

use super::directory::Directory;
use super::open_directory::files_removed_by_others;
use super::platform::ClockIdentity;
use crate::sync::Mutex;
use crate::types::error::{Error, ErrorKind};
use crate::types::owner::{SessionId, hex};

/// How many times the kernel's list of locks is read before a lock counts as missing.
const LOCK_LIST_READS: usize = 5;
/// How many bytes of a session's file are read: more than a session writes.
const LONGEST_ABOUT: u64 = 256;

/// The files of this client's session; removed when it is dropped.
#[derive(Debug)]
pub(super) struct SessionFiles {
    id: SessionId,
    /// The process that has the lock. A forked child has a copy of this value, and not the lock.
    pid: u32,
    lock: File,
    /// Keeps a reader on the pipe as long as this process lives, whichever runtime listens.
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

/// The name of a session's file until it is locked. The prefix is part of the protocol.
fn pending_name(id: &SessionId) -> String {
    format!("unborn-{}", id.as_str())
}

impl SessionFiles {
    /// `None` if another client took the files for those of a dead session, and removed them before they were locked.
    pub(super) fn create(
        dir: &Directory,
        id: &SessionId,
        clock: &ClockIdentity,
    ) -> Result<Option<Self>, Error> {
        let created = SessionFiles::try_create(dir, id, clock);
        if !matches!(created, Ok(Some(_))) {
            // No other client removes them as long as this process lives.
            dir.remove(&pipe_name(id));
            dir.remove(&pending_name(id));
        }
        created
    }

    fn try_create(dir: &Directory, id: &SessionId, clock: &ClockIdentity) -> Result<Option<Self>, Error> {
        let (pending, pipe) = (pending_name(id), pipe_name(id));
        let mut lock = dir.create(&pending)?;
        match fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::AGAIN | Errno::ACCESS) => return Ok(None),
            answer => dir.io("locked", answer)?,
        }
        let about = format!("boot {}\npid {}\n", hex(clock.boot), std::process::id());
        dir.io("written", lock.write_all(about.as_bytes()))?;
        // If another process removed the session's file, its pipe may still be there.
        dir.remove(&pipe);
        // Another client may remove it together with the pending session.
        if !dir.create_pipe(&pipe)? {
            return Ok(None);
        }
        let reader = match dir.open_pipe(&pipe, OFlags::RDWR) {
            Err(Errno::NOENT) => return Ok(None),
            answer => dir.io("opened", answer)?,
        };
        if !dir.rename(&pending, &lock_name(id))? {
            return Ok(None);
        }
        let pid = std::process::id();
        Ok(Some(SessionFiles { id: id.clone(), pid, lock, _pipe: reader, lifeline: Mutex::new(None) }))
    }

    /// Whether other clients can still see it.
    pub(super) fn is_there(&self, dir: &Directory) -> bool {
        dir.is_named(&self.lock, &lock_name(&self.id))
    }

    /// Takes over the lifeline of the same session in a directory that was removed, if the lifeline itself was not removed.
    pub(super) fn keep_lifeline_of(&self, before: &SessionFiles) {
        let is_there = |file: &File| rustix::fs::fstat(file).is_ok_and(|stat| stat.st_nlink > 0);
        *self.lifeline.lock() = before.lifeline.lock().take().filter(is_there);
    }

    /// Whether the kernel shows to every process that this process has locked the file; `None` if it does not show locks.
    pub(super) fn is_seen_locked(&self) -> Option<bool> {
        let inode = rustix::fs::fstat(&self.lock).ok()?.st_ino;
        // The kernel returns the list in pieces, and a lock that comes or goes meanwhile may hide another one.
        for _ in 0..LOCK_LIST_READS {
            let locks = std::fs::read_to_string("/proc/locks").ok()?;
            if locks.lines().any(|line| is_lock_of(line, self.pid, inode)) {
                return Some(true);
            }
        }
        Some(false)
    }

    /// A descriptor that keeps the session alive in every process that has it open.
    pub(super) fn lifeline(&self, dir: &Directory) -> Result<OwnedFd, Error> {
        let mut lifeline = self.lifeline.lock();
        let file = match lifeline.take() {
            Some(file) => file,
            None => {
                // A draft until it has its mode: if this process were killed before that, other users could not test the lock.
                let draft = format!("draft-{}-lifeline", self.id.as_str());
                // A failed attempt may have left one.
                dir.remove(&draft);
                let file = dir.create(&draft)?;
                dir.io("locked", file.lock())?;
                if !dir.rename(&draft, &lifeline_name(&self.id))? {
                    return Err(files_removed_by_others(dir));
                }
                file
            }
        };
        dir.io("opened", lifeline.insert(file).try_clone().map(OwnedFd::from))
    }

    /// Removes the files, unless this process is a forked child, or the session was begun again and the files are newer.
    pub(super) fn remove(&self, dir: &Directory) {
        if std::process::id() == self.pid && self.is_there(dir) {
            remove(dir, &self.id);
        }
    }
}

/// Whether a line of /proc/locks is a record lock of this process for writing, on this file: `1: POSIX  ADVISORY  WRITE 4711 fe:00:1234 0 EOF`. The
/// device is not compared: some file systems show another one there.
fn is_lock_of(line: &str, pid: u32, inode: u64) -> bool {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, "POSIX", _, "WRITE", owner, file, ..] = fields[..] else { return false };
    let is_file = file.rsplit(':').next().and_then(|number| number.parse().ok()) == Some(inode);
    is_file && owner.parse() == Ok(pid)
}

/// Whether the session or its process has ended. If that can't be known, the session lives.
pub(super) fn is_dead(dir: &Directory, id: &SessionId, process: u32) -> bool {
    if id.is_of_process(process) {
        return !dir.has(&lock_name(id));
    }
    is_unlocked(dir, &lock_name(id)) && is_lifeline_unlocked(dir, id)
}

/// Whether no process has the record lock of the file, or the file is gone.
fn is_unlocked(dir: &Directory, name: &str) -> bool {
    match dir.open_file(name) {
        Ok(None) => true,
        // A shared lock: two processes that test at the same time don't take each other for the owner.
        Ok(Some(file)) => fcntl_lock(&file, FlockOperation::NonBlockingLockShared).is_ok(),
        Err(_) => false,
    }
}

/// Whether no process has the session's lifeline.
fn is_lifeline_unlocked(dir: &Directory, id: &SessionId) -> bool {
    match dir.open_file(&lifeline_name(id)) {
        Ok(None) => true,
        Ok(Some(file)) => is_free(&file.try_lock_shared()),
        Err(_) => false,
    }
}

/// Whether a lock was free when it was tried. If the file system can't tell, it was not.
fn is_free(tried: &Result<(), TryLockError>) -> bool {
    tried.is_ok()
}

fn remove(dir: &Directory, id: &SessionId) {
    for name in [pipe_name(id), lifeline_name(id), lock_name(id)] {
        dir.remove(&name);
    }
}

/// Removes the files of dead sessions; returns how many sessions that were.
pub(super) fn sweep(dir: &Directory, names: &[String], process: u32) -> usize {
    let mut dead = 0;
    // Pending sessions first: a pipe is removed after its session.
    let (pending, others): (Vec<&String>, Vec<&String>) =
        names.iter().partition(|name| name.starts_with("unborn-"));
    for name in pending.into_iter().chain(others) {
        let Some((kind, id)) = name.split_once('-') else { continue };
        let Some(id) = SessionId::parse(id).filter(|id| !id.is_of_process(process)) else { continue };
        match kind {
            "session" if is_dead(dir, &id, process) => {
                remove(dir, &id);
                dead += 1;
            }
            // Only this file: the session may get its name meanwhile. A pending session that does not have its mode yet may live; then its
            // client begins another one.
            "unborn" if is_unlocked(dir, name) || dir.is_unshared(name) => dir.remove(name),
            // In this order: a session that is being made always has one of the two names.
            "pipe" | "lifeline" if !dir.has(&pending_name(&id)) && !dir.has(&lock_name(&id)) => {
                dir.remove(name)
            }
            _ => {}
        }
    }
    dead
}

/// Returns an error if a living session shows another boot id. Its records look like those of an earlier boot, and are not: its process
/// runs in a container that has its own boot id, or on another machine.
pub(super) fn refuse_another_boot(dir: &Directory, clock: &ClockIdentity, process: u32) -> Result<(), Error> {
    let own = format!("boot {}\n", hex(clock.boot));
    for name in dir.list()?.iter().filter(|name| name.starts_with("session-")) {
        let Some(id) = name.strip_prefix("session-").and_then(SessionId::parse) else { continue };
        if id.is_of_process(process) {
            continue;
        }
        let file = match dir.open_file(name) {
            Ok(Some(file)) => file,
            // A session that has ended since, and an entry that is not a file: no process has a lock on either.
            Ok(None) => continue,
            Err(error) if error.kind() == ErrorKind::Protocol => continue,
            Err(error) => return Err(error),
        };
        let mut about = Vec::new();
        dir.io("read", file.take(LONGEST_ABOUT).read_to_end(&mut about))?;
        // Whatever the file says: if a process has locked it, it may be a session.
        if !about.starts_with(own.as_bytes()) && !is_dead(dir, &id, process) {
            let path = dir.path().display();
            return Err(Error::unsupported(format!(
                "{path} is in use by a process with another boot id, in another container or on another machine"
            ))
            .fix(
                "use a directory for each, or one boot id for all (/proc/sys/kernel/random/boot_id); between machines use Redis",
            ));
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
