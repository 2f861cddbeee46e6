//! What the servers tell unasked.
//!
//! A grant of one server is not yet the name: it is a reason to ask again, at once. Each server has an ear of its own, so that it is known
//! which one spoke.

use std::sync::{Arc, Weak};

use super::bids::{Bids, Heard};
use super::{Group, GroupOf};
use crate::backend::{Grant, Sink};
use crate::core::record::Op;
use crate::time::clock::Clock;
use crate::types::name::Name;

/// The ears of a group that is being opened, one for each server.
pub(crate) struct Ears {
    bids: Arc<Bids>,
    group: Arc<GroupOf>,
    ears: Vec<Arc<dyn Sink>>,
}

impl Ears {
    pub(crate) fn new(servers: usize, sink: &Weak<dyn Sink>, clock: &Clock) -> Self {
        let bids = Arc::new(Bids::new(clock.clone(), servers));
        let group = Arc::new(GroupOf::new());
        let ear = |server| {
            let (bids, group) = (Arc::clone(&bids), Arc::clone(&group));
            Arc::new(Ear { server, bids, group, sink: sink.clone() }) as Arc<dyn Sink>
        };
        Ears { ears: (0..servers).map(ear).collect(), bids, group }
    }

    /// What a server is to tell.
    pub(crate) fn of(&self, server: usize) -> Weak<dyn Sink> {
        Arc::downgrade(&self.ears[server])
    }

    pub(super) fn into_parts(self) -> (Arc<Bids>, Arc<GroupOf>, Vec<Arc<dyn Sink>>) {
        (self.bids, self.group, self.ears)
    }
}

struct Ear {
    server: usize,
    bids: Arc<Bids>,
    group: Arc<GroupOf>,
    sink: Weak<dyn Sink>,
}

impl Ear {
    fn tell(&self, tell: impl FnOnce(&dyn Sink)) {
        if let Some(sink) = self.sink.upgrade() {
            tell(&*sink);
        }
    }
}

impl Sink for Ear {
    fn granted(&self, name: &Name, grant: Grant) {
        match self.bids.heard(&grant.token, self.server) {
            Heard::Wanted => self.tell(|sink| sink.verify(name)),
            // The next renewal makes it a full lease.
            Heard::Held => {}
            Heard::Unwanted => {
                if let Some(group) = self.group.get().and_then(Weak::<Group>::upgrade) {
                    let now = group.clock.now();
                    group.owe(self.server, name, Op::Leave { token: grant.token }, now);
                }
            }
        }
    }

    fn verify(&self, name: &Name) {
        self.tell(|sink| sink.verify(name));
    }

    fn verify_all(&self) {
        self.tell(|sink| sink.verify_all());
    }

    fn missed_grants(&self) {
        self.tell(|sink| sink.missed_grants());
    }
}
