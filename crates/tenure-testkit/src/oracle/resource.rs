//! What a lock protects: resources that notice when it fails.
//!
//! The fenced ones refuse a write with a lower fence than one that they took, which is what users are told
//! to build. They write their verdicts down while their own lock is held, so that the log has them in the
//! order of the resource. The counter is the opposite: it trusts the lock blindly, as most code does, so
//! an update that gets lost shows that two were inside at once.
//!
//! A file is changed by one write of fixed length, so a SIGKILL leaves the old state or the new one. Its
//! lock dies with the process; a process that is stopped inside delays the others, it does not break them.

use super::event::What;
use super::recorder::Recorder;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What became of a fenced write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a write that was rejected did not happen"]
pub enum Outcome {
    /// It was made.
    Accepted,
    /// It came too late: a higher fence had been here.
    Rejected,
}

/// The number of writes taken, and the highest fence among them.
#[derive(Clone, Copy, Debug, Default)]
struct Fenced {
    seq: u64,
    last: u64,
}

impl Fenced {
    /// The state after a write with `fence`, if it may be made.
    fn write(self, fence: u64) -> Option<Self> {
        (fence >= self.last).then_some(Self { seq: self.seq + 1, last: fence })
    }

    fn record(before: Self, after: Option<Self>, name: &str, fence: u64, log: &Recorder) -> Outcome {
        let name = name.to_owned();
        if let Some(after) = after {
            log.record(What::Accepted { name, fence, seq: after.seq });
            Outcome::Accepted
        } else {
            log.record(What::Rejected { name, fence, last: before.last });
            Outcome::Rejected
        }
    }
}

/// A fenced resource in a file, for clients in many processes.
#[derive(Debug)]
pub struct FencedFile {
    name: String,
    path: PathBuf,
    file: Mutex<File>,
}

impl FencedFile {
    /// The resource that the lock `name` protects; the file is made if it is not there.
    ///
    /// # Errors
    /// When the file can't be opened.
    pub fn open(path: impl AsRef<Path>, name: &str) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        let file = Mutex::new(open(&path)?);
        Ok(Self { name: name.to_owned(), path, file })
    }

    /// Writes with a fence, and writes down what became of it.
    ///
    /// # Errors
    /// When the file can't be locked, read or written.
    pub fn write(&self, fence: u64, log: &Recorder) -> io::Result<Outcome> {
        // the file's lock excludes other processes; it is shared by the threads of this one
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.lock()?;
        let outcome = self.write_locked(&file, fence, log);
        file.unlock()?;
        outcome
    }

    fn write_locked(&self, file: &File, fence: u64, log: &Recorder) -> io::Result<Outcome> {
        let [seq, last] = read_numbers(file, &self.path)?;
        let before = Fenced { seq, last };
        let after = before.write(fence);
        if let Some(Fenced { seq, last }) = after {
            write_numbers(file, [seq, last])?;
        }
        Ok(Fenced::record(before, after, &self.name, fence, log))
    }
}

/// A fenced resource in memory, for clients of one process.
#[derive(Debug)]
pub struct FencedMemory {
    name: String,
    state: Mutex<Fenced>,
}

impl FencedMemory {
    /// The resource that the lock `name` protects.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), state: Mutex::default() }
    }

    /// Writes with a fence, and writes down what became of it.
    pub fn write(&self, fence: u64, log: &Recorder) -> Outcome {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, after) = (*state, state.write(fence));
        *state = after.unwrap_or(before);
        Fenced::record(before, after, &self.name, fence, log)
    }
}

/// A counter without any protection of its own, in a file or in memory.
#[derive(Debug)]
pub struct Counter {
    name: String,
    cell: Cell,
}

#[derive(Debug)]
enum Cell {
    File(File, PathBuf),
    Memory(AtomicU64),
}

/// A counter that was read and not yet written.
#[derive(Debug)]
#[must_use = "an update is a read and a write"]
pub struct Reading<'c> {
    counter: &'c Counter,
    log: &'c Recorder,
    value: u64,
}

impl Counter {
    /// The counter that the lock `name` protects; a file that is not there is made, and counts from 0.
    ///
    /// # Errors
    /// When the file can't be opened.
    pub fn open(path: impl AsRef<Path>, name: &str) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        Ok(Self { name: name.to_owned(), cell: Cell::File(open(&path)?, path) })
    }

    /// A counter for the clients of one process.
    #[must_use]
    pub fn in_memory(name: &str) -> Self {
        Self { name: name.to_owned(), cell: Cell::Memory(AtomicU64::new(0)) }
    }

    /// Reads it. The caller should then take its time.
    ///
    /// # Errors
    /// When the file can't be read.
    pub fn read<'c>(&'c self, log: &'c Recorder) -> io::Result<Reading<'c>> {
        let value = self.get()?;
        log.record(What::Read { name: self.name.clone(), value });
        Ok(Reading { counter: self, log, value })
    }

    /// Writes down where it stands, after everyone has gone.
    ///
    /// # Errors
    /// When the file can't be read.
    pub fn record_final(&self, log: &Recorder) -> io::Result<u64> {
        let value = self.get()?;
        log.record(What::Final { name: self.name.clone(), value });
        Ok(value)
    }

    fn get(&self) -> io::Result<u64> {
        match &self.cell {
            Cell::File(file, path) => read_numbers(file, path).map(|[value, _]| value),
            Cell::Memory(value) => Ok(value.load(Ordering::SeqCst)),
        }
    }
}

impl Reading<'_> {
    /// The value that was read.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.value
    }

    /// Writes the next value, over whatever is there. Only for a guard that is still held: look at it
    /// right before.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn write_next(self) -> io::Result<()> {
        let value = self.value + 1;
        match &self.counter.cell {
            Cell::File(file, _) => write_numbers(file, [value, 0])?,
            Cell::Memory(cell) => cell.store(value, Ordering::SeqCst),
        }
        self.log.record(What::Wrote { name: self.counter.name.clone(), value });
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options
        .open(path)
        .map_err(|error| io::Error::new(error.kind(), format!("can't open {}: {error}", path.display())))
}

/// Two numbers of 20 digits, a line each; an empty file has zeros.
const LENGTH: usize = 42;

fn read_numbers(file: &File, path: &Path) -> io::Result<[u64; 2]> {
    let mut bytes = [0; LENGTH];
    if file.read_at(&mut bytes, 0)? == 0 {
        return Ok([0, 0]);
    }
    let text = str::from_utf8(&bytes).unwrap_or_default();
    let mut numbers = text.lines().map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(first)), Some(Ok(second))) => Ok([first, second]),
        _ => {
            let why = format!("{} does not hold two numbers: {text:?}", path.display());
            Err(io::Error::new(io::ErrorKind::InvalidData, why))
        }
    }
}

fn write_numbers(file: &File, [first, second]: [u64; 2]) -> io::Result<()> {
    file.write_all_at(format!("{first:020}\n{second:020}\n").as_bytes(), 0)
}
