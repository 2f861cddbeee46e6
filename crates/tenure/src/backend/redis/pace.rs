//! When to try to connect again, and for how long an attempt may take.
//!
//! A connection that was closed is replaced at once. A server that is silent is another matter: it may be overloaded, and most of all by
//! clients that connect. With TLS a connection costs it milliseconds; a client that gives up a handshake and begins another has it work
//! twice, and a thousand of them keep it so busy that no handshake ends in time. So each attempt that was not answered is followed by one
//! with twice the time, and by a pause that doubles as well. A connection that falls silent soon after it was made counts like such an
//! attempt: only one that has lasted ends the series.

use std::time::{Duration, Instant};

use super::link::Ended;
use crate::time::backoff::{Backoff, jittered};

/// A connection that is closed sooner than this is not replaced at once.
pub(super) const SHORT_LIFE: Duration = Duration::from_millis(20);
/// A connection has lasted after this many timeouts: its heartbeat was answered several times.
const LASTS: u32 = 4;
/// The longest attempt, unless the timeout is longer. The kernel ends an attempt sooner if the server's machine does not answer.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(10);
/// The longest pause after a silence. A thousand clients that pause for 4 to 8 s leave a server time for each other's requests.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// The first pause after a silence is this part of the timeout.
const FIRST_PAUSE: u32 = 8;

/// The attempts of one client to have one connection.
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

    /// An attempt begins. How long each of its steps may take.
    pub(super) fn tries(&mut self) -> Duration {
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
            false => self.silence(),
        };
        tokio::time::sleep(pause).await;
    }

    /// There is a connection.
    pub(super) fn stands(&mut self) {
        self.since = Instant::now();
    }

    /// The connection ended. How long to wait before it is replaced; nothing, where that is to be done at once.
    pub(super) fn ended(&mut self, ended: &Ended) -> Option<Duration> {
        let life = self.since.elapsed();
        match ended {
            _ if life >= LASTS * self.timeout => *self = Pace::new(self.timeout),
            // The server may be back already, and somebody may wait for the connection.
            Ended::Silent if self.silences == 0 => self.silences = 1,
            Ended::Silent => return Some(self.silence()),
            Ended::Broken | Ended::Unwanted if life < SHORT_LIFE => return Some(self.backoff.pause()),
            Ended::Broken | Ended::Unwanted => self.backoff = Backoff::new(),
        }
        None
    }

    fn silence(&mut self) -> Duration {
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

    /// A pace whose attempt or connection began so long ago.
    fn after(pace: &mut Pace, length: Duration) {
        pace.since = Instant::now().checked_sub(length).expect("a machine that has run for so long");
    }

    // R2.3
    #[tokio::test(start_paused = true)]
    async fn silence_makes_attempts_longer_and_rarer() {
        let mut pace = Pace::new(TIMEOUT);
        let mut pause = TIMEOUT / FIRST_PAUSE;
        for patience in [2, 4, 8, 10, 10, 10, 10_u64].map(Duration::from_secs) {
            assert_eq!(pace.tries(), patience);
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
        pace.stands();
        after(&mut pace, LASTS * TIMEOUT);
        assert_eq!(pace.ended(&Ended::Silent), None);
        assert_eq!(pace.tries(), TIMEOUT, "it has lasted");
    }

    // R2.3
    #[test]
    fn a_connection_that_falls_silent_soon_is_one_more_silence() {
        let mut pace = Pace::new(TIMEOUT);
        for patience in [2, 4, 8_u64].map(Duration::from_secs) {
            assert_eq!(pace.tries(), patience);
            pace.stands();
            after(&mut pace, LASTS * TIMEOUT / 2);
            let is_first = patience == TIMEOUT;
            assert_eq!(pace.ended(&Ended::Silent).is_none(), is_first, "only the first is replaced at once");
        }
    }

    // R3.4: nobody waits for longer than needed to hear of a loss.
    #[test]
    fn a_connection_that_is_closed_is_replaced_at_once() {
        let mut pace = Pace::new(TIMEOUT);
        for life in [Duration::from_millis(100), TIMEOUT, LASTS * TIMEOUT] {
            pace.stands();
            after(&mut pace, life);
            assert_eq!(pace.ended(&Ended::Broken), None);
        }
        pace.stands();
        assert!(pace.ended(&Ended::Broken).is_some(), "unless it is closed at once");
    }
}
