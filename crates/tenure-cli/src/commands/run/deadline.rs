//! When a command must be stopped: early enough that it is gone before its lease can expire.
//!
//! TERM is sent when a quarter of the last term is left, KILL when an eighth is, for terms of any length; long terms have an upper limit for
//! both. Renewals begin at a third of a term, so that what reaches these times was tried many times. A lease that was handed over
//! has a short first term (probation), which is why the shares are those of the term that was seen, not of the ttl.
//!
//! The front watches over the same lease ([`Watch`]), for the minder may be stopped or hang. It is later than the minder by a
//! quarter of the time between TERM and the deadline, and half of that between KILL and the deadline, so that it acts only then.
//!
//! Pure but for [`Moment::now`]: time comes in, moments go out.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The longest time between TERM and the deadline.
const LONGEST_GRACE: Duration = Duration::from_secs(5);
/// The longest time between KILL and the deadline.
const LONGEST_RESERVE: Duration = Duration::from_millis(500);

/// A moment in µs of CLOCK_MONOTONIC, which is the same in all processes. Whether the time in which the machine slept counts depends on the
/// store, and the library tells: what it says remains is looked at before anything is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Later than anything that happens.
    pub(crate) const FAR: Moment = Moment(u64::MAX);

    pub(crate) fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Moment(time.tv_sec.cast_unsigned() * 1_000_000 + time.tv_nsec.cast_unsigned() / 1_000)
    }

    pub(crate) fn after(self, duration: Duration) -> Self {
        Moment(self.0.saturating_add(micros(duration)))
    }

    pub(crate) fn before(self, duration: Duration) -> Self {
        Moment(self.0.saturating_sub(micros(duration)))
    }

    /// The time from `earlier` to this moment; zero when it is not earlier.
    pub(crate) fn since(self, earlier: Moment) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// What is to be done when, as long as the lease is not renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    deadline: Moment,
    /// How much was left when this deadline was first seen.
    term: Duration,
}

impl Plan {
    pub(crate) fn new(now: Moment, remaining: Duration) -> Self {
        Plan { deadline: now.after(remaining), term: remaining }
    }

    /// Looks at what remains of the lease, as it was at `now` or later. True when it was renewed, and the plan is a new one.
    pub(crate) fn look(&mut self, now: Moment, remaining: Duration) -> bool {
        // The two clocks are read one after the other: a deadline that stood still seems to wander by as much.
        let is_renewed = now.after(remaining) > self.deadline.after(self.term / 64);
        if is_renewed {
            *self = Plan::new(now, remaining);
        }
        is_renewed
    }

    pub(crate) fn grace(&self) -> Duration {
        (self.term / 4).min(LONGEST_GRACE)
    }

    fn reserve(&self) -> Duration {
        (self.term / 8).min(LONGEST_RESERVE)
    }

    pub(crate) fn term_at(&self) -> Moment {
        self.deadline.before(self.grace())
    }

    pub(crate) fn kill_at(&self) -> Moment {
        self.deadline.before(self.reserve())
    }

    /// When to look again whether the lease was renewed: soon after the first renewal is due, then often.
    pub(crate) fn look_at(&self, now: Moment) -> Moment {
        let first = self.deadline.before(self.term * 3 / 5);
        let next = if now < first { first } else { now.after(self.term / 32) };
        if now < self.term_at() { next.min(self.term_at()) } else { next.min(self.kill_at()) }
    }
}

/// What the front must know of the minder's plan. It lies in memory that both share, so that it is never out of date: messages would
/// be, for a front that was stopped and goes on.
#[derive(Debug)]
pub(crate) struct Watch {
    term_at: AtomicU64,
    kill_at: AtomicU64,
    is_stopping: AtomicBool,
    had_lease: AtomicBool,
    is_told: AtomicBool,
}

impl Watch {
    /// Nothing is to be stopped.
    pub(crate) const fn new() -> Self {
        let far = Moment::FAR.0;
        Watch {
            term_at: AtomicU64::new(far),
            kill_at: AtomicU64::new(far),
            is_stopping: AtomicBool::new(false),
            had_lease: AtomicBool::new(false),
            is_told: AtomicBool::new(false),
        }
    }

    /// The minder has a new plan.
    pub(crate) fn follow(&self, plan: &Plan) {
        let (term_at, kill_at) =
            (plan.deadline.before(plan.grace() * 3 / 4), plan.deadline.before(plan.reserve() / 2));
        self.had_lease.store(true, Ordering::SeqCst);
        self.kill_at.store(kill_at.0, Ordering::SeqCst);
        self.term_at.store(term_at.0, Ordering::SeqCst);
    }

    /// Nothing runs any more that would have to be stopped.
    pub(crate) fn rest(&self) {
        self.kill_at.store(Moment::FAR.0, Ordering::SeqCst);
        self.term_at.store(Moment::FAR.0, Ordering::SeqCst);
    }

    /// Someone began to stop the command; false when someone had before.
    pub(crate) fn begin_stopping(&self) -> bool {
        !self.is_stopping.swap(true, Ordering::SeqCst)
    }

    /// Whether someone began to stop the command.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }

    /// Someone is to tell why the command is stopped; false when someone has told before.
    pub(crate) fn begin_telling(&self) -> bool {
        !self.is_told.swap(true, Ordering::SeqCst)
    }

    /// Whether there ever was a lease. Nothing was started before that.
    pub(crate) fn had_lease(&self) -> bool {
        self.had_lease.load(Ordering::SeqCst)
    }

    /// When the front does what the minder has not done.
    pub(crate) fn term_at(&self) -> Moment {
        Moment(self.term_at.load(Ordering::SeqCst))
    }

    /// When the front kills all there is.
    pub(crate) fn kill_at(&self) -> Moment {
        Moment(self.kill_at.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Moment = Moment(1_000_000_000);

    /// From the shortest ttl to the longest, and the probation.
    fn terms() -> impl Iterator<Item = Duration> {
        [97, 300, 988, 9_898, 60_000, 86_400_000].into_iter().map(Duration::from_millis)
    }

    // B4
    #[test]
    fn the_command_is_killed_before_the_deadline_and_asked_before_that() {
        for term in terms() {
            let (plan, watch) = (Plan::new(START, term), Watch::new());
            watch.follow(&plan);
            let order = [plan.term_at(), watch.term_at(), plan.kill_at(), watch.kill_at(), START.after(term)];
            assert!(order.is_sorted_by(|a, b| a < b), "{term:?}: {order:?}");
            assert!(START.after(term).since(watch.kill_at()) >= Duration::from_millis(6), "{term:?}");
        }
    }

    #[test]
    fn a_renewal_has_come_before_the_command_is_asked_to_end() {
        for term in terms() {
            let plan = Plan::new(START, term);
            let renewal = START.after(term / 3);
            assert!(
                renewal.after(term / 3) < plan.term_at(),
                "there is time for more than one attempt: {term:?}"
            );
            assert!(renewal < plan.look_at(START) && plan.look_at(START) < plan.term_at(), "{term:?}");
        }
    }

    #[test]
    fn looking_ends_at_the_next_thing_to_do() {
        for term in terms() {
            let plan = Plan::new(START, term);
            let (mut now, mut looks) = (START, 0);
            while now < plan.kill_at() {
                let next = plan.look_at(now);
                assert!(next > now, "it goes on: {term:?}");
                assert!(now >= plan.term_at() || next <= plan.term_at(), "TERM is in time: {term:?}");
                (now, looks) = (next, looks + 1);
            }
            assert_eq!(now, plan.kill_at());
            assert!(looks < 32, "{looks}");
        }
    }

    #[test]
    fn only_a_renewal_makes_a_new_plan() {
        let term = Duration::from_secs(10);
        let mut plan = Plan::new(START, term);
        let before = plan;
        let later = START.after(Duration::from_secs(4));
        assert!(!plan.look(later, Duration::from_secs(6)) && plan == before);
        assert!(!plan.look(later, Duration::from_micros(6_000_900)), "a little wandering is none");
        assert!(!plan.look(later, Duration::ZERO) && plan == before, "what is lost is not planned");
        assert!(plan.look(later, Duration::from_millis(9_300)));
        assert_eq!(plan.deadline, later.after(Duration::from_millis(9_300)));
    }
}
