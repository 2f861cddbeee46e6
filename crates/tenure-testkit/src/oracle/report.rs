//! All verdicts on one history, and what to demand of them.
//!
//! Log, S1 and S2 are asked of every history. The others are asked for, because they need to be told
//! something (a bound, a baseline) or need the clients' help (a counter), and one that was asked for and
//! finds nothing to look at fails, so a test can't lose a check by accident.

use super::baseline::Baseline;
use super::belief::Beliefs;
use super::bounds::{self, Told};
use super::history::History;
use super::verdict::{Check, Verdict};
use super::{check, updates};
use std::fmt;
use std::time::Duration;

/// The verdicts on one history.
#[derive(Debug)]
#[must_use = "a report that nobody asserts proves nothing"]
pub struct Report<'h> {
    history: &'h History,
    beliefs: Beliefs<'h>,
    verdicts: Vec<Verdict>,
}

impl<'h> Report<'h> {
    /// Judges a history by the log, S1 and S2.
    pub fn of(history: &'h History) -> Self {
        let beliefs = Beliefs::of(history);
        let verdicts = vec![
            check::log(history, &beliefs),
            check::exclusion(history, &beliefs),
            check::fences(history, &beliefs),
        ];
        Self { history, beliefs, verdicts }
    }

    /// S3 as well: the unfenced counters.
    pub fn updates(self) -> Self {
        let verdict = updates::updates(self.history, &self.beliefs);
        self.with(verdict)
    }

    /// S4 as well, for one kind of fault.
    pub fn told(self, kind: &str, bound: Told) -> Self {
        let verdict = bounds::told(self.history, &self.beliefs, kind, bound);
        self.with(verdict)
    }

    /// L1 as well: how long a name may be free while someone waits.
    pub fn idle_at_most(self, bound: Duration) -> Self {
        let verdict = bounds::idle(self.history, &self.beliefs, bound);
        self.with(verdict)
    }

    /// L2 as well.
    pub fn baseline(self, before: &Baseline, after: &Baseline) -> Self {
        let verdict = Baseline::compare(before, after, self.history);
        self.with(verdict)
    }

    fn with(mut self, verdict: Verdict) -> Self {
        self.verdicts.push(verdict);
        self
    }

    /// The verdicts, in the order in which they were asked for.
    pub fn verdicts(&self) -> &[Verdict] {
        &self.verdicts
    }

    /// The checks that something is wrong with, or that looked at nothing.
    #[must_use]
    pub fn failed(&self) -> Vec<Check> {
        self.verdicts.iter().filter(|verdict| !verdict.is_clean()).map(|verdict| verdict.check).collect()
    }

    /// Demands that nothing is wrong: the ✔ of the fault table.
    ///
    /// # Panics
    /// With the whole report, if something is.
    pub fn assert_clean(&self) {
        assert!(self.failed().is_empty(), "the lock did not keep its promises\n{self}");
    }

    /// Demands that nothing is wrong but exclusion: the F of the fault table. The store lost the lock, so
    /// S1 may break, and S3 with it; fences must hold, and so must everything else.
    ///
    /// # Panics
    /// With the whole report, if something else is wrong, or nothing was checked.
    pub fn assert_only_s1(&self) {
        let is_excused = |verdict: &Verdict| {
            matches!(verdict.check, Check::S1 | Check::S3) && verdict.nothing_checked.is_none()
        };
        let is_kept = self.verdicts.iter().all(|verdict| verdict.is_clean() || is_excused(verdict));
        assert!(is_kept, "the lock broke more than exclusion\n{self}");
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (grants, faults) = (self.history.grants(), self.history.faults());
        let (names, clients) = (self.history.names().len(), self.history.clients().len());
        write!(f, "{clients} clients, {names} names, {grants} grants, {faults} faults")?;
        self.verdicts.iter().try_for_each(|verdict| write!(f, "\n{verdict}"))
    }
}
