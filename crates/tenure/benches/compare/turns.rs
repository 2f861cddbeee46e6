//! What processes that take turns write down, and what follows from it.
//!
//! Sorted by their order, each turn that follows one of another process is a hand-over. Turns that follow one of the same process are
//! not counted. That no turn begins before the one ahead of it has ended is checked on the way.

use std::collections::BTreeMap;

use rustix::time::{ClockId, clock_gettime};

use crate::report::{max_min_ratio, percentile};

/// A turn of a worker: its number among all turns of all, and CLOCK_MONOTONIC in ns right before it was asked for, right after it began
/// and right before it was ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) order: u64,
    pub(crate) asked: u64,
    pub(crate) acquired: u64,
    pub(crate) released: u64,
}

impl Turn {
    pub(crate) const BYTES: usize = 32;

    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        Turn { order: number(0), asked: number(8), acquired: number(16), released: number(24) }
    }

    pub(crate) fn to_bytes(self) -> impl Iterator<Item = u8> {
        [self.order, self.asked, self.acquired, self.released].into_iter().flat_map(u64::to_le_bytes)
    }
}

/// CLOCK_MONOTONIC in ns: the same in all processes.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// A round in which nobody got the lock.
pub(crate) const NO_TURN: &str = "no turn";

/// From when to when turns count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Window {
    fn has(self, time: u64) -> bool {
        (self.start..self.end).contains(&time)
    }

    fn seconds(self) -> f64 {
        (self.end - self.start) as f64 / 1e9
    }
}

/// What a round came to: what was measured, or why nothing was.
pub(crate) type Outcome = Result<Round, &'static str>;

/// Which rounds came to nothing, and why; empty if none did.
pub(crate) fn failures(rounds: &[Outcome]) -> String {
    let mut reasons = BTreeMap::new();
    rounds
        .iter()
        .filter_map(|round| round.as_ref().err())
        .for_each(|why| *reasons.entry(*why).or_insert(0) += 1);
    let many = rounds.len();
    let reasons: Vec<String> =
        reasons.into_iter().map(|(why, times)| format!("{why} in {times} of {many} rounds")).collect();
    reasons.join(", ")
}

/// What one round measured.
pub(crate) struct Round {
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) per_s: f64,
    pub(crate) max_min_ratio: f64,
    pub(crate) longest_wait_ms: f64,
    /// How many there were in the window.
    pub(crate) count: usize,
}

impl Round {
    /// The hand-overs of a lock that may let two in at once, or may let nobody in.
    pub(crate) fn contested(turns: &[(usize, Turn)], window: Window, processes: usize) -> Outcome {
        let overlaps = |pair: &[(usize, Turn)]| pair[0].1.released > pair[1].1.acquired;
        if turns.windows(2).any(overlaps) {
            return Err("two held it at once");
        }
        Self::handovers(turns, window, processes).ok_or(NO_TURN)
    }

    /// From the release by one process until the next one has it; each turn with its process's number, in their order. `None` when there
    /// was none.
    pub(crate) fn handovers(turns: &[(usize, Turn)], window: Window, processes: usize) -> Option<Self> {
        let (mut latencies, mut turns_of, mut longest_wait) = (Vec::new(), vec![0.0; processes], 0);
        for pair in turns.windows(2) {
            let [(from, before), (to, after)] = [pair[0], pair[1]];
            assert!(
                before.order < after.order && before.released <= after.acquired,
                "two had it at once: {pair:?}"
            );
            if window.has(after.acquired) {
                longest_wait = longest_wait.max(after.acquired - after.asked);
                if from != to {
                    latencies.push((after.acquired - before.released) as f64 / 1e3);
                    turns_of[to] += 1.0;
                }
            }
        }
        Self::new(latencies, window, &turns_of, longest_wait)
    }

    /// Whole turns of a single process, each from its asking to the asking for the next.
    pub(crate) fn cycles(turns: &[(usize, Turn)], window: Window) -> Option<Self> {
        let counted = turns.windows(2).filter(|pair| window.has(pair[1].1.asked));
        let latencies: Vec<f64> =
            counted.map(|pair| (pair[1].1.asked - pair[0].1.asked) as f64 / 1e3).collect();
        let turns_of = [latencies.len() as f64];
        Self::new(latencies, window, &turns_of, 0)
    }

    fn new(mut latencies: Vec<f64>, window: Window, turns_of: &[f64], longest_wait: u64) -> Option<Self> {
        if latencies.is_empty() {
            return None;
        }
        Some(Round {
            p50_us: percentile(&mut latencies, 0.5),
            p99_us: percentile(&mut latencies, 0.99),
            per_s: latencies.len() as f64 / window.seconds(),
            max_min_ratio: max_min_ratio(turns_of),
            longest_wait_ms: longest_wait as f64 / 1e6,
            count: latencies.len(),
        })
    }
}
