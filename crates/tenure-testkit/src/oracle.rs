//! The oracle: an offline judge of lock histories.
//!
//! A lock is judged by what its clients *believed*, not by what its store says: two clients that both
//! believe that they hold a name are a bug even if the store is in perfect order. So every client writes
//! down what it believes, in a log of its own, stamped with the one CLOCK_MONOTONIC of the host, and the
//! judgement is made afterwards from all logs together. Nothing here imports the lock: a checker that
//! shares code with what it checks shares its mistakes.
//!
//! Stamps are taken so that a believed interval is never longer in the log than it was: `granted` after
//! the acquire returned, `released` before the release is called. An overlap is therefore real, and the
//! tolerance is zero. What was not looked at does not pass: a check that found nothing to check fails.
//!
//! ```no_run
//! # use tenure_testkit::oracle;
//! use oracle::{Counter, FencedFile, History, Recorder, Report, Told};
//! use std::time::Duration;
//!
//! # fn main() -> std::io::Result<()> {
//! // in every client: a task of a process, with an id that is never used again
//! let log = Recorder::in_dir("logs", "p3/t1")?;
//! let (resource, counter) = (FencedFile::open("resource", "orders")?, Counter::open("counter", "orders")?);
//! log.requested("orders");
//! // let guard = lock.acquire().await?;
//! log.granted("orders", 17, || Duration::from_secs(2)); // guard.fence(), || guard.remaining()
//! let reading = counter.read(&log)?;
//! resource.write(17, &log)?;
//! reading.write_next()?; // if the guard is still held
//! log.released("orders", 17); // and only now call guard.release()
//!
//! // in the torturer
//! let torturer = Recorder::in_dir("logs", "torturer")?;
//! torturer.killed("p3"); // and only now send the signal
//! torturer.fault("flushall", None, None);
//!
//! // at the end
//! counter.record_final(&torturer)?;
//! let history = History::read_dir("logs")?;
//! let report = Report::of(&history)
//!     .updates()
//!     .told("flushall", Told::After(Duration::from_millis(20)))
//!     .idle_at_most(Duration::from_millis(2_250));
//! println!("{report}");
//! report.assert_clean();
//! # Ok(())
//! # }
//! ```

mod baseline;
mod belief;
mod bounds;
mod check;
mod event;
mod history;
mod log;
mod recorder;
mod report;
mod resource;
mod span;
mod updates;
mod verdict;

#[cfg(test)]
mod bound_tests;
#[cfg(test)]
mod check_tests;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod teeth;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod toy_client;
#[cfg(test)]
mod toy_store;

pub use baseline::Baseline;
pub use bounds::Told;
pub use event::{Event, Nanos, What};
pub use history::History;
pub use recorder::{MemoryLog, Recorder, now};
pub use report::Report;
pub use resource::{Counter, FencedFile, FencedMemory, Outcome, Reading};
pub use verdict::{Check, Verdict, Violation};
