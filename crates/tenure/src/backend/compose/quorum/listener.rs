//! What the servers push.
//!
//! A grant of one server is not yet the name: it is a reason to ask again at once. Each server has a listener of its own, so that the group
//! knows which one pushed.

use std::sync::{Arc, Weak};

use super::bids::{PushedGrant, QuorumBids};
use super::{Group, LateGroup};
use crate::backend::{Grant, Sink};
use crate::core::record::Op;
use crate::time::clock::Clock;
use crate::types::name::Name;

/// The listeners of a group that is being opened, one for each server.
pub(crate) struct MemberListeners {
    bids: Arc<QuorumBids>,
    group: Arc<LateGroup>,
    listeners: Vec<Arc<dyn Sink>>,
}

impl MemberListeners {
    pub(crate) fn new(servers: usize, sink: &Weak<dyn Sink>, clock: &Clock) -> Self {
        let bids = Arc::new(QuorumBids::new(clock.clone(), servers));
        let group = Arc::new(LateGroup::new());
        let listener = |server| {
            let (bids, group) = (Arc::clone(&bids), Arc::clone(&group));
            Arc::new(MemberListener { server, bids, group, sink: sink.clone() }) as Arc<dyn Sink>
        };
        MemberListeners { listeners: (0..servers).map(listener).collect(), bids, group }
    }

    /// The listener of one server.
    pub(crate) fn of(&self, server: usize) -> Weak<dyn Sink> {
        Arc::downgrade(&self.listeners[server])
    }

    pub(super) fn into_parts(self) -> (Arc<QuorumBids>, Arc<LateGroup>, Vec<Arc<dyn Sink>>) {
        (self.bids, self.group, self.listeners)
    }
}

struct MemberListener {
    server: usize,
    bids: Arc<QuorumBids>,
    group: Arc<LateGroup>,
    sink: Weak<dyn Sink>,
}

impl MemberListener {
    fn pass_on(&self, pass_on: impl FnOnce(&dyn Sink)) {
        if let Some(sink) = self.sink.upgrade() {
            pass_on(&*sink);
        }
    }
}

impl Sink for MemberListener {
    fn granted(&self, name: &Name, grant: Grant) {
        match self.bids.pushed(&grant.token, self.server) {
            PushedGrant::Wanted => self.pass_on(|sink| sink.verify(name)),
            // The next renewal makes it a full lease.
            PushedGrant::Held => {}
            PushedGrant::Unwanted => {
                if let Some(group) = self.group.get().and_then(Weak::<Group>::upgrade) {
                    group.undo_now(self.server, name, Op::Leave { token: grant.token });
                }
            }
        }
    }

    fn verify(&self, name: &Name) {
        self.pass_on(|sink| sink.verify(name));
    }

    fn verify_all(&self) {
        self.pass_on(|sink| sink.verify_all());
    }

    fn missed_grants(&self) {
        self.pass_on(|sink| sink.missed_grants());
    }
}
