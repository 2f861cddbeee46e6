//! The pauses between one attempt and the next: doubling, bounded, and never the same for two who began together (R2.3).

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(500);

/// An endless series of pauses. Each is drawn between half of its length and all of it.
#[derive(Debug)]
pub(crate) struct Backoff {
    length: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Backoff { length: SHORTEST }
    }

    pub(crate) fn pause(&mut self) -> Duration {
        let length = self.length;
        self.length = (length * 2).min(LONGEST);
        jittered(length)
    }
}

/// Between half of a length and all of it.
pub(crate) fn jittered(length: Duration) -> Duration {
    // A hasher with random keys is the standard library's source of randomness: good enough to keep clients apart.
    let share = RandomState::new().build_hasher().finish() % 1_000;
    length / 2 + length / 2 * u32::try_from(share).unwrap_or(0) / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    // R2.3
    #[test]
    fn pauses_double_are_bounded_and_differ() {
        let mut backoff = Backoff::new();
        let mut length = SHORTEST;
        for _ in 0..12 {
            let pause = backoff.pause();
            assert!(pause >= length / 2 && pause <= length, "{pause:?} of {length:?}");
            length = (length * 2).min(LONGEST);
        }
        let first: Vec<_> = (0..20).map(|_| Backoff::new().pause()).collect();
        assert!(first.iter().any(|pause| *pause != first[0]), "all clients would come back at once");
    }
}
