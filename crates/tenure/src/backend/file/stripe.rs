//! One stripe: the records of its names, in a file that one process at a time has locked.
//!
//! An operation locks the file, reads it, applies itself and writes. It has the lock for a few µs, unless its process is stopped or has
//! forked, and nobody waits for such a process. A client that has waited for too long *marks the file as dead*, waits for [`SETTLE`], and
//! *replaces* the file by a new one with the same content and the next number. The file with the highest number counts; it is never
//! removed.
//! - A write counts if the new file has it. A process that read the file without the mark and wrote within `SETTLE` wrote before the
//!   content was read for the new file. A process that took longer, because it was stopped, reads the mark again; if it is set, the
//!   process repeats the operation on the new file. It can't know whether its first write counts, so every operation can be done twice.
//! - If two processes replace a file, one gets the name: linking fails if the name exists. A process that is stopped before it links finds
//!   the name taken, however long it was stopped; so nobody waits for a replacing process either. This needs every used name to stay until
//!   no process can be about to use it again: a process announces itself by a draft *before* it looks for the highest number, and lower
//!   numbers are removed only while there is no draft of a living session.

use std::time::Duration;

use super::copies::{self, Header, Image};
use super::faults::{Check, Point, at, leaves_out};
use super::generation::{Generation, Lock, highest};
use super::open_directory::OpenDirectory;
use super::replace::replace;
use super::state::State;
use crate::core::record::Now;
use crate::time::clock::Clock;
use crate::types::error::Error;

/// For how many operations a client reads the whole stripe after another client has written it, without reading the headers first.
const SHARED_FOR: u8 = 16;
/// How long a process waits between marking a file as dead and reading it for the new file.
pub(super) const SETTLE: Duration = Duration::from_millis(6);
/// A process that read and wrote within this time, in µs, wrote before any process read the file to replace it. Less than [`SETTLE`], by
/// more than the clocks of two processors can differ.
const SURE: u64 = 4_000;

#[derive(Debug)]
pub(super) struct Stripe {
    index: usize,
    open: Option<Generation>,
    /// What this client wrote last. While the headers show no later write, the client does not read the data.
    known: Option<Known>,
    /// For how many more operations the client expects that others write in between.
    shared_for: u8,
}

#[derive(Debug)]
struct Known {
    /// The number of the file.
    generation: u64,
    header: Header,
    data: Vec<u8>,
    state: State,
}

/// The result of an attempt to change a stripe.
pub(super) enum Outcome<T> {
    Done(T),
    /// Another process has the lock.
    Locked,
    /// The file is dead, and has not been replaced yet.
    Dead,
    /// The directory, or this client's session in it, was removed.
    Removed,
}

/// The number of the file and of its last write. A locked stripe is stuck if this stays the same. `None` if the file is dead.
pub(super) type Progress = Option<(u64, Option<u64>)>;

impl Stripe {
    pub(super) fn new(index: usize) -> Self {
        Stripe { index, open: None, known: None, shared_for: 0 }
    }

    /// Applies `change` to the content of the stripe; again if the file was replaced meanwhile.
    pub(super) fn change<T>(
        &mut self,
        store: &OpenDirectory,
        mut change: impl FnMut(&mut State, Now) -> T,
    ) -> Result<Outcome<T>, Error> {
        loop {
            let generation = match self.open.take() {
                Some(generation) => generation,
                None => match highest(store, self.index)? {
                    Some(generation) => generation,
                    None if store.is_removed() => return Ok(Outcome::Removed),
                    None => {
                        replace(store, self.index, None)?;
                        continue;
                    }
                },
            };
            let known = self.known.take().filter(|known| known.generation == generation.number);
            let lock = store.dir.io("locked", Lock::take(&generation.file))?;
            let Some(lock) = lock else {
                // A process may keep the lock of a dead file for ever.
                if generation.is_dead(store)? {
                    match self.open_replacement(generation, store)? {
                        true => continue,
                        false => return Ok(Outcome::Dead),
                    }
                }
                (self.open, self.known) = (Some(generation), known);
                return Ok(Outcome::Locked);
            };
            at(Point::Locked);
            let now = super::now();
            if generation.was_removed(store, self.index, now) {
                if store.is_removed() {
                    return Ok(Outcome::Removed);
                }
                continue;
            }
            let Some(mut known) = self.read(&generation, known, store)? else {
                drop(lock);
                match self.open_replacement(generation, store)? {
                    true => continue,
                    false => return Ok(Outcome::Dead),
                }
            };
            let result = change(&mut known.state, now);
            at(Point::Applied);
            let data = known.state.to_bytes_like(known.data.len());
            if data != known.data {
                if data.len() > copies::LONGEST {
                    return Err(full(store));
                }
                known.header = Header::of(known.header.seq + 1, &data);
                store.dir.io("written", copies::write(&generation.file, known.header, &data))?;
                known.data = data;
                at(Point::Written);
            }
            let took = Clock::Awake.now().as_micros().wrapping_sub(now.lease);
            if took > SURE && !leaves_out(Check::ReplacedMeanwhile) && generation.is_dead(store)? {
                continue;
            }
            at(Point::Committed);
            drop(lock);
            (self.open, self.known) = (Some(generation), Some(known));
            return Ok(Outcome::Done(result));
        }
    }

    /// Reads the file under the lock; `None` if it is dead.
    fn read(
        &mut self,
        generation: &Generation,
        known: Option<Known>,
        store: &OpenDirectory,
    ) -> Result<Option<Known>, Error> {
        let written = known.as_ref().map(|known| known.header);
        if let Some(known) = known.filter(|_| self.shared_for == 0) {
            let head = store.dir.io("read", copies::read_head(&generation.file))?;
            if let Some(head) = head.filter(|head| head.newest() == Some(known.header)) {
                return Ok((!head.is_dead).then_some(known));
            }
        }
        let (Image { header, data, is_dead, .. }, state) = generation.load(store, self.index)?;
        self.shared_for = match written {
            Some(written) if written != header => SHARED_FOR,
            _ => self.shared_for.saturating_sub(1),
        };
        let generation = generation.number;
        Ok((!is_dead).then_some(Known { generation, header, data, state }))
    }

    /// Continues with the file that has replaced a dead one; false if there is none yet.
    fn open_replacement(&mut self, dead: Generation, store: &OpenDirectory) -> Result<bool, Error> {
        let highest = highest(store, self.index)?.filter(|highest| highest.number > dead.number);
        let is_replaced = highest.is_some();
        self.open = highest.or(Some(dead));
        Ok(is_replaced)
    }

    /// Reads the content with `read`, without the lock; `None` if that needs the lock.
    pub(super) fn look<T>(
        &mut self,
        store: &OpenDirectory,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        for _ in 0..3 {
            if self.open.is_none() {
                self.open = highest(store, self.index)?;
            }
            let Some(generation) = &self.open else { return Ok(read_empty(store, read)) };
            let now = super::now();
            if generation.was_removed(store, self.index, now) {
                self.open = None;
                continue;
            }
            let image = store.dir.io("read", copies::read(&generation.file))?;
            let took = Clock::Awake.now().as_micros().wrapping_sub(now.lease);
            if image.is_none() && generation.was_emptied(store)? {
                let newer = highest(store, self.index)?.filter(|newer| newer.number > generation.number);
                if newer.is_none() {
                    return Ok(read_empty(store, read));
                }
                self.open = newer;
                continue;
            }
            let Some(image) = image.filter(|image| !image.is_damaged && took <= SURE) else { continue };
            if image.is_dead {
                self.open = None;
                continue;
            }
            if State::clock_of(&image.data) == Some(store.clock)
                && let Some(seen) = read(&image.data)
            {
                return Ok(Some(seen));
            }
        }
        Ok(None)
    }

    /// Whether a token holds a name, as `says` reads it, without the lock; `None` if that needs the lock.
    pub(super) fn is_granted(
        &mut self,
        store: &OpenDirectory,
        says: impl Fn(&[u8]) -> Option<bool>,
    ) -> Result<Option<bool>, Error> {
        let now = super::now();
        // If there are many waiters the data are long, and the holder is at their beginning.
        if let Some(generation) = &self.open
            && !generation.was_removed(store, self.index, now)
        {
            let beginning = store.dir.io("read", copies::read_beginning(&generation.file))?;
            let took = Clock::Awake.now().as_micros().wrapping_sub(now.lease);
            if let Some(beginning) = beginning.filter(|_| took <= SURE)
                && State::clock_of(&beginning) == Some(store.clock)
                && let Some(granted) = says(&beginning)
            {
                return Ok(Some(granted));
            }
        }
        self.look(store, says)
    }

    pub(super) fn progress(&self) -> Progress {
        let generation = self.open.as_ref()?;
        let head = copies::read_head(&generation.file).ok()??;
        (!head.is_dead).then(|| (generation.number, head.newest().map(|header| header.seq)))
    }

    /// Marks the file as dead, because the process that has its lock is stuck; returns its number.
    pub(super) fn mark_dead(&self, store: &OpenDirectory) -> Result<Option<u64>, Error> {
        let Some(generation) = &self.open else { return Ok(None) };
        generation.mark_dead(store, self.index)?;
        at(Point::MarkedDead);
        Ok(Some(generation.number))
    }
}

fn read_empty<T>(store: &OpenDirectory, read: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
    read(&State::new(store.clock).to_bytes()).filter(|_| !store.is_removed())
}

fn full(store: &OpenDirectory) -> Error {
    Error::unavailable(format!("too many names are held or waited for in {}", store.dir.path().display()))
        .fix("use a second directory for some of them")
}
