//! The events between two snapshots. Pure: snapshots and the time between them in, events out.
//!
//! A lease is recognised by its fence. Locks of other libraries have none, so two that follow each other look like one. A waiter is recognised by its
//! owner and by having waited longer than in the snapshot before.
//!
//! Stores remember how a lease ended only if it was ended by force. Any other lease expired if its time was over at the second snapshot, and was
//! released otherwise. So snapshots must be closer together than leases are long.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use tenure::Owner;

use crate::name_status::{HolderStatus, NameStatus, WaiterStatus};

/// What the store shows at one time, by name. A name that is not in it is free, and nobody waits for it.
pub(crate) type Snapshot = BTreeMap<String, NameStatus>;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// It was held in the first snapshot.
    Held,
    /// Someone began to wait.
    Queued,
    /// Someone stopped waiting without getting it.
    Left,
    /// Someone acquired it.
    Acquired,
    /// It was given back, or its holder died, if the store notices that.
    Released,
    /// The time of the lease was over.
    Expired,
    /// The lease was ended by force.
    Broken,
}

/// An event of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    pub(crate) name: String,
    pub(crate) who: Owner,
    /// The fence of the lease. Waiters and locks of other libraries have none.
    pub(crate) fence: Option<u64>,
    /// For how long it is or was held.
    pub(crate) held: Option<Duration>,
    /// For how long it waits or waited; `None` if no snapshot shows it waiting.
    pub(crate) waited: Option<Duration>,
    /// How much of the lease is left; `None` without a lease or without expiry.
    pub(crate) left: Option<Duration>,
}

/// The events of the first snapshot.
pub(crate) fn present(first: &Snapshot) -> Vec<Event> {
    differences(&Snapshot::new(), first, Duration::ZERO)
        .into_iter()
        .map(|event| match event.kind {
            EventKind::Acquired => Event { kind: EventKind::Held, ..event },
            _ => event,
        })
        .collect()
}

/// The events between two snapshots. For an unused name, `after` says how its last lease ended. `passed` is the longest possible time between the
/// snapshots.
pub(crate) fn differences(before: &Snapshot, after: &Snapshot, passed: Duration) -> Vec<Event> {
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().flat_map(|name| of_name(name, before.get(name), after.get(name), passed)).collect()
}

fn of_name(
    name: &str,
    before: Option<&NameStatus>,
    after: Option<&NameStatus>,
    passed: Duration,
) -> Vec<Event> {
    let event = |kind, who: &Owner| Event {
        kind,
        name: name.to_owned(),
        who: who.clone(),
        fence: None,
        held: None,
        waited: None,
        left: None,
    };
    let holder = |seen: Option<&NameStatus>| seen.and_then(|seen| seen.holder.clone());
    let (old, new) = (holder(before), holder(after));
    let is_same = matches!((&old, &new), (Some(old), Some(new)) if is_same_lease(old, new));
    let (old, new) = if is_same { (None, None) } else { (old, new) };
    let mut events = Vec::new();

    if let Some(old) = &old {
        let is_broken = |seen: Option<&NameStatus>| seen.and_then(|seen| seen.broken) == Some(old.fence);
        let kind = match old.left {
            _ if is_broken(after) && !is_broken(before) => EventKind::Broken,
            Some(left) if left < passed => EventKind::Expired,
            _ => EventKind::Released,
        };
        let held = held_to_the_end(old, new.as_ref().and_then(|new| new.since), kind, passed);
        events.push(Event { fence: old.own_fence(), held, ..event(kind, &old.owner) });
    }

    let mut gone: Vec<_> = before.iter().flat_map(|seen| &seen.waiters).collect();
    let mut come = Vec::new();
    for waiting in after.iter().flat_map(|seen| &seen.waiters) {
        let is_it = |known: &&WaiterStatus| known.owner == waiting.owner && known.waited <= waiting.waited;
        match gone.iter().position(is_it) {
            Some(index) => drop(gone.remove(index)),
            None => come.push(waiting),
        }
    }

    if let Some(new) = &new {
        let was_waiting = gone.iter().position(|waiting| waiting.owner == new.owner);
        let waited = was_waiting.map(|index| {
            let known = gone.remove(index).waited;
            known + passed.saturating_sub(new.held.unwrap_or_default())
        });
        let (fence, held, left) = (new.own_fence(), new.held, new.left);
        events.push(Event { fence, held, waited, left, ..event(EventKind::Acquired, &new.owner) });
    }
    let of_waiter =
        |kind, waiting: &WaiterStatus| Event { waited: Some(waiting.waited), ..event(kind, &waiting.owner) };
    events.extend(come.into_iter().map(|waiting| of_waiter(EventKind::Queued, waiting)));
    events.extend(gone.into_iter().map(|waiting| of_waiter(EventKind::Left, waiting)));
    events
}

fn is_same_lease(old: &HolderStatus, new: &HolderStatus) -> bool {
    let is_foreign = old.owner.is_foreign();
    old.owner == new.owner && (is_foreign || old.fence == new.fence)
}

/// For how long a lease was held that ended between two snapshots: to its end, to the beginning of the next lease, or at most to the second snapshot.
fn held_to_the_end(
    old: &HolderStatus,
    next: Option<SystemTime>,
    kind: EventKind,
    passed: Duration,
) -> Option<Duration> {
    let (known, since) = (old.held?, old.since?);
    let longest = known + passed;
    Some(match (kind, next.and_then(|next| next.duration_since(since).ok())) {
        (EventKind::Expired, _) => known + old.left.unwrap_or_default(),
        (_, Some(until_next)) => until_next.clamp(known, longest),
        (_, None) => longest,
    })
}
