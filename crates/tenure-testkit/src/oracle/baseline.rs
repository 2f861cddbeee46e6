//! L2: what a lock takes, it gives back.
//!
//! A leak of one key or one descriptor a grant is invisible in any other check and takes a host down in a
//! week. What to count is the caller's business (keys of the store, open descriptors, live tasks), so a
//! baseline is only a set of named numbers, and equality is the only relation: fewer than before is as
//! suspicious as more.

use super::history::History;
use super::verdict::{Check, Verdict};
use std::collections::{BTreeMap, BTreeSet};

/// Named numbers, taken before and after a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Baseline(BTreeMap<String, u64>);

impl Baseline {
    /// No numbers yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With one more number.
    #[must_use]
    pub fn with(mut self, what: &str, n: u64) -> Self {
        self.0.insert(what.to_owned(), n);
        self
    }

    /// The number of open descriptors of a process, such as `std::process::id()`.
    ///
    /// # Errors
    /// When the process is gone, or belongs to another user.
    pub fn with_descriptors_of(self, pid: u32) -> std::io::Result<Self> {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd"))?.count();
        Ok(self.with(&format!("descriptors of {pid}"), open as u64))
    }

    /// Compares the numbers before with those after; every one must be in both, and equal.
    pub fn compare(before: &Self, after: &Self, history: &History) -> Verdict {
        let mut verdict = Verdict::new(Check::L2, history);
        let names: BTreeSet<_> = before.0.keys().chain(after.0.keys()).collect();
        for name in &names {
            match (before.0.get(*name), after.0.get(*name)) {
                (Some(before), Some(after)) if before == after => {}
                (Some(before), Some(after)) => {
                    verdict.violate(format!("{name}: {before} before, {after} after"), []);
                }
                (Some(_), None) => verdict.violate(format!("{name}: not counted after"), []),
                (None, _) => verdict.violate(format!("{name}: not counted before"), []),
            }
        }
        verdict.require(names.len(), "the baseline has no numbers");
        verdict.count("numbers", names.len());
        verdict
    }
}
