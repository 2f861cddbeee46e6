//! Putting a copy in the place of a stripe's dead file, and removing what that leaves behind. The header of [`stripe`](super::stripe)
//! says why it is done in these steps.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::directory::Directory;
use super::faults::{Point, at};
use super::generation::{file_name, highest, index_of, number_of};
use super::place::Place;
use super::session;
use super::slots;
use super::state::State;
use crate::types::error::Error;
use crate::types::owner::SessionId;

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
            let number = dead.checked_add(1).ok_or_else(|| highest.corrupt(place, index))?;
            (number, image.header.seq + 1, image.data)
        }
        _ => return Ok(()),
    };
    slots::write_new(&draft.file, seq, &data).map_err(|error| place.dir.io_trouble("written", &error))?;
    at(Point::Copied);
    if place.dir.link(&draft.name, &file_name(index, number))? {
        at(Point::Replaced);
    }
    match dead {
        Some(_) => {
            drop(draft);
            sweep_in_background(place, vec![index]);
        }
        // After a power cut a first file must not be found empty either. It holds nothing yet, and nothing goes for it: so the disk is asked to begin,
        // and nobody waits. (A thread would change what signals a command inherits as ignored: the C library takes two for its first thread.)
        None => drop(rustix::fs::fadvise(&draft.file, 0, None, rustix::fs::Advice::DontNeed)),
    }
    Ok(())
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
fn sweep_drafts(dir: &Directory, process: u32, names: &[String]) {
    for name in names {
        if drafted_by(name).is_some_and(|id| session::is_dead(dir, &id, process)) {
            dir.remove(name);
        }
    }
}

/// Removes what replacing left behind, for all stripes.
pub(super) fn sweep_all(place: &Place, names: &[String]) {
    sweep_drafts(&place.dir, place.process, names);
    let mut indices: Vec<usize> = names.iter().filter_map(|name| index_of(name)).collect();
    indices.sort_unstable();
    // More than one file of a stripe: all but one are dead.
    let stripes = indices.chunk_by(|a, b| a == b).filter(|files| files.len() > 1).map(|files| files[0]);
    let stripes: Vec<usize> = stripes.collect();
    if !stripes.is_empty() {
        sweep_in_background(place, stripes);
    }
}

/// Sweeps these stripes on a thread of its own: a disk that stalls must hold up no lease. Nobody waits for that thread, neither the runtime
/// nor the process when it ends. What it did not come to is left to the next one who opens the directory.
fn sweep_in_background(place: &Place, stripes: Vec<usize>) {
    let (dir, process) = (Arc::clone(&place.dir), place.process);
    let sweep_all = move || stripes.into_iter().for_each(|index| drop(sweep(&dir, process, index)));
    let _ = std::thread::Builder::new().name("tenure-sweep".to_owned()).spawn(sweep_all);
}

/// Removes the files below the highest, unless somebody may be on the way to use one of their numbers again. The highest is on disk before any
/// of them goes: ordinary writes are not synced, so after a power cut the stripe would else be empty, and its fences forgotten.
fn sweep(dir: &Directory, process: u32, index: usize) -> Result<(), Error> {
    let numbers: Vec<u64> = dir.list()?.iter().filter_map(|name| number_of(name, index)).collect();
    let Some(&highest) = numbers.iter().max() else { return Ok(()) };
    let Some(file) = dir.open_file(&file_name(index, highest))? else { return Ok(()) };
    // What is not a stripe, or was left empty by a power cut, has not taken the place of anything.
    if !slots::read(&file).is_ok_and(|image| image.is_some()) {
        return Ok(());
    }
    at(Point::Syncing);
    file.sync_all().map_err(|error| dir.io_trouble("written", &error))?;
    // Listed after the highest was seen: whoever announces itself later sees it too.
    let names = dir.list()?;
    sweep_drafts(dir, process, &names);
    let is_living = |id| !session::is_dead(dir, &id, process);
    if !names.iter().filter_map(|name| drafted_by(name)).any(is_living) {
        for number in numbers.into_iter().filter(|&number| number < highest) {
            dir.remove(&file_name(index, number));
        }
    }
    Ok(())
}
