//! Measured durations: quantiles, and how they are spread.
//!
//! All are kept, because a measurement has some ten thousand: quantiles are exact.

use std::time::Duration;

/// Where the classes of a histogram begin, in each decade.
const STEPS: [u64; 3] = [1, 2, 5];

/// Durations, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample(Vec<Duration>);

/// How many durations are in a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) from: Duration,
    /// The first that is not in it.
    pub(crate) to: Duration,
    pub(crate) count: usize,
}

impl Sample {
    pub(crate) fn new(mut durations: Vec<Duration>) -> Self {
        durations.sort_unstable();
        Sample(durations)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The duration that so many per cent do not exceed; zero without measurements.
    pub(crate) fn quantile(&self, percent: usize) -> Duration {
        let nth = (self.0.len() * percent).div_ceil(100).saturating_sub(1);
        self.0.get(nth).copied().unwrap_or_default()
    }

    pub(crate) fn longest(&self) -> Duration {
        self.0.last().copied().unwrap_or_default()
    }

    /// The classes from that of the shortest to that of the longest, without gaps.
    pub(crate) fn classes(&self) -> Vec<Class> {
        let mut classes = Vec::new();
        let mut rest = &self.0[..];
        // Less than a microsecond counts as the first.
        let mut bounds = (0..).flat_map(|decade| STEPS.map(|step| step * 10_u64.pow(decade)));
        let mut from = Duration::ZERO;
        while !rest.is_empty() {
            let to = Duration::from_micros(bounds.next().expect("no end of numbers"));
            let count = rest.partition_point(|duration| *duration < to);
            if count > 0 || !classes.is_empty() {
                classes.push(Class { from, to, count });
            }
            (rest, from) = (&rest[count..], to);
        }
        classes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(micros: impl IntoIterator<Item = u64>) -> Sample {
        Sample::new(micros.into_iter().map(Duration::from_micros).collect())
    }

    #[test]
    fn quantiles_are_measured_durations() {
        let hundred = sample((1..=100).rev());
        assert_eq!(hundred.quantile(50), Duration::from_micros(50));
        assert_eq!(hundred.quantile(99), Duration::from_micros(99));
        assert_eq!(hundred.longest(), Duration::from_micros(100));
        assert_eq!(sample([7]).quantile(50), Duration::from_micros(7));
        assert_eq!(sample([]).quantile(99), Duration::ZERO);
    }

    #[test]
    fn classes_have_no_gaps_and_lose_nothing() {
        let counts: Vec<_> = sample([3, 4, 5, 60, 60]).classes().iter().map(|class| class.count).collect();
        assert_eq!(counts, [2, 1, 0, 0, 2], "from 2, 5, 10, 20 and 50 µs on");
        assert_eq!(sample([0]).classes()[0].count, 1);
        assert_eq!(sample([]).classes(), []);
    }
}
