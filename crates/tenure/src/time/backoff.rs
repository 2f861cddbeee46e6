//! Retries: how often, and for how long. Pauses double up to a bound, and have jitter (R2.3).

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use crate::time::clock::{Clock, Moment};
use crate::types::error::Error;
use crate::types::process::{AtHome, Home};

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

/// Attempts at one request, until a moment at the most.
pub(crate) struct Attempts {
    pub(crate) give_up: Moment,
    backoff: Backoff,
    /// Why the last one failed.
    why: Option<Error>,
    /// Until then it retries even if the store is known to be out of reach.
    outlasts_outages_until: Option<Moment>,
}

impl Attempts {
    pub(crate) fn until(give_up: Moment) -> Self {
        Attempts { give_up, backoff: Backoff::new(), why: None, outlasts_outages_until: None }
    }

    /// Attempts at a request that must be executed: until that moment they go on even if the store is known to be out of reach.
    pub(crate) fn outlasting_outages(self, until: Moment) -> Self {
        Attempts { outlasts_outages_until: Some(until), ..self }
    }

    /// Waits before the next attempt (R2.3).
    ///
    /// # Errors
    /// At once, if another attempt is useless or no time is left: the error to return. If the last attempt was cut short, that is the error of
    /// the attempt before it, which says more.
    pub(crate) async fn again(&mut self, clock: &Clock, error: Error) -> Result<(), Error> {
        let now = clock.now();
        let waits_it_out =
            error.is_transient() && self.outlasts_outages_until.is_some_and(|until| now < until);
        if !error.is_worth_asking_again() && !waits_it_out {
            return Err(error);
        }
        let error = match self.why.take() {
            Some(why) if now >= self.give_up => why.half_way(),
            _ => error,
        };
        let again = now + self.backoff.pause();
        if again >= self.give_up {
            return Err(error);
        }
        self.why = Some(error);
        AtHome::new(Home::here(), clock.sleep_until(again)).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::time::manual_clock::ManualClock;

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

    // R2.3: an attempt that was cut short does not hide why the ones before it failed.
    #[tokio::test]
    async fn the_error_is_that_of_an_attempt_that_had_its_time() {
        let time = Arc::new(ManualClock::new());
        let clock = Clock::Manual(Arc::clone(&time));
        let mut attempts = Attempts::until(clock.now() + LONGEST);
        let refused = || Error::not_yet("slot 7 is being moved");
        let (again, ()) = tokio::join!(attempts.again(&clock, refused()), time.advance(LONGEST));
        again.expect("there is time for another");
        let error =
            attempts.again(&clock, Error::unanswered("no answer within 2 ms")).await.expect_err("late");
        assert_eq!(error.to_string(), refused().to_string());
        assert!(error.may_have_run(), "the last one may have");
        let mut attempts = Attempts::until(clock.now());
        let error = attempts.again(&clock, Error::unanswered("no answer")).await.expect_err("late");
        assert_eq!(error.to_string(), "no answer", "there was no other");
    }
}
