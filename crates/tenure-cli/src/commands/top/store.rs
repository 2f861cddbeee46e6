//! Polls the store on its own thread, so that keys work however long the store takes to answer.
//!
//! A poll is `list`, which only reads: it wakes nobody and changes nothing, so holders pay nothing for it.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use tenure::{Error, Holder, Release};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::Input;
use super::state::{Answer, Poll};
use crate::address::ObservedDomain;
use crate::args::Polling;
use crate::glob::Glob;
use crate::name_status;
use crate::text::{escaped, owner};

/// The pause after a poll is at least so many times as long as the poll, but no longer than this.
const PAUSES: u32 = 4;
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long closing the domain may take.
const LEAVE: Duration = Duration::from_millis(500);

/// The thread that polls the store.
pub(super) struct Store {
    observed: ObservedDomain,
    runtime: Handle,
    events: Sender<Input>,
    polling: AbortHandle,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
}

impl Store {
    /// Starts to poll at this interval.
    pub(super) fn start(
        observed: ObservedDomain,
        polling: &Polling,
        events: Sender<Input>,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let polling =
            runtime.spawn(poll_store(observed.clone(), polling.glob(), polling.interval, events.clone()));
        let (end, ended) = mpsc::channel();
        let store = Store {
            observed,
            runtime: runtime.handle().clone(),
            events,
            polling: polling.abort_handle(),
            ended,
        };
        thread::Builder::new().name("store".to_owned()).spawn(move || {
            let _ = runtime.block_on(polling);
            drop((runtime, end));
        })?;
        Ok(store)
    }

    /// Closes the domain, so that nothing of this process stays in the store, unless the store does not answer.
    pub(super) fn close(self) {
        let Store { observed, polling, ended, .. } = self;
        polling.abort();
        let _ = ended.recv_timeout(LEAVE);
        drop(observed);
    }

    /// Breaks a lease as it was shown. The result is an input.
    pub(super) fn break_lock(&self, name: String, holder: Box<Holder>) {
        let (observed, events) = (self.observed.clone(), self.events.clone());
        self.runtime.spawn(async move {
            let released = broken(&observed, &name, &holder).await;
            let _ = events.send(Input::Broken(outcome(&name, &holder, released)));
        });
    }
}

async fn poll_store(observed: ObservedDomain, glob: Glob, interval: Duration, events: Sender<Input>) {
    loop {
        let start = Instant::now();
        let answer = answer(&observed, &glob).await;
        let took = start.elapsed();
        if events.send(Input::Polled(Poll { at: SystemTime::now(), answer })).is_err() {
            return;
        }
        // A slow store is polled less often.
        let pause = (took * PAUSES).min(LONGEST_PAUSE).max(interval.saturating_sub(took));
        tokio::time::sleep(pause).await;
    }
}

async fn answer(observed: &ObservedDomain, glob: &Glob) -> Result<Answer, Error> {
    let domain = &observed.domain()?;
    let round_trip = domain.health().await?.round_trip;
    Ok(Answer { statuses: name_status::list_statuses(domain, glob).await?, round_trip })
}

async fn broken(observed: &ObservedDomain, name: &str, holder: &Holder) -> Result<Release, Error> {
    let domain = observed.domain()?;
    let released = domain.break_lock(name, holder).await?;
    // It may have been ended by a first request whose answer was lost. What is remembered with the fence of a lock of another library is older.
    let is_ours = !holder.owner.is_foreign();
    if released != Release::Released && is_ours && domain.inspect(name).await?.broken == Some(holder.fence) {
        return Ok(Release::Released);
    }
    Ok(released)
}

/// The message after an attempt to break a lease.
fn outcome(name: &str, holder: &Holder, released: Result<Release, Error>) -> String {
    let (name, fence) = (escaped(name), holder.fence);
    match released {
        Ok(Release::Released) => format!("`{name}` was taken from {}, fence {fence}", owner(&holder.owner)),
        Ok(Release::Taken { by }) => {
            format!("`{name}` was not broken: that lease had ended, and {} holds the name now", owner(&by))
        }
        Ok(_) => format!("`{name}` was not broken: that lease had ended"),
        Err(error) => {
            format!("`{name}` may not be broken, look again: {}", escaped(&error.to_string()))
        }
    }
}
