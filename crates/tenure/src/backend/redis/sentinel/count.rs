//! How many replicas a Sentinel knows of.
//!
//! One that is told of a service anew (`SENTINEL MONITOR`, `SENTINEL RESET`) finds its replicas one by one: the master shows it those that
//! are connected, and it looks every ten seconds. For so long, fewer than it knew of before may be just those that it has found so far;
//! and all of them would be too few. So fewer are believed when it has said so for longer than that.

use std::time::{Duration, Instant};

/// Longer than it takes to find them all.
const LONGEST_SEARCH: Duration = Duration::from_secs(12);

/// What one of them said, and when it began to say less.
#[derive(Debug, Default)]
pub(super) struct Count {
    known: Option<u64>,
    fewer_since: Option<Instant>,
}

impl Count {
    /// It knows of so many at this moment, or does not say.
    pub(super) fn hears(&mut self, said: Option<u64>, now: Instant) {
        if said.is_some() && said < self.known {
            let since = *self.fewer_since.get_or_insert(now);
            if now.saturating_duration_since(since) < LONGEST_SEARCH {
                return;
            }
        }
        *self = Count { known: said, fewer_since: None };
    }

    pub(super) fn known(&self) -> Option<u64> {
        self.known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // S1: all of those that were found so far are not all.
    #[test]
    fn fewer_are_believed_when_they_were_looked_for() {
        let (mut count, begin) = (Count::default(), Instant::now());
        let mut hears = |said, seconds| {
            count.hears(said, begin + Duration::from_secs(seconds));
            count.known()
        };
        assert_eq!(hears(Some(1), 0), Some(1));
        assert_eq!(hears(Some(2), 1), Some(2), "more are believed at once");
        assert_eq!(hears(Some(0), 2), Some(2));
        assert_eq!(hears(Some(1), 8), Some(2));
        assert_eq!(hears(Some(2), 9), Some(2), "it has found them");
        assert_eq!(hears(Some(1), 15), Some(2), "it looks again");
        assert_eq!(hears(Some(1), 26), Some(2));
        assert_eq!(hears(Some(1), 27), Some(1), "it has looked for long enough");
        assert_eq!(hears(None, 28), None, "it does not say any more");
        assert_eq!(hears(Some(0), 29), Some(0), "nothing is known of before");
    }
}
