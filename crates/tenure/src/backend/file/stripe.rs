//! One stripe: the records of the names that fall on it, in a file that processes take turns on.
//!
//! An operation locks the file, reads it, applies itself and writes. The lock is held for some µs, unless its holder is stopped or
//! has forked: nobody waits for that. Whoever has waited for too long *condemns* the file by a mark, lets it [`SETTLE`], and
//! *replaces* it by a copy under the next number.
//! - A write counts if the copy has it. Whoever read the file without the mark, and has written it within less than `SETTLE`, has
//!   written before the copy was read. Whoever took longer, because it was stopped, looks for the mark again; where it finds it, it
//!   does it all again on the new file. Nobody can tell whether the first time counted, so every operation can be done twice.
//! - Of two that replace, one gets the name: a link is made only if nobody has it. One that is stopped before its link, for however long,
//!   finds the name taken; so nobody waits for whoever replaces either. For that, a name that was used stays until nobody can be on the
//!   way to use it again: whoever replaces announces itself by a draft *before* it looks for the highest number, and numbers below the
//!   highest are removed only while there is no draft of a living session.
//! - The file with the highest number counts. It is never removed, and those below it are dead.

use std::time::Duration;

use super::faults::{Check, Point, at, leaves_out};
use super::generation::{Generation, Lock, highest};
use super::place::Place;
use super::replace::replace;
use super::slots::{self, Header, Image};
use super::state::State;
use crate::core::record::Now;
use crate::time::clock::Clock;
use crate::types::error::Error;

/// For how many operations a stripe that somebody else has written is read as a whole, without asking first who wrote it.
const SHARED_FOR: u8 = 16;
/// From the mark that a file is dead to the copy of it.
pub(super) const SETTLE: Duration = Duration::from_millis(6);
/// Whoever has read and written within this time, in µs, has written before any copy was read. Less than [`SETTLE`], by more than
/// processors may disagree on what came first.
const SURE: u64 = 4_000;

#[derive(Debug)]
pub(super) struct Stripe {
    index: usize,
    open: Option<Generation>,
    /// What this client wrote last: while the file says that nobody has written since, it need not be read.
    known: Option<Known>,
    /// For how many more operations it is expected that somebody else writes in between.
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

/// What became of an attempt to change a stripe.
pub(super) enum Outcome<T> {
    Done(T),
    /// Another has the lock.
    Locked,
    /// The file is dead, and nothing has taken its place yet.
    Dead,
    /// The directory, or this client's session in it, was removed.
    Removed,
}

/// How far a stripe has come: it is stuck when this stays the same while its lock can't be had. `None` when it is dead.
pub(super) type Progress = Option<(u64, Option<u64>)>;

impl Stripe {
    pub(super) fn new(index: usize) -> Self {
        Stripe { index, open: None, known: None, shared_for: 0 }
    }

    /// Applies `change` to what the stripe holds. It is applied again if the stripe was replaced meanwhile.
    pub(super) fn change<T>(
        &mut self,
        place: &Place,
        mut change: impl FnMut(&mut State, Now) -> T,
    ) -> Result<Outcome<T>, Error> {
        loop {
            let generation = match self.open.take() {
                Some(generation) => generation,
                None => match highest(place, self.index)? {
                    Some(generation) => generation,
                    None if place.is_removed() => return Ok(Outcome::Removed),
                    None => {
                        replace(place, self.index, None)?;
                        continue;
                    }
                },
            };
            let known = self.known.take().filter(|known| known.generation == generation.number);
            let lock =
                Lock::take(&generation.file).map_err(|error| place.dir.io_trouble("locked", &error))?;
            let Some(lock) = lock else {
                // Whoever has the lock of a dead file may have it for ever.
                if generation.is_dead(place)? {
                    match self.leave_dead(generation, place)? {
                        true => continue,
                        false => return Ok(Outcome::Dead),
                    }
                }
                (self.open, self.known) = (Some(generation), known);
                return Ok(Outcome::Locked);
            };
            at(Point::Locked);
            let now = super::now();
            if generation.was_removed(place, self.index, now) {
                if place.is_removed() {
                    return Ok(Outcome::Removed);
                }
                continue;
            }
            let Some(mut known) = self.read(&generation, known, place)? else {
                drop(lock);
                match self.leave_dead(generation, place)? {
                    true => continue,
                    false => return Ok(Outcome::Dead),
                }
            };
            let result = change(&mut known.state, now);
            at(Point::Applied);
            let data = known.state.to_bytes_like(known.data.len());
            if data != known.data {
                if data.len() > slots::LONGEST {
                    return Err(too_much(place));
                }
                known.header = Header::of(known.header.seq + 1, &data);
                slots::write(&generation.file, known.header, &data)
                    .map_err(|error| place.dir.io_trouble("written", &error))?;
                known.data = data;
                at(Point::Written);
            }
            let took = Clock::Awake.now().as_micros().wrapping_sub(now.lease);
            if took > SURE && !leaves_out(Check::StolenMeanwhile) && generation.is_dead(place)? {
                continue;
            }
            at(Point::Committed);
            drop(lock);
            (self.open, self.known) = (Some(generation), Some(known));
            return Ok(Outcome::Done(result));
        }
    }

    /// What the file holds, under the lock; `None` when it is dead.
    fn read(
        &mut self,
        generation: &Generation,
        known: Option<Known>,
        place: &Place,
    ) -> Result<Option<Known>, Error> {
        let written = known.as_ref().map(|known| known.header);
        if let Some(known) = known.filter(|_| self.shared_for == 0) {
            let head = slots::read_head(&generation.file);
            let head = head.map_err(|error| place.dir.io_trouble("read", &error))?;
            if let Some(head) = head.filter(|head| head.newest() == Some(known.header)) {
                return Ok((!head.is_dead).then_some(known));
            }
        }
        let (Image { header, data, is_dead, .. }, state) = generation.load(place, self.index)?;
        self.shared_for = match written {
            Some(written) if written != header => SHARED_FOR,
            _ => self.shared_for.saturating_sub(1),
        };
        let generation = generation.number;
        Ok((!is_dead).then_some(Known { generation, header, data, state }))
    }

    /// Goes on to what has taken the place of a dead file; false when nothing has.
    fn leave_dead(&mut self, dead: Generation, place: &Place) -> Result<bool, Error> {
        let highest = highest(place, self.index)?.filter(|highest| highest.number > dead.number);
        let is_replaced = highest.is_some();
        self.open = highest.or(Some(dead));
        Ok(is_replaced)
    }

    /// What the stripe holds, as it is read by `read`, without the lock; `None` when it can't be told without.
    pub(super) fn look<T>(
        &mut self,
        place: &Place,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        for _ in 0..3 {
            if self.open.is_none() {
                self.open = highest(place, self.index)?;
            }
            let Some(generation) = &self.open else { return Ok(look_at_nothing(place, read)) };
            let now = super::now();
            if generation.was_removed(place, self.index, now) {
                self.open = None;
                continue;
            }
            let image =
                slots::read(&generation.file).map_err(|error| place.dir.io_trouble("read", &error))?;
            let took = Clock::Awake.now().as_micros().wrapping_sub(now.lease);
            if image.is_none() && generation.was_emptied(place)? {
                let newer = highest(place, self.index)?.filter(|newer| newer.number > generation.number);
                if newer.is_none() {
                    return Ok(look_at_nothing(place, read));
                }
                self.open = newer;
                continue;
            }
            let Some(image) = image.filter(|image| !image.is_damaged && took <= SURE) else { continue };
            if image.is_dead {
                self.open = None;
                continue;
            }
            if State::clock_of(&image.data) == Some(place.clock)
                && let Some(seen) = read(&image.data)
            {
                return Ok(Some(seen));
            }
        }
        Ok(None)
    }

    /// Whether a token holds a name, by what `says` reads, without the lock; `None` when it can't be told without.
    pub(super) fn is_granted(
        &mut self,
        place: &Place,
        says: impl Fn(&[u8]) -> Option<bool>,
    ) -> Result<Option<bool>, Error> {
        let now = super::now();
        // Where many wait the data are long, and the holder stands at their beginning.
        if let Some(generation) = &self.open
            && !generation.was_removed(place, self.index, now)
        {
            let beginning = slots::read_beginning(&generation.file);
            let beginning = beginning.map_err(|error| place.dir.io_trouble("read", &error))?;
            let took = Clock::Awake.now().as_micros().wrapping_sub(now.lease);
            if let Some(beginning) = beginning.filter(|_| took <= SURE)
                && State::clock_of(&beginning) == Some(place.clock)
                && let Some(granted) = says(&beginning)
            {
                return Ok(Some(granted));
            }
        }
        self.look(place, says)
    }

    pub(super) fn progress(&self) -> Progress {
        let generation = self.open.as_ref()?;
        let head = slots::read_head(&generation.file).ok()??;
        (!head.is_dead).then(|| (generation.number, head.newest().map(|header| header.seq)))
    }

    /// Declares the file dead, because whoever has its lock is stuck; returns its number.
    pub(super) fn condemn(&self, place: &Place) -> Result<Option<u64>, Error> {
        let Some(generation) = &self.open else { return Ok(None) };
        generation.mark_dead(place, self.index)?;
        at(Point::Condemned);
        Ok(Some(generation.number))
    }
}

fn look_at_nothing<T>(place: &Place, read: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
    read(&State::new(place.clock).to_bytes()).filter(|_| !place.is_removed())
}

fn too_much(place: &Place) -> Error {
    Error::unavailable(format!("too many names are held or waited for in {}", place.dir.path().display()))
        .fix("use a second directory for some of them")
}
