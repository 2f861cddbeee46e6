//! The one source of time. Tests own it.
//!
//! Deadlines are measured on CLOCK_BOOTTIME, which goes on while the machine sleeps: `Instant` stands still on Linux, and a laptop that wakes
//! up would believe in leases that ended hours ago. The runtime's timers stand still too, so a sleeper looks at this clock again every now and
//! then ([`Clock::sleep_until`]). On one machine all contenders sleep at the same time: a file domain measures on CLOCK_MONOTONIC, and a lease
//! outlives the machine's sleep. The wall clock serves fences and people, never deadlines.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use rustix::time::ClockId;

use crate::time::manual_clock::ManualClock;
use crate::time::moment::system_wall_micros;
pub(crate) use crate::time::moment::{Moment, SLACK, micros};

/// How long a sleeper trusts the runtime's timers before it looks at the clock again.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Where time comes from.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// CLOCK_BOOTTIME.
    System,
    /// CLOCK_MONOTONIC, which stands still while the machine sleeps.
    Awake,
    /// A clock that stands still until a test moves it.
    Manual(Arc<ManualClock>),
}

impl Clock {
    pub(crate) fn now(&self) -> Moment {
        match self {
            Clock::System => Moment::from_micros(boot_micros()),
            Clock::Awake => Moment::from_micros(micros_of(ClockId::Monotonic)),
            Clock::Manual(clock) => clock.now(),
        }
    }

    /// µs since 1970, for fences.
    pub(crate) fn wall_micros(&self) -> u64 {
        match self {
            Clock::System | Clock::Awake => system_wall_micros(),
            Clock::Manual(clock) => clock.wall_micros(),
        }
    }

    /// The wall clock, for people.
    pub(crate) fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_micros(self.wall_micros())
    }

    /// Waits until the clock has reached `moment`, also when the machine sleeps meanwhile.
    pub(crate) async fn sleep_until(&self, moment: Moment) {
        match self {
            Clock::Manual(clock) => clock.sleep_until(moment).await,
            Clock::System | Clock::Awake => loop {
                let left = moment.since(self.now());
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(LOOK_AGAIN)).await;
            },
        }
    }

    /// Runs `future` until `moment`; `None` when it did not finish by then.
    pub(crate) async fn until<F: Future>(&self, moment: Moment, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        let mut sleep = pin!(self.sleep_until(moment));
        std::future::poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            sleep.as_mut().poll(cx).map(|()| None)
        })
        .await
    }
}

fn boot_micros() -> u64 {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let id = ClockId::Boottime;
    // Elsewhere CLOCK_MONOTONIC is the nearest there is; on macOS it goes on while the machine sleeps.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let id = ClockId::Monotonic;
    micros_of(id)
}

fn micros_of(id: ClockId) -> u64 {
    let time = rustix::time::clock_gettime(id);
    time.tv_sec.cast_unsigned() * 1_000_000 + time.tv_nsec.cast_unsigned() / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_is_boottime() {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        let now = Duration::from_micros(Clock::System.now().as_micros()).as_secs_f64();
        assert!((now - uptime).abs() < 60.0, "clock says {now} s, /proc/uptime (BOOTTIME) says {uptime} s");
    }

    #[test]
    fn moments_saturate() {
        let now = Moment::from_micros(5);
        assert_eq!(now.since(Moment::from_micros(9)), Duration::ZERO);
        assert_eq!(now - Duration::from_secs(1), Moment::from_micros(0));
        assert_eq!(now + Duration::MAX, Moment::FAR);
    }

    #[tokio::test]
    async fn until_ends_what_never_ends() {
        let clock = Clock::System;
        let soon = clock.now() + Duration::from_millis(1);
        assert_eq!(clock.until(soon, std::future::pending::<()>()).await, None);
        assert_eq!(clock.until(soon, async { 7 }).await, Some(7), "what is ready wins over what is late");
    }
}
