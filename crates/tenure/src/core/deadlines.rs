//! The holder's side of a lease. Pure: time comes in, decisions go out.
//!
//! The holder counts its deadline from **before** it sent the request, less a margin for clocks that run at different rates. The store counts
//! from when it executed the request, which was later. So the holder stops believing before the store can give the name to another (I2, I4),
//! also if the store hangs or the process is stopped. An unacknowledged request is *unknown*, not lost: the holder believes until its deadline,
//! and sends the renewal again.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::core::record::PROBATION;
use crate::time::clock::Moment;
use crate::types::duration::shown;
use crate::types::error::Error;

pub(crate) const MIN_TTL: Duration = Duration::from_millis(100);
pub(crate) const MAX_TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest pause before a renewal that failed is sent again.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The longest that one command may take.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(2);

/// How much faster the store's clock may run than the holder's, in per cent of what the holder believes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Margin(u8);

impl Margin {
    pub(crate) const LEAST: u8 = 1;
    /// With more, a renewal would be late before it is due.
    pub(crate) const MOST: u8 = 25;

    pub(crate) fn new(percent: u8) -> Option<Self> {
        (Self::LEAST..=Self::MOST).contains(&percent).then_some(Margin(percent))
    }

    pub(crate) fn percent(self) -> u8 {
        self.0
    }

    /// This share of a duration.
    fn of(self, duration: Duration) -> Duration {
        duration / 100 * u32::from(self.0)
    }
}

impl Default for Margin {
    fn default() -> Self {
        Margin(Margin::LEAST)
    }
}

/// What a claim asks for: how long the lease lasts, and how long it is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) ttl: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) renewed: bool,
    /// How long one command may take; a share of the ttl when not given.
    pub(crate) timeout: Option<Duration>,
    pub(crate) margin: Margin,
}

impl Terms {
    pub(crate) const DEFAULT_TTL: Duration = Duration::from_secs(10);

    pub(crate) fn new(ttl: Duration, timeout: Option<Duration>) -> Self {
        Terms { ttl, max_hold: None, renewed: true, timeout, margin: Margin::default() }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if !(MIN_TTL..=MAX_TTL).contains(&self.ttl) {
            return Err(Error::invalid(format!("ttl of {} is out of range", shown(self.ttl)))
                .fix("use 100 ms to 24 h"));
        }
        if self.max_hold.is_some_and(|max_hold| max_hold < MIN_TTL) {
            return Err(Error::invalid("max_hold is below 100 ms").fix("a lease can't be that short"));
        }
        if self.timeout.is_some_and(|timeout| timeout > self.ttl / 2) {
            let (timeout, ttl) = (shown(self.timeout.unwrap_or_default()), shown(self.ttl));
            return Err(Error::invalid(format!(
                "`timeout` of {timeout} in the domain URL is more than half of the ttl of {ttl}"
            ))
            .fix("shorten it, or use a longer ttl"));
        }
        Ok(())
    }

    /// How long the client waits for the answer to one command.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout.unwrap_or((self.ttl / 4).min(LONGEST_TIMEOUT))
    }

    /// How long the first term is asked for.
    pub(crate) fn first_term(&self) -> Duration {
        self.max_hold.unwrap_or(Duration::MAX).min(self.ttl)
    }

    /// Whether the lease needs renewals.
    pub(crate) fn needs_renewal(&self) -> bool {
        self.renewed && self.max_hold.is_none_or(|max_hold| max_hold > self.ttl)
    }

    /// Whether the lease may pass to another task: what is left of it is as good as a new one.
    pub(crate) fn can_be_passed(&self) -> bool {
        self.renewed && self.max_hold.is_none()
    }
}

/// The store's time in a reply, and when its request was sent: the store read `server` no earlier than `sent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TimePair {
    pub(crate) sent: Moment,
    pub(crate) server: u64,
    /// The connection that it came by.
    pub(crate) connection: u64,
}

/// What the holder should do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing until then.
    Rest { until: Moment },
    /// Renew, asking for this long.
    Renew { ttl: Duration },
    /// The deadline is over: the lease is not held any longer. `unanswered` if the store did not answer the last renewal.
    Over { unanswered: bool },
}

/// A lease as its holder sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deadlines {
    ttl: Duration,
    margin: Margin,
    /// The holder believes until then.
    deadline: Moment,
    /// When to renew; `None` if the lease must not last longer.
    renew_at: Option<Moment>,
    /// The longest time that it can be held.
    hold_end: Option<Moment>,
    /// It is not renewed past this, unless by hand.
    end: Option<Moment>,
    renewed: bool,
    unanswered: bool,
}

impl Deadlines {
    /// A lease that was granted in answer to a request sent at `sent`.
    pub(crate) fn granted(terms: &Terms, sent: Moment) -> Self {
        let term = terms.first_term();
        Deadlines::starting(terms, sent, term, sent + believed(term, terms.margin))
    }

    /// A lease that a push granted for `term` at the store's time `at`, and that was received at `now` (rule 4 of waiting).
    ///
    /// The store's time went from `pair.server` to `at`, so the store granted it no earlier than `pair.sent` plus the difference. `None` if that
    /// can't be, because the store's clock was set: then only a renewal can tell.
    pub(crate) fn pushed(
        terms: &Terms,
        pair: TimePair,
        at: u64,
        term: Duration,
        now: Moment,
    ) -> Option<Self> {
        let age = now.since(pair.sent);
        let passed = Duration::from_micros(at.checked_sub(pair.server)?);
        if passed > age {
            return None;
        }
        let made = pair.sent + passed;
        // Clocks that run at different rates drift apart with the age of the pair.
        let deadline = made + believed(term, terms.margin) - terms.margin.of(age);
        Some(Deadlines::starting(terms, made, term, deadline))
    }

    fn starting(terms: &Terms, from: Moment, term: Duration, deadline: Moment) -> Self {
        let mut lease = Deadlines {
            ttl: terms.ttl,
            margin: terms.margin,
            deadline,
            renew_at: None,
            hold_end: terms.max_hold.map(|max_hold| from + max_hold),
            end: (!terms.renewed).then(|| from + terms.first_term()),
            renewed: terms.renewed,
            unanswered: false,
        };
        lease.plan_renewal(from, term);
        lease
    }

    /// Renewed by a request that was sent at `sent` and asked for `ttl`. Never shortens.
    pub(crate) fn renewed(&mut self, sent: Moment, ttl: Duration) {
        self.unanswered = false;
        self.deadline = self.deadline.max(sent + believed(ttl, self.margin));
        self.plan_renewal(sent, ttl);
    }

    /// A renewal failed, or was not answered: unknown, not lost.
    pub(crate) fn not_answered(&mut self, now: Moment) {
        self.unanswered = true;
        self.renew_at = Some(now + (self.ttl / 20).min(LONGEST_PAUSE));
    }

    /// Renew at that moment, if not before.
    pub(crate) fn verify(&mut self, at: Moment) {
        self.renew_at = Some(self.renew_at.map_or(at, |planned| planned.min(at)));
    }

    /// What a renewal by hand asks for. A lease without automatic renewal lasts for one ttl from here.
    pub(crate) fn renewal_by_hand(&mut self, now: Moment) -> Duration {
        if !self.renewed {
            self.end = Some(now + self.ttl);
        }
        self.renewal(now)
    }

    pub(crate) fn step(&self, now: Moment) -> Step {
        if now >= self.deadline {
            return Step::Over { unanswered: self.unanswered };
        }
        match self.renew_at {
            Some(at) if at <= now => Step::Renew { ttl: self.renewal(now) },
            Some(at) => Step::Rest { until: at.min(self.deadline) },
            None => Step::Rest { until: self.deadline },
        }
    }

    pub(crate) fn deadline(&self) -> Moment {
        self.deadline
    }

    /// Whether enough is left of it to let another task start on it.
    pub(crate) fn is_fresh(&self, now: Moment) -> bool {
        self.deadline.since(now) >= (self.ttl / 2).min(PROBATION / 2)
    }

    fn renewal(&self, now: Moment) -> Duration {
        let ends = [self.hold_end, self.end].into_iter().flatten();
        let left = ends.map(|end| end.since(now)).min().unwrap_or(Duration::MAX);
        left.clamp(Duration::from_millis(1), self.ttl)
    }

    fn plan_renewal(&mut self, from: Moment, term: Duration) {
        let mut ends = [self.hold_end, self.end].into_iter().flatten();
        let may_last_longer = ends.all(|end| from + term < end);
        self.renew_at = may_last_longer.then(|| from + term / 3);
    }
}

/// How much of a term the holder believes in: all but the margin and 2 ms.
fn believed(term: Duration, margin: Margin) -> Duration {
    term.saturating_sub(margin.of(term) + Duration::from_millis(2))
}

/// The same as a share of it, of a long term.
pub(crate) fn believed_share(margin: Margin) -> f64 {
    1.0 - f64::from(margin.percent()) / 100.0
}
