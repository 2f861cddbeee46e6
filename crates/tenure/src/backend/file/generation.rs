//! One file of a stripe: opened, locked, read, and known by its number.

use std::cell::Cell;
use std::fs::{File, TryLockError};
use std::sync::Arc;
use std::time::Duration;

use super::place::Place;
use super::session;
use super::slots::{self, Image};
use super::state::State;
use super::stripe::SETTLE;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::record::Now;

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
    /// Refuses to touch a file that somebody uses who shows another boot id.
    pub(super) fn refuse_another_boot(&self, place: &Place) -> Result<(), Error> {
        let image = slots::read(&self.file).map_err(|error| place.dir.io_trouble("read", &error))?;
        match image.and_then(|image| State::from_bytes(&image.data)) {
            Some(state) if state.clock.boot != place.clock.boot => refuse_living(&state, place),
            _ => Ok(()),
        }
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

    /// The same without the lock, after the mark was set: a write that is under way ends soon, and does not count.
    pub(super) fn load_settled(&self, place: &Place, index: usize) -> Result<(Image, State), Error> {
        for _ in 0..5 {
            if let Ok(loaded) = self.load(place, index) {
                return Ok(loaded);
            }
            std::thread::sleep(SETTLE);
        }
        self.load(place, index)
    }

    pub(super) fn load(&self, place: &Place, index: usize) -> Result<(Image, State), Error> {
        let refused = |why: &str| {
            let path = place.dir.path().join(file_name(index, self.number));
            Error::new(ErrorKind::Protocol, format!("{} {why}", path.display()))
        };
        let corrupt =
            || refused("is corrupt, or not a file of tenure; if no process uses this directory, remove it");
        let io_trouble = |error| place.dir.io_trouble("read", &error);
        let image = slots::read(&self.file).map_err(io_trouble)?;
        if image.as_ref().is_none_or(|image| image.is_damaged)
            && slots::is_of_another_version(&self.file).map_err(io_trouble)?
        {
            return Err(refused(
                "was written by another version of tenure; use that version, or another directory",
            ));
        }
        let image = image.ok_or_else(corrupt)?;
        let mut state = State::from_bytes(&image.data).ok_or_else(corrupt)?;
        if state.clock.boot == place.clock.boot {
            if image.is_damaged {
                return Err(corrupt());
            }
            if state.clock != place.clock && !state.is_vacant() {
                return Err(Error::unsupported(format!(
                    "{} is in use from another time namespace, whose clock differs; use a directory for each",
                    place.dir.path().display()
                )));
            }
        } else {
            refuse_living(&state, place)?;
        }
        if state.clock != place.clock {
            state.void(place.clock);
        }
        Ok((image, state))
    }
}

/// Refuses to take what a stripe holds under another boot id for over while it may not be. After a reboot nobody lives who showed the
/// boot id before it.
fn refuse_living(state: &State, place: &Place) -> Result<(), Error> {
    session::refuse_another_boot(&place.dir, &place.clock, place.process)?;
    // A detached lease needs nobody who lives. Only the kernel's own boot id says that it is over.
    match state.detached_for(super::now()).filter(|_| place.is_boot_replaced) {
        None => Ok(()),
        Some(left) => Err(Error::unsupported(format!(
            "{} has a detached lease of another boot id, and a boot id that is mounted over the kernel's does not tell whether \
             the machine has been rebooted since; use another directory, or wait for {} s",
            place.dir.path().display(),
            left.as_secs() + 1
        ))),
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
        if let Some(file) = place.dir.open_file(&file_name(index, number))? {
            return Ok(Some(Generation { number, file: Arc::new(file), seen: Cell::new(0) }));
        }
    }
}
