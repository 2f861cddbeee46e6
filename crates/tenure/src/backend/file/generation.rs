//! One file of a stripe, which is known by its number: opening, locking and reading it.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::copies::{self, Image};
use super::open_directory::{OpenDirectory, STRIPES};
use super::session;
use super::state::State;
use super::stripe::SETTLE;
use crate::core::record::Now;
use crate::time::clock::Clock;
use crate::types::error::{Error, ErrorKind};
use crate::types::finding::quoted;

/// How long a client tries a lock before it waits in the background: as long as a few operations of others. A yield on a busy processor
/// alone takes longer.
const TRY_LOCK_FOR: Duration = Duration::from_micros(100);
/// How often a client checks whether the file was removed, in µs.
const REMOVAL_CHECK: u64 = 10_000;

#[derive(Debug)]
pub(super) struct Generation {
    pub(super) number: u64,
    pub(super) file: Arc<File>,
    /// When the client last saw that the file was there, in µs of the lease clock.
    seen: Cell<u64>,
}

impl Generation {
    /// Marks the file as dead. Writes nothing if it is not a stripe of this version, or if a process with another clock uses it.
    pub(super) fn mark_dead(&self, store: &OpenDirectory, index: usize) -> Result<(), Error> {
        let corrupt = || self.corrupt(store, index);
        self.refuse_another_version(store, index)?;
        if let Some(image) = store.dir.io("read", copies::read(&self.file))? {
            let state = State::from_bytes(&image.data).ok_or_else(corrupt)?;
            refuse_another_clock(&state, store)?;
        } else if self.was_emptied(store)? {
            // An empty file counts as dead without a mark.
            return Ok(());
        } else if !store.dir.io("read", copies::read_head(&self.file))?.is_some_and(|head| head.is_ours()) {
            // The data may have changed during the read, and one header too, but not both headers.
            return Err(corrupt());
        }
        store.dir.io("written", copies::mark_dead(&self.file))
    }

    /// Whether the file is empty, and no lease can have been in it. Either a power cut emptied it, or it was replaced and removed since it was
    /// opened. It was a power cut if the last change was before this boot, because a stripe has data when it gets its name. Then its leases
    /// were of an earlier boot, and are over.
    pub(super) fn was_emptied(&self, store: &OpenDirectory) -> Result<bool, Error> {
        let stat = store.dir.io("looked at", rustix::fs::fstat(&self.file))?;
        let changed = u64::try_from(stat.st_ctime).unwrap_or(u64::MAX);
        // Removing a file changes its ctime.
        if stat.st_nlink > 0 && (store.booted_at)().is_none_or(|booted| changed >= booted) {
            return Ok(false);
        }
        store.dir.io("read", copies::is_blank(&self.file))
    }

    /// The content of a file before a power cut emptied it, from the files with lower numbers, which are removed only after a sync of this one.
    /// Only fences count in it. `None` if the content is not certain.
    fn content_before_power_cut(
        &self,
        store: &OpenDirectory,
        index: usize,
    ) -> Result<Option<(Image, State)>, Error> {
        session::refuse_another_boot(&store.dir, &store.clock, store.process)?;
        let mut below: Vec<u64> = store
            .dir
            .list()?
            .iter()
            .filter_map(|name| number_of(name, index))
            .filter(|&n| n < self.number)
            .collect();
        below.sort_unstable();
        for number in below.into_iter().rev() {
            let Some(older) = open(store, index, number)? else { return Ok(None) };
            if older.was_emptied(store)? {
                continue;
            }
            let (image, state) = older.load(store, index)?;
            let is_of_this_boot =
                State::clock_of(&image.data).is_none_or(|clock| clock.boot == store.clock.boot);
            return Ok((!is_of_this_boot).then_some((Image { is_dead: true, ..image }, state)));
        }
        let state = State::new(store.clock);
        Ok(Some((Image::dead(state.to_bytes()), state)))
    }

    pub(super) fn is_dead(&self, store: &OpenDirectory) -> Result<bool, Error> {
        let head = store.dir.io("read", copies::read_head(&self.file))?;
        Ok(head.is_none_or(|head| head.is_dead))
    }

    /// Whether the file has lost its name, or other clients can no longer find this client; checked every few ms.
    pub(super) fn was_removed(&self, store: &OpenDirectory, index: usize, now: Now) -> bool {
        if now.lease.wrapping_sub(self.seen.get()) < REMOVAL_CHECK {
            return false;
        }
        self.seen.set(now.lease);
        store.is_removed() || !store.dir.is_named(&self.file, &file_name(index, self.number))
    }

    /// Reads a file that is to be replaced, without the lock, after it was marked as dead: a write in progress ends soon, and does not count.
    pub(super) fn load_settled(&self, store: &OpenDirectory, index: usize) -> Result<(Image, State), Error> {
        if self.was_emptied(store)? {
            let before = self.content_before_power_cut(store, index)?;
            return before.ok_or_else(|| self.corrupt(store, index));
        }
        for _ in 0..5 {
            if let Ok(loaded) = self.load(store, index) {
                return Ok(loaded);
            }
            std::thread::sleep(SETTLE);
        }
        self.load(store, index)
    }

    /// Reads the file under the lock.
    pub(super) fn load(&self, store: &OpenDirectory, index: usize) -> Result<(Image, State), Error> {
        let corrupt = || self.corrupt(store, index);
        let image = store.dir.io("read", copies::read(&self.file))?;
        if image.as_ref().is_none_or(|image| image.is_damaged) {
            self.refuse_another_version(store, index)?;
        }
        let Some(image) = image else {
            if !self.was_emptied(store)? {
                return Err(corrupt());
            }
            // The client that replaces the file looks for its earlier content.
            let nothing = State::new(store.clock);
            return Ok((Image::dead(nothing.to_bytes()), nothing));
        };
        let mut state = State::from_bytes(&image.data).ok_or_else(corrupt)?;
        // No real stripe gets that far, and there is no higher number.
        if image.header.seq == u64::MAX {
            return Err(corrupt());
        }
        if state.clock.boot == store.clock.boot && image.is_damaged {
            return Err(corrupt());
        }
        refuse_another_clock(&state, store)?;
        if state.clock != store.clock {
            state.void(store.clock);
        }
        Ok((image, state))
    }

    fn refuse_another_version(&self, store: &OpenDirectory, index: usize) -> Result<(), Error> {
        match store.dir.io("read", copies::is_of_another_version(&self.file))? {
            true => Err(Error::new(
                ErrorKind::Protocol,
                format!("{} was written by another version of tenure", self.path(store, index).display()),
            )
            .fix("use that version, or another directory")),
            false => Ok(()),
        }
    }

    pub(super) fn corrupt(&self, store: &OpenDirectory, index: usize) -> Error {
        let path = self.path(store, index);
        let what = match copies::is_blank(&self.file) {
            Ok(true) => "is empty",
            _ => "is corrupt, or not a file of tenure",
        };
        Error::new(ErrorKind::Protocol, format!("{} {what}", path.display())).fix(format!(
            "if no process uses this directory, remove this file: rm {}",
            quoted(&path.to_string_lossy())
        ))
    }

    fn path(&self, store: &OpenDirectory, index: usize) -> PathBuf {
        store.dir.path().join(file_name(index, self.number))
    }
}

/// Returns an error if a process that measures leases on another clock uses the stripe.
fn refuse_another_clock(state: &State, store: &OpenDirectory) -> Result<(), Error> {
    if state.clock.boot != store.clock.boot {
        return refuse_unfinished_boot(state, store);
    }
    if state.clock == store.clock || state.is_vacant() {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "{} is in use from another time namespace, whose clock differs",
        store.dir.path().display()
    ))
    .fix("use a directory for each"))
}

/// Returns an error if leases of another boot id may not be over. After a reboot, no living process shows the earlier boot id.
fn refuse_unfinished_boot(state: &State, store: &OpenDirectory) -> Result<(), Error> {
    session::refuse_another_boot(&store.dir, &store.clock, store.process)?;
    // A detached lease needs no living process. Only the kernel's own boot id proves that it is over.
    match state.detached_for(super::now()).filter(|_| store.is_boot_replaced) {
        None => Ok(()),
        Some(left) => Err(Error::unsupported(format!(
            "{} has a detached lease of another boot id",
            store.dir.path().display()
        ))
        .because("a boot id that is mounted over the kernel's does not show whether the machine was rebooted since")
        .fix(format!("use another directory, or wait for {} s", left.as_secs() + 1))),
    }
}

/// The lock of a stripe; released on drop.
pub(super) struct Lock(Arc<File>);

impl Lock {
    pub(super) fn take(file: &Arc<File>) -> std::io::Result<Option<Self>> {
        let mut give_up = None;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(Lock(Arc::clone(file)))),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
            let now = Clock::Awake.now();
            if now > *give_up.get_or_insert(now + TRY_LOCK_FOR) {
                return Ok(None);
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // If this fails, the clients that wait for the file mark it as dead.
        let _ = self.0.unlock();
    }
}

pub(super) fn file_name(index: usize, number: u64) -> String {
    format!("stripe-{index:02x}.{number}")
}

/// The number of a file, if it belongs to this stripe.
pub(super) fn number_of(name: &str, index: usize) -> Option<u64> {
    let number = name.strip_prefix("stripe-")?.strip_prefix(&format!("{index:02x}."))?;
    number.parse().ok().filter(|&parsed| number == u64::to_string(&parsed))
}

/// The stripes that have files.
pub(super) fn stripes_in(names: &[String]) -> BTreeSet<usize> {
    names.iter().filter_map(|name| index_of(name)).filter(|&index| index < STRIPES).collect()
}

/// The stripe that a file belongs to.
pub(super) fn index_of(name: &str) -> Option<usize> {
    let (index, _) = name.strip_prefix("stripe-")?.split_once('.')?;
    usize::from_str_radix(index, 16).ok()
}

pub(super) fn highest(store: &OpenDirectory, index: usize) -> Result<Option<Generation>, Error> {
    loop {
        let names = store.dir.list()?;
        let Some(number) = names.iter().filter_map(|name| number_of(name, index)).max() else {
            return Ok(None);
        };
        // If it was removed since it was listed, there is a higher one.
        if let Some(generation) = open(store, index, number)? {
            return Ok(Some(generation));
        }
    }
}

fn open(store: &OpenDirectory, index: usize, number: u64) -> Result<Option<Generation>, Error> {
    let file = store.dir.open_file(&file_name(index, number))?;
    Ok(file.map(|file| Generation { number, file: Arc::new(file), seen: Cell::new(0) }))
}
