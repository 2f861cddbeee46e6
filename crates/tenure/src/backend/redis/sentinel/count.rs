//! How many replicas a Sentinel knows of.
//!
//! A Sentinel that begins to monitor a service anew (`SENTINEL MONITOR`, `SENTINEL RESET`) finds its replicas one by one: it asks the
//! master every ten seconds for connected ones. During that time a lower number may count only the replicas found so far, which would be
//! too few for *all*. So a lower number counts only after the Sentinel has reported it for longer than that.

use std::time::{Duration, Instant};

/// Longer than a Sentinel needs to find all replicas.
const LONGEST_SEARCH: Duration = Duration::from_secs(12);

/// The number that a Sentinel reported, and since when it reports fewer.
#[derive(Debug, Default)]
pub(super) struct Count {
    known: Option<u64>,
    fewer_since: Option<Instant>,
}

impl Count {
    /// Notes its present report; `None` if it does not say.
    pub(super) fn report(&mut self, said: Option<u64>, now: Instant) {
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

    // S1: all replicas found so far are not all replicas.
    #[test]
    fn a_lower_number_counts_after_a_full_search() {
        let (mut count, begin) = (Count::default(), Instant::now());
        let mut report = |said, seconds| {
            count.report(said, begin + Duration::from_secs(seconds));
            count.known()
        };
        assert_eq!(report(Some(1), 0), Some(1));
        assert_eq!(report(Some(2), 1), Some(2), "a higher number counts at once");
        assert_eq!(report(Some(0), 2), Some(2));
        assert_eq!(report(Some(1), 8), Some(2));
        assert_eq!(report(Some(2), 9), Some(2), "it has found them");
        assert_eq!(report(Some(1), 15), Some(2), "it looks again");
        assert_eq!(report(Some(1), 26), Some(2));
        assert_eq!(report(Some(1), 27), Some(1), "it has looked for long enough");
        assert_eq!(report(None, 28), None, "it does not say any more");
        assert_eq!(report(Some(0), 29), Some(0), "nothing is known of before");
    }
}
