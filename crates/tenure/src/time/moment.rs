//! A moment on a clock, and the conversions between durations and µs.

use std::num::NonZeroU64;
use std::ops::{Add, Sub};
use std::time::{Duration, SystemTime};

/// How much later than a moment a client acts that must not act before it: clocks are read in whole µs, and requests take time.
pub(crate) const SLACK: Duration = Duration::from_millis(10);

/// A moment on a [`Clock`](super::clock::Clock), in µs. Only differences mean anything.
///
/// One more is stored, so that there is room for `None`: a lease has several moments that may not be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Moment(NonZeroU64);

impl Moment {
    /// Later than anything that happens.
    pub(crate) const FAR: Moment = Moment(NonZeroU64::MAX);

    pub(crate) fn from_micros(micros: u64) -> Self {
        Moment(NonZeroU64::MIN.saturating_add(micros))
    }

    pub(crate) fn as_micros(self) -> u64 {
        self.0.get() - 1
    }

    /// The time from `earlier` to this moment; zero when it is not earlier.
    pub(crate) fn since(self, earlier: Moment) -> Duration {
        Duration::from_micros(self.0.get().saturating_sub(earlier.0.get()))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;
    fn add(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_add(micros(duration)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Moment;
    fn sub(self, duration: Duration) -> Moment {
        Moment::from_micros(self.as_micros().saturating_sub(micros(duration)))
    }
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// µs since 1970, by the clock of the system.
pub(crate) fn system_wall_micros() -> u64 {
    micros(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}
