//! Putting a copy in the place of a stripe's dead file, and removing what that leaves behind. The header of [`stripe`](super::stripe)
//! says why it is done in these steps.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};

use super::faults::{Point, at};
use super::generation::{file_name, highest, index_of, number_of};
use super::place::Place;
use super::session;
use super::slots;
use super::state::State;
use crate::error::Error;
use crate::owner::SessionId;

/// Puts a copy in the place of a stripe's file that has been dead for [`SETTLE`](super::stripe::SETTLE), or an empty one where there is none. Does nothing if
/// another has done it.
pub(super) fn replace(place: &Place, index: usize, dead: Option<u64>) -> Result<(), Error> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("draft-{}-{index:02x}-{next}", place.session_id.as_str());
    let draft = Draft { place, file: place.dir.create(&name)?, name };
    at(Point::Announced);
    let (number, seq, data) = match (highest(place, index)?, dead) {
        (None, None) => (1, 1, State::new(place.clock).to_bytes()),
        (Some(highest), Some(dead)) if highest.number == dead => {
            let (image, _) = highest.load_settled(place, index)?;
            (dead + 1, image.header.seq + 1, image.data)
        }
        _ => return Ok(()),
    };
    slots::write_new(&draft.file, seq, &data).map_err(|error| place.dir.io_trouble("written", &error))?;
    at(Point::Copied);
    if place.dir.link(&draft.name, &file_name(index, number))? {
        at(Point::Replaced);
        // After a power cut it must not be found empty. A copy is on disk before the original goes; for a first one, which holds nothing yet,
        // the disk is told to begin: to wait for it would take longer than a short lease lasts. (A thread that waits would change what signals a
        // command inherits as ignored: the C library takes two for its first thread.)
        match dead {
            Some(_) => drop(draft.file.sync_all()),
            None => drop(rustix::fs::fadvise(&draft.file, 0, None, rustix::fs::Advice::DontNeed)),
        }
    }
    drop(draft);
    sweep(place, index)
}

/// Announces that its session is about to replace a stripe.
struct Draft<'a> {
    place: &'a Place,
    name: String,
    file: File,
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        self.place.dir.remove(&self.name);
    }
}

/// The session that made a draft.
fn drafted_by(name: &str) -> Option<SessionId> {
    SessionId::parse(name.strip_prefix("draft-")?.split('-').next()?)
}

/// Removes the drafts of dead sessions.
fn sweep_drafts(place: &Place, names: &[String]) {
    for name in names {
        if drafted_by(name).is_some_and(|id| session::is_dead(&place.dir, &id, place.process)) {
            place.dir.remove(name);
        }
    }
}

/// Removes what replacing left behind, for all stripes.
pub(super) fn sweep_all(place: &Place, names: &[String]) -> Result<(), Error> {
    sweep_drafts(place, names);
    let mut indices: Vec<usize> = names.iter().filter_map(|name| index_of(name)).collect();
    indices.sort_unstable();
    // More than one file of a stripe: all but one are dead.
    for pair in indices.chunk_by(|a, b| a == b).filter(|files| files.len() > 1) {
        sweep(place, pair[0])?;
    }
    Ok(())
}

/// Removes the files below the highest, unless somebody may be on the way to use one of their numbers again.
fn sweep(place: &Place, index: usize) -> Result<(), Error> {
    let numbers: Vec<u64> = place.dir.list()?.iter().filter_map(|name| number_of(name, index)).collect();
    let Some(&highest) = numbers.iter().max() else { return Ok(()) };
    // What is not a stripe, or was left empty by a power cut, has not taken the place of anything.
    let file = place.dir.open_file(&file_name(index, highest)).ok().flatten();
    if !file.is_some_and(|file| slots::read(&file).is_ok_and(|image| image.is_some())) {
        return Ok(());
    }
    // Listed after the highest was seen: whoever announces itself later sees it too.
    let names = place.dir.list()?;
    sweep_drafts(place, &names);
    let is_living = |id| !session::is_dead(&place.dir, &id, place.process);
    if !names.iter().filter_map(|name| drafted_by(name)).any(is_living) {
        for number in numbers.into_iter().filter(|&number| number < highest) {
            place.dir.remove(&file_name(index, number));
        }
    }
    Ok(())
}
