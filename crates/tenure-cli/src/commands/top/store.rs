//! The store's side of the screen: it is asked on a thread of its own, so that keys work however long it takes to answer.
//!
//! A look is `list`, which only inspects: it wakes, settles and tracks nothing, so that holders pay nothing for being watched.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, SystemTime};

use tenure::{Domain, Error, Holder, Release};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::MissedTickBehavior;

use super::Event;
use super::state::{Look, Seen};
use crate::glob::Glob;
use crate::text::{escaped, owner};

/// How long it may take to take leave of the store.
const LEAVE: Duration = Duration::from_millis(500);

/// What asks the store.
pub(super) struct Store {
    domain: Domain,
    runtime: Handle,
    events: Sender<Event>,
    looking: AbortHandle,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
}

impl Store {
    /// Begins to look, at this interval.
    pub(super) fn start(
        domain: Domain,
        glob: Glob,
        interval: Duration,
        events: Sender<Event>,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let looking = runtime.spawn(look(domain.clone(), glob, interval, events.clone()));
        let (end, ended) = mpsc::channel();
        let store = Store {
            domain,
            runtime: runtime.handle().clone(),
            events,
            looking: looking.abort_handle(),
            ended,
        };
        thread::Builder::new().name("store".to_owned()).spawn(move || {
            let _ = runtime.block_on(looking);
            drop((runtime, end));
        })?;
        Ok(store)
    }

    /// Takes leave, so that nothing of this process stays in the store; not of one that does not answer.
    pub(super) fn close(self) {
        let Store { domain, looking, ended, .. } = self;
        looking.abort();
        let _ = ended.recv_timeout(LEAVE);
        drop(domain);
    }

    /// Breaks a lease, as it was shown; what came of it is an event.
    pub(super) fn break_lock(&self, name: String, holder: Box<Holder>) {
        let (domain, events) = (self.domain.clone(), self.events.clone());
        self.runtime.spawn(async move {
            let released = domain.break_lock(&name, &holder).await;
            let _ = events.send(Event::Broken(outcome(&name, &holder, released)));
        });
    }
}

async fn look(domain: Domain, glob: Glob, interval: Duration, events: Sender<Event>) {
    let mut ticks = tokio::time::interval(interval);
    // A slow store is not asked more often to make up for it.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let seen = seen(&domain, &glob).await;
        if events.send(Event::Looked(Look { at: SystemTime::now(), seen })).is_err() {
            return;
        }
    }
}

async fn seen(domain: &Domain, glob: &Glob) -> Result<Seen, Error> {
    let round_trip = domain.health().await?.round_trip;
    let mut statuses = domain.list(glob.prefix()).await?;
    statuses.retain(|status| glob.matches(&status.name));
    Ok(Seen { statuses, round_trip })
}

/// What to say of an attempt to break a lease.
fn outcome(name: &str, holder: &Holder, released: Result<Release, Error>) -> String {
    let (name, fence) = (escaped(name), holder.fence);
    match released {
        Ok(Release::Done) => {
            format!("`{name}` was broken: lease with fence {fence} of {} was ended", owner(&holder.owner))
        }
        Ok(Release::Taken { by }) => {
            format!("`{name}` was not broken: that lease had ended, and {} holds the name now", owner(&by))
        }
        Ok(_) => format!("`{name}` was not broken: that lease had ended"),
        Err(error) => {
            format!("`{name}` may not be broken, look again: {}", escaped(&error.to_string()))
        }
    }
}
