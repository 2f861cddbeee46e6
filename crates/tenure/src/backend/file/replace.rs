//! Replaces the dead file of a stripe by a new one, and removes the files that this leaves behind. The header of
//! [`stripe`](super::stripe) gives the reasons for these steps.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::copies;
use super::directory::Directory;
use super::faults::{Point, at};
use super::generation::{file_name, highest, index_of, number_of};
use super::open_directory::OpenDirectory;
use super::session;
use super::state::State;
use crate::types::error::Error;
use crate::types::owner::SessionId;

/// Replaces a file that has been dead for [`SETTLE`](super::stripe::SETTLE), or makes the first file of a stripe. Does nothing if another
/// process has done it.
pub(super) fn replace(store: &OpenDirectory, index: usize, dead: Option<u64>) -> Result<(), Error> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("draft-{}-{index:02x}-{next}", store.session_id.as_str());
    let draft = Draft { store, file: store.dir.create(&name)?, name };
    at(Point::Announced);
    let (number, seq, data) = match (highest(store, index)?, dead) {
        (None, None) => (1, 1, State::new(store.clock).to_bytes()),
        (Some(highest), Some(dead)) if highest.number == dead => {
            let (image, _) = highest.load_settled(store, index)?;
            let number = dead.checked_add(1).ok_or_else(|| highest.corrupt(store, index))?;
            (number, image.header.seq + 1, image.data)
        }
        _ => return Ok(()),
    };
    store.dir.io("written", copies::write_new(&draft.file, seq, &data))?;
    at(Point::DraftWritten);
    if store.dir.link(&draft.name, &file_name(index, number))? {
        at(Point::Replaced);
    }
    match dead {
        Some(_) => {
            drop(draft);
            sweep_in_background(store, vec![index]);
        }
        // A power cut must not leave a first file empty either. It has no records yet, and replaces no file: so this only asks the disk to
        // begin, and nobody waits. (A thread would change which signals a command inherits as ignored: the C library takes two for its
        // first thread.)
        None => drop(rustix::fs::fadvise(&draft.file, 0, None, rustix::fs::Advice::DontNeed)),
    }
    Ok(())
}

/// Announces that its session is about to replace the file of a stripe.
struct Draft<'a> {
    store: &'a OpenDirectory,
    name: String,
    file: File,
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        self.store.dir.remove(&self.name);
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

/// Removes the files that replacing has left behind, for all stripes.
pub(super) fn sweep_all(store: &OpenDirectory, names: &[String]) {
    sweep_drafts(&store.dir, store.process, names);
    let mut indices: Vec<usize> = names.iter().filter_map(|name| index_of(name)).collect();
    indices.sort_unstable();
    // If a stripe has several files, all but one are dead.
    let stripes = indices.chunk_by(|a, b| a == b).filter(|files| files.len() > 1).map(|files| files[0]);
    let stripes: Vec<usize> = stripes.collect();
    if !stripes.is_empty() {
        sweep_in_background(store, stripes);
    }
}

/// Sweeps these stripes on a separate thread: a disk that stalls must delay no lease. Neither the runtime nor the exit of the process
/// waits for that thread. The next client that opens the directory removes the rest.
fn sweep_in_background(store: &OpenDirectory, stripes: Vec<usize>) {
    let (dir, process) = (Arc::clone(&store.dir), store.process);
    let sweep_all = move || stripes.into_iter().for_each(|index| drop(sweep(&dir, process, index)));
    let _ = std::thread::Builder::new().name("tenure-sweep".to_owned()).spawn(sweep_all);
}

/// Removes the files below the highest number, unless a process may be about to use one of their numbers again. Syncs the highest file
/// first: no other write is synced, and without this a power cut could leave the stripe empty and lose its fences.
fn sweep(dir: &Directory, process: u32, index: usize) -> Result<(), Error> {
    let numbers: Vec<u64> = dir.list()?.iter().filter_map(|name| number_of(name, index)).collect();
    let Some(&highest) = numbers.iter().max() else { return Ok(()) };
    let Some(file) = dir.open_file(&file_name(index, highest))? else { return Ok(()) };
    // A file that is not a stripe, or that a power cut left empty, replaces no other file.
    if !copies::read(&file).is_ok_and(|image| image.is_some()) {
        return Ok(());
    }
    at(Point::Syncing);
    dir.io("written", file.sync_all())?;
    // Listed after the highest number: a process that announces itself later sees that number too.
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
