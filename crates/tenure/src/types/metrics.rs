//! What a client counts, under the lock of its table.

/// What happened in a domain since it was opened by this process, from [`Domain::metrics`](crate::Domain::metrics).
///
/// A loss and a failed renewal are also reported as `tracing` warnings under the target `tenure`, a grant and a release as debug events there.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure::Error> {
/// let domain = tenure::Domain::open("memory:").await?;
/// domain.lock("orders/42").acquire().await?.release().await?;
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
    /// Grants of the store that this client did not ask for: another process has a copy of its memory, as after one snapshot was restored
    /// twice. Open the domain again.
    pub unasked_grants: u64,
    /// Leases held right now.
    pub held: u64,
    /// Tasks waiting right now.
    pub waiting: u64,
}
