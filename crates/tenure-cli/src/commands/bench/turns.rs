//! Taking turns with another process, and the hand-over times that follow from the turns of both.
//!
//! A turn is a hand-over if its process had asked before the previous turn ended: then the store had a waiter to hand the name to. Otherwise the name
//! was free.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tenure::{Attempt, Domain, Error};

use crate::sample::Sample;

/// How long is waited for a turn before it is looked whether there is to be another.
const PATIENCE: Duration = Duration::from_millis(500);

/// One time on the name. Times are in ns, of a clock that all processes of this machine share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    fence: u64,
    asked: u64,
    granted: u64,
    released: u64,
}

impl Turn {
    /// As a line for the other process.
    pub(super) fn to_line(self) -> String {
        format!("{} {} {} {}\n", self.fence, self.asked, self.granted, self.released)
    }

    pub(super) fn from_line(line: &str) -> Option<Self> {
        let mut numbers = line.split(' ').map(|number| number.parse().ok());
        let mut next = || numbers.next().flatten();
        Some(Turn { fence: next()?, asked: next()?, granted: next()?, released: next()? })
    }
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
        .as_nanos()
        .try_into()
        .unwrap_or(u64::MAX)
}

/// Takes turns on the name, of this length each, until it is over.
pub(super) async fn take_turns(
    domain: &Domain,
    name: &str,
    length: Duration,
    mut is_over: impl FnMut() -> bool,
) -> Result<Vec<Turn>, Error> {
    let lock = domain.lock(name).label("tenure bench");
    let mut turns = Vec::new();
    while !is_over() {
        let asked = now();
        let Attempt::Acquired(guard) = lock.try_acquire_for(PATIENCE).await? else { continue };
        let granted = now();
        tokio::time::sleep(length).await;
        let (fence, released) = (guard.fence().get(), now());
        guard.release().await.map_err(|returned| returned.error)?;
        turns.push(Turn { fence, asked, granted, released });
    }
    Ok(turns)
}

/// How long the name was on its way from one process to the other.
pub(super) fn hand_overs(ours: &[Turn], theirs: &[Turn]) -> Sample {
    let mut turns: Vec<(Turn, bool)> = ours.iter().map(|turn| (*turn, true)).collect();
    turns.extend(theirs.iter().map(|turn| (*turn, false)));
    turns.sort_unstable_by_key(|(turn, _)| turn.fence);
    let between = turns.windows(2).filter_map(|pair| {
        let [(before, first), (after, second)] = pair else { return None };
        let is_handed_over = first != second && after.asked < before.released;
        is_handed_over.then(|| Duration::from_nanos(after.granted.saturating_sub(before.released)))
    });
    Sample::new(between.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(fence: u64, asked: u64, granted: u64, released: u64) -> Turn {
        Turn { fence, asked, granted, released }
    }

    #[test]
    fn a_line_comes_back() {
        let turn = turn(1, 2, 3, 4);
        assert_eq!(Turn::from_line(turn.to_line().trim_end()), Some(turn));
        assert_eq!(Turn::from_line("1 2 3"), None);
    }

    #[test]
    fn only_a_name_that_was_waited_for_is_handed_over() {
        let waited_for = [turn(2, 500, 2_000, 3_000)];
        assert_eq!(hand_overs(&[turn(1, 0, 10, 1_000)], &waited_for).longest(), Duration::from_nanos(1_000));
        let free = [turn(2, 1_500, 2_000, 3_000)];
        assert_eq!(hand_overs(&[turn(1, 0, 10, 1_000)], &free).len(), 0, "asked for after it was given back");
        let own = [turn(1, 0, 10, 1_000), turn(2, 500, 2_000, 3_000)];
        assert_eq!(hand_overs(&own, &[]).len(), 0, "of one process");
    }
}
