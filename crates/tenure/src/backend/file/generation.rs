//! One file of a stripe: opened, locked, read, and known by its number.

use std::cell::Cell;
use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::place::Place;
use super::session;
use super::slots::{self, Image};
use super::state::State;
use super::stripe::SETTLE;
use crate::core::record::Now;
use crate::time::clock::Clock;
use crate::types::error::{Error, ErrorKind};
use crate::types::finding::quoted;

/// How long a lock is tried at once: some operations of others. A yield to a processor that is busy with something else takes longer
/// than that by itself.
const BRIEFLY: Duration = Duration::from_micros(100);
/// How often it is looked whether the file was removed, in µs.
const REMOVAL_CHECK: u64 = 10_000;

#[derive(Debug)]
pub(super) struct Generation {
    pub(super) number: u64,
    pub(super) file: Arc<File>,
    /// When it was last seen to be there, in µs of the lease clock.
    seen: Cell<u64>,
}

impl Generation {
    /// Marks the file as dead, unless it is not a stripe of this version, or somebody uses it who sees another clock: then nothing is written.
    pub(super) fn mark_dead(&self, place: &Place, index: usize) -> Result<(), Error> {
        let (corrupt, io_trouble) =
            (|| self.corrupt(place, index), |error| place.dir.io_trouble("read", &error));
        self.refuse_another_version(place, index)?;
        if let Some(image) = slots::read(&self.file).map_err(io_trouble)? {
            let state = State::from_bytes(&image.data).ok_or_else(corrupt)?;
            refuse_another_clock(&state, place)?;
        } else if self.was_emptied(place)? {
            // It counts as dead without a mark.
            return Ok(());
        } else if !slots::read_head(&self.file).map_err(io_trouble)?.is_some_and(|head| head.is_ours()) {
            // Its data may have been written while they were read. Its headers may not, or only one of them.
            return Err(corrupt());
        }
        slots::mark_dead(&self.file).map_err(|error| place.dir.io_trouble("written", &error))
    }

    /// Whether the file is empty and nothing in it counts: a power cut left it so, or it was removed since it was opened, as it is when it has been
    /// replaced. It was a power cut if it was last changed before this boot: a stripe has data when it gets its name. What was in it was of an
    /// earlier boot, and is over.
    pub(super) fn was_emptied(&self, place: &Place) -> Result<bool, Error> {
        let stat = rustix::fs::fstat(&self.file).map_err(|error| place.dir.trouble("looked at", error))?;
        let changed = u64::try_from(stat.st_ctime).unwrap_or(u64::MAX);
        // Removing it changes it.
        if stat.st_nlink > 0 && (place.booted_at)().is_none_or(|booted| changed >= booted) {
            return Ok(false);
        }
        slots::is_blank(&self.file).map_err(|error| place.dir.io_trouble("read", &error))
    }

    /// What a file that a power cut left empty held before, as the files below it have it, which are removed only when it is on disk: nothing but
    /// fences. `None` if that is not known for sure.
    fn before_it_was_emptied(&self, place: &Place, index: usize) -> Result<Option<(Image, State)>, Error> {
        session::refuse_another_boot(&place.dir, &place.clock, place.process)?;
        let mut below: Vec<u64> = place
            .dir
            .list()?
            .iter()
            .filter_map(|name| number_of(name, index))
            .filter(|&n| n < self.number)
            .collect();
        below.sort_unstable();
        for number in below.into_iter().rev() {
            let Some(older) = open(place, index, number)? else { return Ok(None) };
            if older.was_emptied(place)? {
                continue;
            }
            let (image, state) = older.load(place, index)?;
            let is_of_this_boot =
                State::clock_of(&image.data).is_none_or(|clock| clock.boot == place.clock.boot);
            return Ok((!is_of_this_boot).then_some((Image { is_dead: true, ..image }, state)));
        }
        let state = State::new(place.clock);
        Ok(Some((Image::dead(state.to_bytes()), state)))
    }

    pub(super) fn is_dead(&self, place: &Place) -> Result<bool, Error> {
        let head = slots::read_head(&self.file).map_err(|error| place.dir.io_trouble("read", &error))?;
        Ok(head.is_none_or(|head| head.is_dead))
    }

    /// Whether it does not have its name any more, or this client is not to be found any more; looked at every now and then.
    pub(super) fn was_removed(&self, place: &Place, index: usize, now: Now) -> bool {
        if now.lease.wrapping_sub(self.seen.get()) < REMOVAL_CHECK {
            return false;
        }
        self.seen.set(now.lease);
        place.is_removed() || !place.dir.is_named(&self.file, &file_name(index, self.number))
    }

    /// What a file holds that is to be replaced, without the lock, after the mark was set: a write that is under way ends soon, and does not count.
    pub(super) fn load_settled(&self, place: &Place, index: usize) -> Result<(Image, State), Error> {
        if self.was_emptied(place)? {
            let before = self.before_it_was_emptied(place, index)?;
            return before.ok_or_else(|| self.corrupt(place, index));
        }
        for _ in 0..5 {
            if let Ok(loaded) = self.load(place, index) {
                return Ok(loaded);
            }
            std::thread::sleep(SETTLE);
        }
        self.load(place, index)
    }

    /// What it holds, under the lock.
    pub(super) fn load(&self, place: &Place, index: usize) -> Result<(Image, State), Error> {
        let corrupt = || self.corrupt(place, index);
        let image = slots::read(&self.file).map_err(|error| place.dir.io_trouble("read", &error))?;
        if image.as_ref().is_none_or(|image| image.is_damaged) {
            self.refuse_another_version(place, index)?;
        }
        let Some(image) = image else {
            if !self.was_emptied(place)? {
                return Err(corrupt());
            }
            // Whoever replaces it looks for what it held.
            let nothing = State::new(place.clock);
            return Ok((Image::dead(nothing.to_bytes()), nothing));
        };
        let mut state = State::from_bytes(&image.data).ok_or_else(corrupt)?;
        // Nobody counts that far, and there is no higher one.
        if image.header.seq == u64::MAX {
            return Err(corrupt());
        }
        if state.clock.boot == place.clock.boot && image.is_damaged {
            return Err(corrupt());
        }
        refuse_another_clock(&state, place)?;
        if state.clock != place.clock {
            state.void(place.clock);
        }
        Ok((image, state))
    }

    fn refuse_another_version(&self, place: &Place, index: usize) -> Result<(), Error> {
        let is_other = slots::is_of_another_version(&self.file);
        match is_other.map_err(|error| place.dir.io_trouble("read", &error))? {
            true => Err(Error::new(
                ErrorKind::Protocol,
                format!("{} was written by another version of tenure", self.path(place, index).display()),
            )
            .fix("use that version, or another directory")),
            false => Ok(()),
        }
    }

    pub(super) fn corrupt(&self, place: &Place, index: usize) -> Error {
        let path = self.path(place, index);
        let what = match slots::is_blank(&self.file) {
            Ok(true) => "is empty",
            _ => "is corrupt, or not a file of tenure",
        };
        Error::new(ErrorKind::Protocol, format!("{} {what}", path.display())).fix(format!(
            "if no process uses this directory, remove this file: rm {}",
            quoted(&path.to_string_lossy())
        ))
    }

    fn path(&self, place: &Place, index: usize) -> PathBuf {
        place.dir.path().join(file_name(index, self.number))
    }
}

/// Refuses a stripe that somebody uses who measures leases on another clock.
fn refuse_another_clock(state: &State, place: &Place) -> Result<(), Error> {
    if state.clock.boot != place.clock.boot {
        return refuse_living(state, place);
    }
    if state.clock == place.clock || state.is_vacant() {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "{} is in use from another time namespace, whose clock differs",
        place.dir.path().display()
    ))
    .fix("use a directory for each"))
}

/// Refuses to take what a stripe holds under another boot id for over while it may not be. After a reboot nobody lives who showed the
/// boot id before it.
fn refuse_living(state: &State, place: &Place) -> Result<(), Error> {
    session::refuse_another_boot(&place.dir, &place.clock, place.process)?;
    // A detached lease needs nobody who lives. Only the kernel's own boot id says that it is over.
    match state.detached_for(super::now()).filter(|_| place.is_boot_replaced) {
        None => Ok(()),
        Some(left) => Err(Error::unsupported(format!("{} has a detached lease of another boot id, and a boot id that is mounted over the kernel's does not tell whether \
             the machine has been rebooted since", place.dir.path().display())).fix(format!("use another directory, or wait for {} s", left.as_secs() + 1))),
    }
}

/// The lock of a stripe; given back when it is dropped.
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
            if now > *give_up.get_or_insert(now + BRIEFLY) {
                return Ok(None);
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Where it fails, the file is condemned by those who wait for it.
        let _ = self.0.unlock();
    }
}

pub(super) fn file_name(index: usize, number: u64) -> String {
    format!("stripe-{index:02x}.{number}")
}

/// The number of a file, if it is one of this stripe.
pub(super) fn number_of(name: &str, index: usize) -> Option<u64> {
    let number = name.strip_prefix("stripe-")?.strip_prefix(&format!("{index:02x}."))?;
    number.parse().ok().filter(|&parsed| number == u64::to_string(&parsed))
}

/// The stripe that a file belongs to.
pub(super) fn index_of(name: &str) -> Option<usize> {
    let (index, _) = name.strip_prefix("stripe-")?.split_once('.')?;
    usize::from_str_radix(index, 16).ok()
}

pub(super) fn highest(place: &Place, index: usize) -> Result<Option<Generation>, Error> {
    loop {
        let names = place.dir.list()?;
        let Some(number) = names.iter().filter_map(|name| number_of(name, index)).max() else {
            return Ok(None);
        };
        // Removed since it was listed: there is a higher one.
        if let Some(generation) = open(place, index, number)? {
            return Ok(Some(generation));
        }
    }
}

fn open(place: &Place, index: usize, number: u64) -> Result<Option<Generation>, Error> {
    let file = place.dir.open_file(&file_name(index, number))?;
    Ok(file.map(|file| Generation { number, file: Arc::new(file), seen: Cell::new(0) }))
}
