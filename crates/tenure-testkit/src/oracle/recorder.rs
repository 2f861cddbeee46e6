//! The writer of a client's log.
//!
//! An event that is not in the log never happened for the oracle, and a missing `granted` makes a broken
//! lock look sound. So each event is one write(2) of a whole line, at once and without a buffer that a
//! SIGKILL could take along, and a write that fails panics rather than going on unrecorded. The stamp is
//! taken under the recorder's own lock, so that the stamps of one log never go back. A log is created,
//! never continued: using the id of a killed client again would bring its beliefs back to life.

use super::event::{Event, Nanos, What};
use super::history::History;
use super::log;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The present moment of CLOCK_MONOTONIC. Not `Instant`: its number can't be compared across processes.
#[must_use]
pub fn now() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Writes down what one client believes.
#[derive(Debug)]
pub struct Recorder {
    client: String,
    sink: Sink,
}

#[derive(Debug)]
enum Sink {
    File { path: PathBuf, file: Mutex<File> },
    Memory(MemoryLog),
}

impl Recorder {
    /// A recorder for `client` that writes to a new file.
    ///
    /// # Errors
    /// When the file can't be created; it must not exist, because an id is never used again.
    pub fn to_file(path: impl AsRef<Path>, client: &str) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        let file = OpenOptions::new().append(true).create_new(true).open(&path).map_err(|error| {
            io::Error::new(error.kind(), format!("can't create the log {}: {error}", path.display()))
        })?;
        Ok(Self { client: client.to_owned(), sink: Sink::File { path, file: Mutex::new(file) } })
    }

    /// A recorder for `client` in a directory of logs, in a file named after it.
    ///
    /// # Errors
    /// When the directory or the file can't be created.
    pub fn in_dir(dir: impl AsRef<Path>, client: &str) -> io::Result<Self> {
        std::fs::create_dir_all(&dir)?;
        let file = log::escape(client).replace('/', "%2F");
        Self::to_file(dir.as_ref().join(format!("{file}.log")), client)
    }

    /// The id of the client.
    #[must_use]
    pub fn client(&self) -> &str {
        &self.client
    }

    /// Writes one event down, stamped now.
    ///
    /// # Panics
    /// When it can't be written: a history with a hole proves nothing.
    pub fn record(&self, what: What) {
        self.record_at(|_| what);
    }

    /// Writes an event down that depends on its own stamp, as a deadline does.
    fn record_at(&self, what: impl FnOnce(Nanos) -> What) {
        match &self.sink {
            Sink::File { path, file } => {
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                let at = now();
                let mut line = log::encode(&Event { at, client: self.client.clone(), what: what(at) });
                line.push('\n');
                if let Err(error) = file.write_all(line.as_bytes()) {
                    panic!("can't append to the log {}: {error}", path.display());
                }
            }
            Sink::Memory(memory) => {
                let mut events = memory.events.lock().unwrap_or_else(PoisonError::into_inner);
                let at = (memory.clock)();
                events.push(Event { at, client: self.client.clone(), what: what(at) });
            }
        }
    }

    /// An acquire is about to be called.
    pub fn requested(&self, name: &str) {
        self.record(What::Requested { name: name.to_owned() });
    }

    /// The acquire returned. `remaining` is asked after the clock is read, so that the deadline in the log
    /// is never later than the one that is believed; it must not record anything itself.
    pub fn granted(&self, name: &str, fence: u64, remaining: impl FnOnce() -> Duration) {
        let name = name.to_owned();
        self.record_at(|at| What::Granted { name, fence, deadline: after(at, remaining()), since: None });
    }

    /// Like [`granted`](Self::granted), for a client that knows that the store granted it no earlier than
    /// `since`. Then more grants can be put in order, and S2 sees more (see `check`).
    pub fn granted_since(&self, name: &str, fence: u64, since: Nanos, remaining: impl FnOnce() -> Duration) {
        let (name, since) = (name.to_owned(), Some(since));
        self.record_at(|at| What::Granted { name, fence, deadline: after(at, remaining()), since });
    }

    /// The holder sees that its deadline has moved; `remaining` as in [`granted`](Self::granted).
    pub fn renewed(&self, name: &str, fence: u64, remaining: impl FnOnce() -> Duration) {
        let name = name.to_owned();
        self.record_at(|at| What::Renewed { name, fence, deadline: after(at, remaining()) });
    }

    /// The release is about to be called, or the guard about to be dropped.
    pub fn released(&self, name: &str, fence: u64) {
        self.record(What::Released { name: name.to_owned(), fence });
    }

    /// The holder was told of its loss.
    pub fn lost(&self, name: &str, fence: u64) {
        self.record(What::Lost { name: name.to_owned(), fence });
    }

    /// The acquire ended without a grant: busy, out of time, cancelled or failed.
    pub fn gave_up(&self, name: &str) {
        self.record(What::GaveUp { name: name.to_owned() });
    }

    /// SIGKILL is about to be sent to a client or to a whole process.
    pub fn killed(&self, victim: &str) {
        self.record(What::Killed { victim: victim.to_owned() });
    }

    /// A fault is about to begin.
    pub fn fault(&self, kind: &str, victim: Option<&str>, name: Option<&str>) {
        let (victim, name) = (victim.map(str::to_owned), name.map(str::to_owned));
        self.record(What::Fault { kind: kind.to_owned(), victim, name });
    }

    /// The fault of this kind, victim and name has ended.
    pub fn healed(&self, kind: &str, victim: Option<&str>, name: Option<&str>) {
        let (victim, name) = (victim.map(str::to_owned), name.map(str::to_owned));
        self.record(What::Healed { kind: kind.to_owned(), victim, name });
    }
}

fn after(at: Nanos, remaining: Duration) -> Nanos {
    at.saturating_add(u64::try_from(remaining.as_nanos()).unwrap_or(u64::MAX))
}

/// The logs of all clients of one process, in memory, on a clock that a test may own.
#[derive(Clone)]
pub struct MemoryLog {
    events: Arc<Mutex<Vec<Event>>>,
    clock: Arc<dyn Fn() -> Nanos + Send + Sync>,
}

impl MemoryLog {
    /// An empty log on CLOCK_MONOTONIC.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(now)
    }

    /// An empty log on another clock. Events of the same instant are taken as not in any order, so a
    /// clock that seldom moves makes the checks weak.
    pub fn with_clock(clock: impl Fn() -> Nanos + Send + Sync + 'static) -> Self {
        Self { events: Arc::default(), clock: Arc::new(clock) }
    }

    /// A recorder for one more client.
    #[must_use]
    pub fn recorder(&self, client: &str) -> Recorder {
        Recorder { client: client.to_owned(), sink: Sink::Memory(self.clone()) }
    }

    /// What was said until now.
    #[must_use]
    pub fn history(&self) -> History {
        History::from_events(self.events.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl Default for MemoryLog {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for MemoryLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryLog").field("events", &self.events).finish_non_exhaustive()
    }
}
