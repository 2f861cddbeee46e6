//! What a check found, and how much it looked at.
//!
//! A zero means nothing without the number of things that could have gone wrong, so a verdict carries both
//! and a verdict over nothing is not clean. A violation quotes the lines of the log that it is about, the
//! way they are in the files, so that a person can search for them.

use super::event::{Event, Nanos};
use super::history::History;
use std::fmt;
use std::time::Duration;

/// How many violations are printed of one check: one bug often breaks thousands of grants.
const PRINTED: usize = 10;

/// The checks, by the names of the fault table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Check {
    /// The logs make sense.
    Log,
    /// No two clients believe to hold one name at the same time.
    S1,
    /// Fences grow, and the protected resource takes no stale write.
    S2,
    /// No update is lost under the lock.
    S3,
    /// A holder that lost is told in time.
    S4,
    /// A name that is free does not stay free while someone waits.
    L1,
    /// Keys, descriptors and tasks return to where they were.
    L2,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Log => "log  makes sense",
            Self::S1 => "S1   one believer at a time",
            Self::S2 => "S2   fences grow",
            Self::S3 => "S3   no lost update",
            Self::S4 => "S4   losses are told in time",
            Self::L1 => "L1   not idle while one waits",
            Self::L2 => "L2   back to the baseline",
        })
    }
}

/// Something that must not happen, and the events that show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What went wrong.
    pub why: String,
    /// The events concerned.
    pub events: Vec<Event>,
}

impl Violation {
    pub(super) fn new<'e>(why: impl Into<String>, events: impl IntoIterator<Item = &'e Event>) -> Self {
        Self { why: why.into(), events: events.into_iter().cloned().collect() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)?;
        self.events.iter().try_for_each(|event| write!(f, "\n        {event}"))
    }
}

/// What one check found.
#[derive(Clone, Debug)]
#[must_use = "a verdict that nobody reads has not been given"]
pub struct Verdict {
    /// Which check.
    pub check: Check,
    /// How much was looked at, by name: grants and faults first.
    pub counted: Vec<(String, u64)>,
    /// What went wrong.
    pub violations: Vec<Violation>,
    /// Why this verdict is worth nothing, if so: there was nothing to look at.
    pub nothing_checked: Option<String>,
}

impl Verdict {
    pub(super) fn new(check: Check, history: &History) -> Self {
        let mut verdict = Self { check, counted: Vec::new(), violations: Vec::new(), nothing_checked: None };
        verdict.count("grants", history.grants());
        verdict.count("faults", history.faults());
        if history.grants() == 0 {
            verdict.nothing_checked = Some("the history has no grants".to_owned());
        }
        verdict
    }

    pub(super) fn count(&mut self, what: &str, n: usize) {
        self.counted.push((what.to_owned(), n as u64));
    }

    /// Says that there was nothing to look at, unless `n` things were.
    pub(super) fn require(&mut self, n: usize, why: &str) {
        if n == 0 {
            self.nothing_checked.get_or_insert_with(|| why.to_owned());
        }
    }

    pub(super) fn violate<'e>(
        &mut self,
        why: impl Into<String>,
        events: impl IntoIterator<Item = &'e Event>,
    ) {
        self.violations.push(Violation::new(why, events));
    }

    /// Whether something was looked at, and none of it was wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.nothing_checked.is_none()
    }

    /// One of the numbers, zero if it was not counted.
    #[must_use]
    pub fn counted(&self, what: &str) -> u64 {
        self.counted.iter().find(|(name, _)| name == what).map_or(0, |(_, n)| *n)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<31} {:>4} violations in", self.check, self.violations.len())?;
        for (index, (what, n)) in self.counted.iter().enumerate() {
            write!(f, "{} {n} {what}", if index == 0 { "" } else { "," })?;
        }
        if let Some(why) = &self.nothing_checked {
            write!(f, "\n    nothing was checked: {why}")?;
        }
        for violation in self.violations.iter().take(PRINTED) {
            write!(f, "\n    {violation}")?;
        }
        match self.violations.len().saturating_sub(PRINTED) {
            0 => Ok(()),
            more => write!(f, "\n    … and {more} more"),
        }
    }
}

/// A number of nanoseconds, as a person reads it.
pub(super) fn readable(nanos: Nanos) -> String {
    format!("{:?}", Duration::from_nanos(nanos))
}
