//! When to stop a command, so that it is gone before its lease can expire.
//!
//! TERM is sent when a quarter of the current term is left, KILL when an eighth is left, with an upper limit for both. Short terms, such as a
//! probation, leave a larger share: a busy machine needs as much time to kill a command whatever the term is. Renewals begin at a third of the term,
//! so many of them have failed by then. The shares are of the term and not of the ttl, because a lease that was handed over has a short first term.
//!
//! `-k` sets the time from TERM to KILL. It changes when TERM is sent, never KILL, and TERM is never sent in the first half of the term, where a
//! renewal may just be late. The [wrapper](super::wrapper) acts a little later than the holder, and only if the holder did not.
//!
//! Pure, except for [`Moment::now`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, TimerfdClockId, clock_gettime};

/// The longest time between TERM and the deadline, unless `-k` asks for more.
pub(crate) const LONGEST_LEAD: Duration = Duration::from_secs(5);
/// The longest time between KILL and the deadline.
const LONGEST_RESERVE: Duration = Duration::from_millis(500);
/// The shortest one, unless that is more than a fifth of the term.
const SHORTEST_RESERVE: Duration = Duration::from_millis(200);

/// How often a process checks the clock, because its timers stand still while the machine sleeps.
pub(crate) const CLOCK_CHECK: Duration = Duration::from_millis(500);

/// How far CLOCK_BOOTTIME was ahead of CLOCK_MONOTONIC when [`count_sleep`] was called, in µs.
static AHEAD: AtomicU64 = AtomicU64::new(UNCOUNTED);
const UNCOUNTED: u64 = u64::MAX;

/// From now on, time in which the machine sleeps counts, as it does for the lease ([`tenure::Domain::counts_sleep`]). It applies to this process and
/// its forks.
pub(crate) fn count_sleep() {
    let ahead = micros_of(ClockId::Boottime).saturating_sub(micros_of(ClockId::Monotonic));
    AHEAD.store(ahead, Ordering::Relaxed);
}

/// The clock of a timer for a [`Moment`].
pub(crate) fn timer_clock() -> TimerfdClockId {
    match AHEAD.load(Ordering::Relaxed) {
        UNCOUNTED => TimerfdClockId::Monotonic,
        _ => TimerfdClockId::Boottime,
    }
}

fn micros_of(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.cast_unsigned() * 1_000_000 + time.tv_nsec.cast_unsigned() / 1_000
}

/// A moment in µs, on the clock of the lease: CLOCK_MONOTONIC plus the time in which the machine slept since [`count_sleep`]. All processes share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Later than every real moment.
    pub(crate) const FAR: Moment = Moment(u64::MAX);

    pub(crate) fn now() -> Self {
        Moment(match AHEAD.load(Ordering::Relaxed) {
            UNCOUNTED => micros_of(ClockId::Monotonic),
            ahead => micros_of(ClockId::Boottime).saturating_sub(ahead),
        })
    }

    pub(crate) fn after(self, duration: Duration) -> Self {
        Moment(self.0.saturating_add(micros(duration)))
    }

    pub(crate) fn before(self, duration: Duration) -> Self {
        Moment(self.0.saturating_sub(micros(duration)))
    }

    pub(crate) const fn micros(self) -> u64 {
        self.0
    }

    /// The moment of so many µs.
    pub(crate) const fn of(micros: u64) -> Self {
        Moment(micros)
    }

    /// The time from `earlier` to this moment; zero when it is not earlier.
    pub(crate) fn since(self, earlier: Moment) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// When to act if the lease is not renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    deadline: Moment,
    /// How much of the lease was left when the deadline was first read.
    term: Duration,
    /// The time from TERM to KILL, if `-k` gave one. Zero means no TERM.
    grace: Option<Duration>,
}

impl Plan {
    pub(crate) fn new(now: Moment, remaining: Duration, grace: Option<Duration>) -> Self {
        Plan { deadline: now.after(remaining), term: remaining, grace }
    }

    /// Takes in how much of the lease remains at `now` or later. True if the lease was renewed, and the plan is new.
    pub(crate) fn update(&mut self, now: Moment, remaining: Duration) -> bool {
        // The two clocks are not read at the same time, so an unchanged deadline seems to move a little.
        let is_renewed = now.after(remaining) > self.deadline.after(self.term / 64);
        if is_renewed {
            *self = Plan::new(now, remaining, self.grace);
        }
        is_renewed
    }

    /// From TERM to the deadline.
    fn lead(&self) -> Duration {
        match self.grace {
            None => self.usual_lead(),
            Some(grace) => grace.saturating_add(self.reserve()).min(self.term / 2),
        }
    }

    fn usual_lead(&self) -> Duration {
        (self.term / 4).max(self.reserve() * 3 / 2).min(LONGEST_LEAD)
    }

    /// From KILL to the deadline.
    fn reserve(&self) -> Duration {
        (self.term / 8).max(SHORTEST_RESERVE.min(self.term / 5)).min(LONGEST_RESERVE)
    }

    /// Whether the command gets TERM before KILL.
    pub(crate) fn sends_term(&self) -> bool {
        self.grace != Some(Duration::ZERO)
    }

    pub(crate) fn term_at(&self) -> Moment {
        self.deadline.before(self.lead())
    }

    pub(crate) fn kill_at(&self) -> Moment {
        self.deadline.before(self.reserve())
    }

    /// When to kill a command that gets TERM now, because its lease was ended by force. Someone else may hold the name already, so the command never
    /// gets more than the usual time.
    pub(crate) fn forced_kill_at(&self, now: Moment) -> Moment {
        let grace = self.grace.map_or(self.usual_lead(), |grace| grace.min(self.usual_lead()));
        now.after(grace).min(self.kill_at())
    }

    /// When the wrapper sends TERM, if the holder has not.
    pub(crate) fn wrapper_term_at(&self) -> Moment {
        self.deadline.before(self.lead() * 3 / 4)
    }

    /// When the wrapper kills everything. A process that begins only then would be too late.
    pub(crate) fn wrapper_kill_at(&self) -> Moment {
        self.deadline.before(self.reserve() / 2)
    }

    /// When to check again whether the lease was renewed: soon after the first renewal is due, then often.
    pub(crate) fn check_at(&self, now: Moment) -> Moment {
        let first = self.deadline.before(self.term * 3 / 5);
        let next = if now < first { first } else { now.after(self.term / 32) };
        if now < self.term_at() { next.min(self.term_at()) } else { next.min(self.kill_at()) }
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

    /// What may be asked for with `-k`.
    fn graces() -> impl Iterator<Item = Option<Duration>> {
        let asked = [0, 1, 100, 10_000, 100_000_000].into_iter().map(Duration::from_millis);
        asked.chain([Duration::MAX]).map(Some).chain([None])
    }

    fn plans() -> impl Iterator<Item = Plan> {
        terms().flat_map(|term| graces().map(move |grace| Plan::new(START, term, grace)))
    }

    // B4
    #[test]
    fn kill_comes_before_the_deadline_and_term_before_kill() {
        for term in terms() {
            let plan = Plan::new(START, term, None);
            let order = [
                plan.term_at(),
                plan.wrapper_term_at(),
                plan.kill_at(),
                plan.wrapper_kill_at(),
                START.after(term),
            ];
            assert!(order.is_sorted_by(|a, b| a < b), "{term:?}: {order:?}");
        }
    }

    // B4
    #[test]
    fn no_grace_delays_kill() {
        for plan in plans() {
            let usual = Plan::new(START, plan.term, None);
            assert_eq!(
                (plan.kill_at(), plan.wrapper_kill_at()),
                (usual.kill_at(), usual.wrapper_kill_at()),
                "{plan:?}"
            );
            assert!(plan.deadline.since(plan.wrapper_kill_at()) >= Duration::from_millis(6), "{plan:?}");
            assert!(plan.term_at() <= plan.kill_at(), "{plan:?}");
            assert!(
                plan.term_at() < plan.wrapper_term_at() && plan.wrapper_term_at() < plan.wrapper_kill_at(),
                "{plan:?}"
            );
            for now in [START, plan.term_at(), plan.kill_at(), plan.deadline, Moment::FAR] {
                let forced = plan.forced_kill_at(now);
                assert!(forced <= usual.forced_kill_at(now) && forced <= plan.kill_at(), "{plan:?}");
            }
        }
    }

    // B4
    #[test]
    fn the_grace_is_as_long_as_requested_unless_half_of_the_term_is_shorter() {
        for plan in plans() {
            let half = START.after(plan.term / 2);
            assert!(plan.term_at().after(Duration::from_micros(1)) >= half, "{plan:?}");
            let Some(grace) = plan.grace else { continue };
            let got = plan.kill_at().since(plan.term_at());
            assert!(
                got == grace || plan.term_at() <= half.after(Duration::from_micros(1)),
                "{plan:?}: {got:?}"
            );
            assert!(got <= grace, "{plan:?}: {got:?}");
        }
        let plan = |grace| Plan::new(START, Duration::from_secs(60), Some(Duration::from_secs(grace)));
        assert_eq!(plan(0).term_at(), plan(0).kill_at());
        assert_eq!(plan(20).kill_at().since(plan(20).term_at()), Duration::from_secs(20));
        assert_eq!(plan(40).kill_at().since(plan(40).term_at()), Duration::from_millis(29_500), "it is cut");
        assert_eq!(plan(3).forced_kill_at(START), START.after(Duration::from_secs(3)));
        assert_eq!(
            plan(20).forced_kill_at(START),
            START.after(Duration::from_secs(5)),
            "it may be another's"
        );
        assert_eq!(plan(0).forced_kill_at(START), START, "at once");
    }

    #[test]
    fn renewals_are_tried_before_term() {
        for term in terms() {
            let plan = Plan::new(START, term, None);
            let renewal = START.after(term / 3);
            assert!(
                renewal.after(term / 3) < plan.term_at(),
                "there is time for more than one attempt: {term:?}"
            );
        }
        for plan in plans() {
            let renewal = START.after(plan.term / 3);
            assert!(renewal < plan.check_at(START) && plan.check_at(START) < plan.term_at(), "{plan:?}");
        }
    }

    #[test]
    fn checks_end_at_the_next_action() {
        for plan in plans() {
            let (mut now, mut looks) = (START, 0);
            while now < plan.kill_at() {
                let next = plan.check_at(now);
                assert!(next > now, "it goes on: {plan:?}");
                assert!(now >= plan.term_at() || next <= plan.term_at(), "TERM is in time: {plan:?}");
                (now, looks) = (next, looks + 1);
            }
            assert_eq!(now, plan.kill_at());
            assert!(looks < 32, "{looks}");
        }
    }

    #[test]
    fn only_a_renewal_makes_a_new_plan() {
        let term = Duration::from_secs(10);
        let mut plan = Plan::new(START, term, None);
        let before = plan;
        let later = START.after(Duration::from_secs(4));
        assert!(!plan.update(later, Duration::from_secs(6)) && plan == before);
        assert!(!plan.update(later, Duration::from_micros(6_000_900)), "a little wandering is none");
        assert!(!plan.update(later, Duration::ZERO) && plan == before, "what is lost is not planned");
        assert!(plan.update(later, Duration::from_millis(9_300)));
        assert_eq!(plan.deadline, later.after(Duration::from_millis(9_300)));
    }
}
