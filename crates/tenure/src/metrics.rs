//! What a client counts, and what it reports through `tracing`.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::tenure::{SharedLease, Turn};

/// What happened in a domain since it was opened by this process, from [`Domain::metrics`](crate::Domain::metrics).
///
/// The same moments are reported as `tracing` events under the target `tenure`: a loss and a failed renewal as warnings, a grant and a
/// release as debug events.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure::Error> {
/// let domain = tenure::Domain::open("memory:").await?;
/// domain.lock("orders/42").run(async |_| ()).await?;
///
/// let metrics = domain.metrics();
/// assert_eq!((metrics.acquired, metrics.released, metrics.lost), (1, 1, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Turns that began, by the store or passed on.
    pub acquired: u64,
    /// Attempts that were told busy.
    pub busy: u64,
    /// Turns that were given back.
    pub released: u64,
    /// Of those, the ones passed on to another task of this process without asking the store.
    pub passed: u64,
    /// Leases that were lost.
    pub lost: u64,
    /// Renewals that were answered.
    pub renewals: u64,
    /// Renewals that failed or were not answered.
    pub renewals_failed: u64,
    /// Leases held right now.
    pub held: u64,
    /// Tasks waiting right now.
    pub waiting: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    acquired: AtomicU64,
    busy: AtomicU64,
    released: AtomicU64,
    passed: AtomicU64,
    lost: AtomicU64,
    renewals: AtomicU64,
    renewals_failed: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn acquired(&self, turn: &Turn) {
        count(&self.acquired);
        tracing::debug!(target: "tenure", name = %turn.lease.name, fence = turn.fence.get(), "acquired");
    }

    pub(crate) fn busy(&self) {
        count(&self.busy);
    }

    pub(crate) fn released(&self, turn: &Turn, passed: bool) {
        count(&self.released);
        tracing::debug!(target: "tenure", name = %turn.lease.name, fence = turn.fence.get(), passed, "released");
        if passed {
            count(&self.passed);
        }
    }

    pub(crate) fn lost(&self, lease: &SharedLease) {
        count(&self.lost);
        if let Some(loss) = lease.loss() {
            tracing::warn!(target: "tenure", name = %lease.name, kind = ?loss.kind(), "{loss}");
        }
    }

    pub(crate) fn renewed(&self, answered: bool) {
        count(if answered {
            &self.renewals
        } else {
            &self.renewals_failed
        });
    }

    pub(crate) fn snapshot(&self, held: u64, waiting: u64) -> Metrics {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Metrics {
            acquired: read(&self.acquired),
            busy: read(&self.busy),
            released: read(&self.released),
            passed: read(&self.passed),
            lost: read(&self.lost),
            renewals: read(&self.renewals),
            renewals_failed: read(&self.renewals_failed),
            held,
            waiting,
        }
    }
}
