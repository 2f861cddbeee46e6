//! All logs of a run, merged by their stamps.
//!
//! Reading is strict, because a log that was misread looks like a lock that behaved: only a torn *last*
//! line is forgiven, which is what a SIGKILL can leave; a client with two logs, two clients in one log and
//! stamps that go back are errors. Stamps of different clients that are equal have no order, and no check
//! relies on one.

use super::event::{Event, Nanos, What};
use super::log;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

/// What all clients said, in the order of time.
#[derive(Clone, Debug, Default)]
pub struct History {
    events: Vec<Event>,
    torn: usize,
}

impl History {
    /// A history of events in any order; those of one client at one instant stay as they are.
    #[must_use]
    pub fn from_events(mut events: Vec<Event>) -> Self {
        events.sort_by_key(|event| event.at);
        Self { events, torn: 0 }
    }

    /// All logs (`*.log`) of a directory.
    ///
    /// # Errors
    /// When there is none, or one can't be read or has a malformed line; the error names file and line.
    pub fn read_dir(dir: impl AsRef<Path>) -> io::Result<Self> {
        let dir = dir.as_ref();
        let (mut events, mut torn, mut owners) = (Vec::new(), 0, BTreeMap::new());
        let entries = fs::read_dir(dir).map_err(|error| {
            io::Error::new(error.kind(), format!("can't read the logs in {}: {error}", dir.display()))
        })?;
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "log") {
                continue;
            }
            let (log, is_torn) = read_file(&path)?;
            torn += usize::from(is_torn);
            if let Some(first) = log.first()
                && let Some(other) = owners.insert(first.client.clone(), path.clone())
            {
                let why = format!("client {} also wrote {}", first.client, other.display());
                return Err(invalid(&path, 1, &why));
            }
            events.extend(log);
        }
        if owners.is_empty() {
            let why = format!("no events in the logs of {}", dir.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        Ok(Self { torn, ..Self::from_events(events) })
    }

    /// The events in the order of time.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// How many logs ended in a torn line.
    #[must_use]
    pub fn torn(&self) -> usize {
        self.torn
    }

    /// The number of grants.
    #[must_use]
    pub fn grants(&self) -> usize {
        self.count(|what| matches!(what, What::Granted { .. }))
    }

    /// The number of faults; a kill is one.
    #[must_use]
    pub fn faults(&self) -> usize {
        self.count(|what| matches!(what, What::Fault { .. } | What::Killed { .. }))
    }

    /// The clients that asked for a lock.
    #[must_use]
    pub fn clients(&self) -> BTreeSet<&str> {
        self.requests().map(|(event, _)| event.client.as_str()).collect()
    }

    /// The names that were asked for.
    #[must_use]
    pub fn names(&self) -> BTreeSet<&str> {
        self.requests().map(|(_, name)| name).collect()
    }

    /// The moment after which nothing is known.
    pub(super) fn end(&self) -> Nanos {
        self.events.last().map_or(0, |event| event.at)
    }

    /// The event after which each killed client was dead. The torturer stamps before the signal, so a
    /// client may still have spoken after that: it lived at least until its last word.
    pub(super) fn deaths(&self) -> BTreeMap<&str, &Event> {
        let mut kills: Vec<(&str, &Event)> = Vec::new();
        let mut last_words: BTreeMap<&str, &Event> = BTreeMap::new();
        for event in &self.events {
            last_words.insert(&event.client, event);
            if let What::Killed { victim } = &event.what {
                kills.push((victim, event));
            }
        }
        let mut deaths = BTreeMap::new();
        for (client, word) in last_words {
            if let Some((_, kill)) = kills.iter().find(|(victim, _)| Event::concerns(victim, client)) {
                deaths.insert(client, if word.at > kill.at { word } else { *kill });
            }
        }
        deaths
    }

    fn count(&self, is_counted: impl Fn(&What) -> bool) -> usize {
        self.events.iter().filter(|event| is_counted(&event.what)).count()
    }

    fn requests(&self) -> impl Iterator<Item = (&Event, &str)> {
        self.events.iter().filter_map(|event| match &event.what {
            What::Requested { name } | What::Granted { name, .. } => Some((event, name.as_str())),
            _ => None,
        })
    }
}

/// The events of one log, and whether its last line was torn.
fn read_file(path: &Path) -> io::Result<(Vec<Event>, bool)> {
    let bytes = fs::read(path)
        .map_err(|error| io::Error::new(error.kind(), format!("can't read {}: {error}", path.display())))?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    let text = str::from_utf8(&bytes[..whole]).map_err(|_| invalid(path, 1, "not UTF-8"))?;
    let mut events: Vec<Event> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let event = log::decode(line).map_err(|why| invalid(path, index + 1, &why))?;
        if let Some(before) = events.last() {
            if before.client != event.client {
                return Err(invalid(path, index + 1, "a second client in one log"));
            }
            if before.at > event.at {
                return Err(invalid(path, index + 1, "the time goes back"));
            }
        }
        events.push(event);
    }
    Ok((events, whole < bytes.len()))
}

fn invalid(path: &Path, line: usize, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}:{line}: {why}", path.display()))
}
