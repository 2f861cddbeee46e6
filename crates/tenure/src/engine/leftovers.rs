//! What this client dropped and the store may still have. [`Domain::left_in_store`](crate::Domain::left_in_store) shows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::sync::Mutex;
use crate::time::clock::Moment;

/// What this client dropped and the store may still have: until when at most, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leftovers(Arc<Mutex<Numbered>>);

#[derive(Debug, Default)]
struct Numbered {
    next: u64,
    all: BTreeMap<u64, Moment>,
}

/// One leftover. It is forgotten when the store has given it up, or its time is over.
pub(crate) struct Leftover {
    all: Leftovers,
    number: u64,
}

impl Leftovers {
    pub(crate) fn add(&self, until: Moment, now: Moment) -> Leftover {
        let mut numbered = self.0.lock();
        numbered.all.retain(|_, until| *until > now);
        let number = numbered.next;
        numbered.next += 1;
        numbered.all.insert(number, until);
        Leftover { all: self.clone(), number }
    }

    /// Until when the store may have the last of them.
    pub(crate) fn until(&self) -> Option<Moment> {
        self.0.lock().all.values().copied().max()
    }
}

impl Leftover {
    pub(crate) fn forget(self) {
        self.all.0.lock().all.remove(&self.number);
    }
}
