//! When to connect again, and how long an attempt may take.
//!
//! The client replaces a closed connection at once. A silent server may be overloaded, most of all by clients that connect. With TLS a
//! connection costs it milliseconds. A client that gives up a handshake and starts another doubles the work, and a thousand of them keep
//! the server so busy that no handshake ends in time. So after each unanswered attempt the next one gets twice the time, and the pause
//! doubles too. A connection that falls silent soon counts as such an attempt: only one that lasts ends the series.

use std::time::{Duration, Instant};

use super::link::ConnectionEnd;
use crate::time::backoff::{Backoff, jittered};

/// A connection that closes sooner than this is not replaced at once.
pub(super) const SHORT_LIFE: Duration = Duration::from_millis(20);
/// A connection lasts if it lives for this many timeouts: the server has answered several heartbeats.
const LASTS: u32 = 4;
/// The longest attempt, unless the timeout is longer. The kernel ends an attempt sooner if the server's machine does not answer.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(10);
/// The longest pause after a silence. A thousand clients that pause for 4 to 8 s leave the server time for requests.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// The first pause after a silence is this part of the timeout.
const FIRST_PAUSE: u32 = 8;

/// Paces the attempts of one client to maintain one connection.
pub(super) struct Pace {
    timeout: Duration,
    backoff: Backoff,
    /// How many attempts and young connections in a row were silent.
    silences: u32,
    /// When the attempt or the connection began.
    since: Instant,
}

impl Pace {
    pub(super) fn new(timeout: Duration) -> Self {
        Pace { timeout, backoff: Backoff::new(), silences: 0, since: Instant::now() }
    }

    /// Starts an attempt. Returns how long each of its steps may take.
    pub(super) fn begin_attempt(&mut self) -> Duration {
        self.since = Instant::now();
        self.patience()
    }

    fn patience(&self) -> Duration {
        doubled(self.timeout, self.silences).min(LONGEST_ATTEMPT).max(self.timeout)
    }

    /// The attempt failed. Waits before the next one.
    pub(super) async fn failed(&mut self) {
        let pause = match self.since.elapsed() < self.patience() {
            true => self.backoff.pause(),
            false => self.pause_after_silence(),
        };
        tokio::time::sleep(pause).await;
    }

    /// The attempt succeeded.
    pub(super) fn connected(&mut self) {
        self.since = Instant::now();
    }

    /// The connection ended. Returns the pause before the next attempt; `None` to connect at once.
    pub(super) fn ended(&mut self, ended: &ConnectionEnd) -> Option<Duration> {
        let life = self.since.elapsed();
        match ended {
            _ if life >= LASTS * self.timeout => *self = Pace::new(self.timeout),
            // The server may be back already, and requests may wait for the connection.
            ConnectionEnd::Silent if self.silences == 0 => self.silences = 1,
            ConnectionEnd::Silent => return Some(self.pause_after_silence()),
            ConnectionEnd::Broken | ConnectionEnd::Unwanted if life < SHORT_LIFE => {
                return Some(self.backoff.pause());
            }
            ConnectionEnd::Broken | ConnectionEnd::Unwanted => self.backoff = Backoff::new(),
        }
        None
    }

    fn pause_after_silence(&mut self) -> Duration {
        let pause = doubled(self.timeout / FIRST_PAUSE, self.silences).min(LONGEST_PAUSE);
        self.silences += 1;
        jittered(pause)
    }
}

fn doubled(length: Duration, times: u32) -> Duration {
    length.saturating_mul(1_u32.checked_shl(times).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(2);

    /// Moves the start of the attempt or connection into the past.
    fn after(pace: &mut Pace, length: Duration) {
        pace.since = Instant::now().checked_sub(length).expect("a machine that has run for so long");
    }

    // R2.3
    #[tokio::test(start_paused = true)]
    async fn silence_makes_attempts_longer_and_rarer() {
        let mut pace = Pace::new(TIMEOUT);
        let mut pause = TIMEOUT / FIRST_PAUSE;
        for patience in [2, 4, 8, 10, 10, 10, 10_u64].map(Duration::from_secs) {
            assert_eq!(pace.begin_attempt(), patience);
            after(&mut pace, patience);
            let begin = tokio::time::Instant::now();
            pace.failed().await;
            let paused = begin.elapsed();
            assert!(
                paused >= pause / 2 && paused <= pause + Duration::from_millis(1),
                "{paused:?} of {pause:?}"
            );
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
        pace.connected();
        after(&mut pace, LASTS * TIMEOUT);
        assert_eq!(pace.ended(&ConnectionEnd::Silent), None);
        assert_eq!(pace.begin_attempt(), TIMEOUT, "it has lasted");
    }

    // R2.3
    #[test]
    fn a_connection_that_falls_silent_soon_counts_as_a_silent_attempt() {
        let mut pace = Pace::new(TIMEOUT);
        for patience in [2, 4, 8_u64].map(Duration::from_secs) {
            assert_eq!(pace.begin_attempt(), patience);
            pace.connected();
            after(&mut pace, LASTS * TIMEOUT / 2);
            let is_first = patience == TIMEOUT;
            assert_eq!(
                pace.ended(&ConnectionEnd::Silent).is_none(),
                is_first,
                "only the first is replaced at once"
            );
        }
    }

    // R3.4: a holder learns of a loss without delay.
    #[test]
    fn a_connection_that_is_closed_is_replaced_at_once() {
        let mut pace = Pace::new(TIMEOUT);
        for life in [Duration::from_millis(100), TIMEOUT, LASTS * TIMEOUT] {
            pace.connected();
            after(&mut pace, life);
            assert_eq!(pace.ended(&ConnectionEnd::Broken), None);
        }
        pace.connected();
        assert!(pace.ended(&ConnectionEnd::Broken).is_some(), "unless it is closed at once");
    }
}
