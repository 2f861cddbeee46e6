//! What a store shows of a name, for the commands that read.
//!
//! Unlike the library's [`Status`], it has no value for what is unknown: since when, and until when, a lock of another library is held. And tests can
//! construct it.

use std::time::{Duration, SystemTime};

use tenure::{Domain, Error, Owner, Status};

use crate::glob::Glob;

/// One name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NameStatus {
    pub(crate) name: String,
    pub(crate) holder: Option<HolderStatus>,
    /// In the order of the queue.
    pub(crate) waiters: Vec<WaiterStatus>,
    /// The fence of the lease that was last ended by force, for a minute.
    pub(crate) broken: Option<u64>,
}

/// Who holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HolderStatus {
    pub(crate) owner: Owner,
    /// What `tenure break` compares. A lock of another library has no fence: then it is an older one.
    pub(crate) fence: u64,
    /// `None` for a lock of another library.
    pub(crate) since: Option<SystemTime>,
    /// For how long, by the clock of this machine.
    pub(crate) held: Option<Duration>,
    /// How much of the lease is left; `None` without expiry.
    pub(crate) left: Option<Duration>,
}

/// Who waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WaiterStatus {
    pub(crate) owner: Owner,
    pub(crate) waited: Duration,
}

impl NameStatus {
    /// A name that nobody holds or waits for.
    pub(crate) fn free(name: &str) -> Self {
        NameStatus { name: name.to_owned(), holder: None, waiters: Vec::new(), broken: None }
    }

    /// Whether someone holds it or waits for it.
    pub(crate) fn is_used(&self) -> bool {
        self.holder.is_some() || !self.waiters.is_empty()
    }
}

impl HolderStatus {
    /// The fence of this very lease; a lock of another library has none.
    pub(crate) fn own_fence(&self) -> Option<u64> {
        Some(self.fence).filter(|_| !self.owner.is_foreign())
    }
}

impl From<Status> for NameStatus {
    fn from(status: Status) -> Self {
        let held = |holder: tenure::Holder| {
            let since = Some(holder.since).filter(|_| !holder.owner.is_foreign());
            HolderStatus {
                fence: holder.fence.get(),
                since,
                held: since.map(|since| SystemTime::now().duration_since(since).unwrap_or_default()),
                left: Some(holder.remaining).filter(|left| *left != Duration::MAX),
                owner: holder.owner,
            }
        };
        let waiting = |waiter: tenure::Waiter| WaiterStatus { owner: waiter.owner, waited: waiter.waited };
        NameStatus {
            name: status.name,
            holder: status.holder.map(held),
            waiters: status.waiters.into_iter().map(waiting).collect(),
            broken: status.broken.map(|fence| fence.get()),
        }
    }
}

/// Reads one name.
pub(crate) async fn inspect(domain: &Domain, name: &str) -> Result<NameStatus, Error> {
    domain.inspect(name).await.map(NameStatus::from)
}

/// Reads the matching names that are held or waited for, in order.
pub(crate) async fn list(domain: &Domain, glob: &Glob) -> Result<Vec<NameStatus>, Error> {
    Ok(list_statuses(domain, glob).await?.into_iter().map(NameStatus::from).collect())
}

/// The same, with the library's type. If the pattern is one name, only that one is read.
pub(crate) async fn list_statuses(domain: &Domain, glob: &Glob) -> Result<Vec<Status>, Error> {
    if let Some(name) = glob.exact() {
        let status = domain.inspect(name).await?;
        let is_used = status.is_held() || !status.waiters.is_empty();
        return Ok(Some(status).filter(|_| is_used).into_iter().collect());
    }
    let mut statuses = domain.list(glob.prefix()).await?;
    statuses.retain(|status| glob.matches(&status.name));
    Ok(statuses)
}
