//! One name as the screen shows it: a [`Status`], with its texts escaped and its times as of the poll.
//!
//! Times do not run on between two polls: the screen shows what the store said. Stale rows are marked as stale. A lease that may have been renewed does not
//! seem to run down.

use std::time::{Duration, SystemTime};

use tenure::{Holder, Owner, Status};

use crate::text::escaped;

/// How much more of a lease may seem to be left without a renewal, because answers take different times.
const JITTER: Duration = Duration::from_millis(50);

/// A name that is held or waited for.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) name: String,
    /// The name, safe on a terminal.
    pub(super) shown: String,
    pub(super) holding: Option<RowHolder>,
    /// In the order of the queue.
    pub(super) queue: Vec<RowWaiter>,
}

/// Who holds a name.
#[derive(Clone, Debug)]
pub(super) struct RowHolder {
    pub(super) who: String,
    pub(super) label: String,
    pub(super) fence: u64,
    /// `None` for a lock of another library.
    pub(super) since: Option<SystemTime>,
    pub(super) held_for: Option<Duration>,
    /// What is left of the lease; `None` without expiry.
    pub(super) left: Option<Duration>,
    /// The most that was left of a lease on this name since the screen was opened.
    pub(super) longest: Duration,
    /// When the screen last saw a renewal: its holder was alive then.
    pub(super) renewed: Option<SystemTime>,
    /// What is compared when it is broken.
    pub(super) holder: Holder,
}

/// Who waits for a name.
#[derive(Clone, Debug)]
pub(super) struct RowWaiter {
    pub(super) who: String,
    pub(super) label: String,
    pub(super) waited: Duration,
}

impl Row {
    /// The row for a status that the store gave at `at`; `before` is the holder at the poll before.
    pub(super) fn new(status: Status, at: SystemTime, before: Option<&RowHolder>) -> Self {
        let waiting = |waiter: tenure::Waiter| RowWaiter {
            who: who(&waiter.owner),
            label: escaped(waiter.owner.label()),
            waited: waiter.waited,
        };
        Row {
            shown: escaped(&status.name),
            name: status.name,
            holding: status.holder.map(|holder| RowHolder::new(holder, at, before)),
            queue: status.waiters.into_iter().map(waiting).collect(),
        }
    }

    pub(super) fn held_for(&self) -> Option<Duration> {
        self.holding.as_ref()?.held_for
    }

    /// How much of the lease is left: zero without a lease, the maximum without expiry.
    pub(super) fn left(&self) -> Duration {
        self.holding.as_ref().map_or(Duration::ZERO, |holding| holding.left.unwrap_or(Duration::MAX))
    }

    /// For how long the first in the queue has waited.
    pub(super) fn longest_wait(&self) -> Option<Duration> {
        self.queue.iter().map(|waiting| waiting.waited).max()
    }
}

impl RowHolder {
    fn new(holder: Holder, at: SystemTime, before: Option<&RowHolder>) -> Self {
        let longest = before.map_or(Duration::ZERO, |before| before.longest);
        let same = before.filter(|before| before.fence == holder.fence.get());
        let is_renewed =
            same.is_some_and(|before| holder.remaining > before.holder.remaining.saturating_add(JITTER));
        let renewed = if is_renewed { Some(at) } else { same.and_then(|before| before.renewed) };
        let left = Some(holder.remaining).filter(|left| *left != Duration::MAX);
        let since = Some(holder.since).filter(|_| !holder.owner.is_foreign());
        RowHolder {
            who: who(&holder.owner),
            label: escaped(holder.owner.label()),
            fence: holder.fence.get(),
            since,
            held_for: since.map(|since| at.duration_since(since).unwrap_or_default()),
            left,
            longest: longest.max(left.unwrap_or_default()),
            renewed,
            holder,
        }
    }

    /// How many of `parts` of the longest lease are left. Zero only if nothing is left.
    pub(super) fn share(&self, parts: usize) -> usize {
        let left = self.left.unwrap_or(self.longest);
        if self.longest.is_zero() {
            return if self.left.is_some() { 0 } else { parts };
        }
        let share = left.as_secs_f64() / self.longest.as_secs_f64();
        // Between 0 and `parts`: what is left is never more than the longest.
        ((share * parts as f64).ceil() as usize).min(parts)
    }
}

/// Who it is, in few words.
fn who(owner: &Owner) -> String {
    match owner.pid() {
        Some(pid) => format!("{}@{} pid {pid}", escaped(owner.user()), escaped(owner.host())),
        None => "another library".to_owned(),
    }
}
