//! One server of the group: whether it answers, whether its grants count, and what is to be undone on it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::backend::compensation::{Compensations, Target};
use crate::backend::{Component, Pending};
use crate::core::record::Op;
use crate::time::clock::{Clock, Moment};
use crate::types::name::Name;

/// Makes a duration of whole seconds at least as long.
const ROUND_UP: Duration = Duration::from_millis(999);

pub(super) struct Member {
    /// Host and port, without credentials.
    pub(super) label: String,
    pub(super) backend: Arc<dyn Component>,
    clock: Clock,
    /// It did not answer in time when it was last asked.
    pub(super) is_silent: Arc<AtomicBool>,
    pub(super) compensations: Compensations,
}

/// A server that started a short time ago and does not count yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct WarmUp {
    pub(super) age: Duration,
    /// How long until it counts, with [`ROUND_UP`].
    pub(super) left: Duration,
}

impl Member {
    pub(super) fn new(label: String, backend: Arc<dyn Component>, clock: Clock) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Member>| {
            let target: Weak<dyn Target> = this.clone();
            let compensations = Compensations::new(target, clock.clone());
            Member { label, backend, clock, is_silent: Arc::default(), compensations }
        })
    }

    pub(super) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    pub(super) fn answered(&self) {
        self.is_silent.store(false, Ordering::Relaxed);
    }

    /// Whether it answers, as far as that is known without asking.
    pub(super) fn is_in_reach(&self) -> bool {
        !self.is_silent() && self.backend.outage().is_none()
    }

    /// Whether it started less than one `ttl` ago, so that it may have forgotten a lease which another client counts on.
    pub(super) fn warm_up(&self, ttl: Duration) -> Option<WarmUp> {
        let age = self.backend.incarnation()?.age.filter(|age| *age < ttl)?;
        Some(WarmUp { age, left: ttl - age + ROUND_UP })
    }

    /// A moment of our clock, on the server's.
    pub(super) fn translated(&self, name: &Name, moment: Moment) -> u64 {
        let left = moment.since(self.clock.now());
        let left = u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
        self.backend.server_now(name).map_or(u64::MAX, |now| now.saturating_add(left))
    }
}

impl Target for Member {
    fn undo(&self, name: &Name, undo: Op) -> Pending<()> {
        let (answer, is_silent) = (self.backend.execute(name, undo), Arc::clone(&self.is_silent));
        Pending::Later(Box::pin(async move {
            answer.await?;
            is_silent.store(false, Ordering::Relaxed);
            Ok(())
        }))
    }
}
