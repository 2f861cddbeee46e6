//! What a transition of the table leaves to be done once its lock is free: nobody is woken, and nothing is sent, under the lock.

use std::sync::Arc;
use std::task::Waker;

use crate::engine::bid::{Alarm, Bid};
use crate::engine::lease_state::SharedLease;
use crate::types::name::Name;

/// What is left to do once the table's lock is free.
#[derive(Default)]
#[must_use = "tasks wait for what is in it"]
pub(crate) struct Effects {
    /// Most transitions wake one task: that takes no allocation.
    waker: Option<Waker>,
    wakers: Vec<Waker>,
    /// Leases whose holders must be notified of the loss.
    pub(crate) lost: Vec<Arc<SharedLease>>,
    /// Names for which a background task must seek a lease.
    pub(crate) seeks: Vec<(Name, Bid, Arc<Alarm>)>,
    /// The keeper has something to do sooner than it knew.
    pub(crate) rouse_keeper: bool,
}

impl Effects {
    pub(crate) fn wake(&mut self, wakers: impl IntoIterator<Item = Waker>) {
        for waker in wakers {
            if let Some(before) = self.waker.replace(waker) {
                self.wakers.push(before);
            }
        }
    }

    pub(crate) fn wake_all(&mut self) {
        self.wakers.drain(..).chain(self.waker.take()).for_each(Waker::wake);
    }
}
