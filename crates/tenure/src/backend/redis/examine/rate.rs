//! How fast the server's clock runs compared with this machine's.
//!
//! A holder stops a margin before its lease ends, because the two clocks may run at different rates. They do while a clock is slewed:
//! chrony makes one up to 8.3 % faster or slower. The examination reads the server's time twice, some seconds apart. The server reads its
//! clock between question and answer, which bounds the rate: so the result is proved, even on a busy machine and over a slow network.

use std::fmt;
use std::time::{Duration, SystemTime};

use redis::Cmd;

use super::super::connection::Connection;
use super::super::server::micros;
use crate::core::deadlines::{Margin, believed_share};
use crate::time::clock::{Clock, Moment};
use crate::types::finding::Finding;

const CHECK: &str = "clock rate";
/// The length of the measurement.
const MEASURED_FOR: Duration = Duration::from_secs(2);
/// The least and the most questions for one reading; the quickest answer counts.
const FEWEST_TRIES: usize = 3;
const MOST_TRIES: usize = 10;
/// The longest time for more than the least questions.
const LONGEST_TRY: Duration = Duration::from_millis(100);

/// The server's time, and when it was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    sent: Moment,
    received: Moment,
    /// This machine's wall clock at the question.
    pub(super) wall: SystemTime,
    /// The server's clock, in µs since 1970.
    pub(super) server: u64,
}

impl Reading {
    /// Asks for the time; `None` if the user may not ask.
    pub(super) async fn take(connection: &mut Connection, clock: &Clock) -> Option<Self> {
        let mut question = Cmd::new();
        question.arg("TIME");
        let (start, mut best) = (clock.now(), None::<Reading>);
        for tries in 0..MOST_TRIES {
            if tries >= FEWEST_TRIES && clock.now().since(start) > LONGEST_TRY {
                break;
            }
            let (wall, sent) = (clock.wall(), clock.now());
            let answer = connection.send(&question).await.ok()?;
            let reading = Reading { sent, received: clock.now(), wall, server: micros(&answer)? };
            if best.is_none_or(|best| reading.took() < best.took()) {
                best = Some(reading);
            }
        }
        best
    }

    /// The round trip.
    pub(super) fn took(&self) -> Duration {
        self.received.since(self.sent)
    }

    /// How fast the clock ran from this reading to another one, taken after enough time.
    pub(super) async fn rate(&self, connection: &mut Connection, clock: &Clock) -> Option<Rate> {
        clock.sleep_until(self.received + MEASURED_FOR).await;
        Some(Rate::between(self, &Reading::take(connection, clock).await?))
    }
}

/// How much faster than this machine's clock the server's ran on average: two bounds, as fractions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rate {
    least: f64,
    most: f64,
    over: Duration,
}

impl Rate {
    fn between(first: &Reading, last: &Reading) -> Self {
        let passed = (i128::from(last.server) - i128::from(first.server)) as f64;
        let (longest, shortest) = (last.received.since(first.sent), last.sent.since(first.received));
        let faster = |here: Duration| passed / here.as_micros() as f64 - 1.0;
        let bounds = [faster(longest), faster(shortest)];
        // If the clock was set back, the order of the bounds is reversed.
        let (least, most) = (bounds[0].min(bounds[1]), bounds[0].max(bounds[1]));
        Rate { least, most, over: longest }
    }

    /// What follows for a holder that allows for `margin`.
    pub(super) fn finding(&self, margin: Margin) -> Finding {
        let (fastest, slowest) = (1.0 / believed_share(margin) - 1.0, believed_share(margin) - 1.0);
        let (over, allowed) = (self.over.as_secs_f64(), Percent(f64::from(margin.percent()) / 100.0));
        if self.least > fastest {
            let reason = format!(
                "it ran {} or more faster than this machine's clock for {over:.1} s, or was set forward: the margin is {allowed}, and a lease that is not renewed may end before its holder stops",
                Percent(self.least)
            );
            return Finding::doubtful(CHECK, reason).remedy(self.remedy());
        }
        if self.most < slowest {
            let reason = format!(
                "it ran {} or more slower than this machine's clock for {over:.1} s, or was set back: the margin is {allowed}; the name of a dead holder stays held for longer",
                Percent(-self.most)
            );
            return Finding::doubtful(CHECK, reason).remedy(self.remedy());
        }
        if self.most > fastest || self.least < slowest {
            let reason = format!(
                "not known: from {} to {} beside this machine's clock; answers take too long to say more",
                Percent(self.least),
                Percent(self.most)
            );
            return Finding::fit(CHECK, reason);
        }
        let apart = Percent(self.least.abs().max(self.most.abs()));
        Finding::fit(CHECK, format!("within {apart} of this machine's clock; the margin is {allowed}"))
    }

    fn remedy(&self) -> String {
        let fix =
            "add `maxslewrate 1000` to chrony.conf on the server and on all clients, and restart chronyd";
        // One per cent more than measured.
        let needed = (self.least / (1.0 + self.least) * 100.0).ceil() + 1.0;
        match Margin::LEAST..=Margin::MOST {
            possible if needed > 1.0 && needed <= f64::from(*possible.end()) => {
                format!("{fix}; or allow for it in the URL of all clients: margin={needed}")
            }
            _ => fix.to_owned(),
        }
    }
}

/// A fraction as a percentage.
struct Percent(f64);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.0 * 100.0;
        if percent.is_infinite() {
            return f.write_str("any rate");
        }
        let digits = if percent.abs() < 0.1 && percent != 0.0 { 3 } else { 1 };
        write!(f, "{percent:.digits$} %")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::types::finding::Verdict;

    /// A reading of a clock at this many µs after the question, with the answer this many later.
    fn reading(asked: u64, until_read: u64, until_received: u64, faster: f64) -> Reading {
        let read = asked + until_read;
        Reading {
            sent: Moment::from_micros(asked),
            received: Moment::from_micros(read + until_received),
            wall: SystemTime::UNIX_EPOCH,
            server: 1_000_000_000 + (read as f64 * (1.0 + faster)) as u64,
        }
    }

    fn verdict(rate: f64, trip: u64) -> Verdict {
        let [first, last] = [0, 2_000_000].map(|asked| reading(asked, trip / 2, trip / 2, rate));
        Rate::between(&first, &last).finding(Margin::default()).verdict
    }

    #[test]
    fn only_a_proved_rate_is_doubtful() {
        let (fit, doubtful) = (Verdict::Fit, Verdict::Doubtful);
        for (rate, trip, expected) in [
            (0.0, 100, fit),
            (0.009, 100, fit),
            (0.011, 100, doubtful),
            (-0.011, 100, doubtful),
            (0.083, 50_000, doubtful),
            (0.02, 100_000, fit),
            (0.0, 1_900_000, fit),
            (-1.5, 100, doubtful),
        ] {
            assert_eq!(verdict(rate, trip), expected, "{rate} with {trip} µs");
        }
    }

    #[test]
    fn the_finding_names_the_margin_to_set() {
        let [first, last] = [0, 2_000_000].map(|asked| reading(asked, 10, 10, 0.0833));
        let rate = Rate::between(&first, &last);
        let finding = rate.finding(Margin::default());
        assert!(finding.reason.starts_with("it ran 8.3 % or more faster"), "{finding}");
        assert!(finding.remedy.unwrap().ends_with(": margin=9"));
        let enough = Margin::new(9).unwrap();
        assert_eq!(rate.finding(enough).verdict, Verdict::Fit);
    }

    proptest! {
        // For every time of the reading between question and answer.
        #[test]
        fn the_rate_is_within_its_bounds(
            rate in -0.5..0.5f64,
            first in (0..500_000u64, 0..500_000u64),
            last in (0..500_000u64, 0..500_000u64),
            between in 1_100_000..3_000_000u64,
        ) {
            let first = reading(0, first.0, first.1, rate);
            let last = reading(between, last.0, last.1, rate);
            let measured = Rate::between(&first, &last);
            // The server's time has whole µs.
            let rounding = 1e-5;
            prop_assert!(measured.least <= rate + rounding && rate <= measured.most + rounding, "{measured:?}");
        }
    }
}
