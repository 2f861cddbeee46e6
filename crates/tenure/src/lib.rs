//! A distributed lock for people who can't afford two of something: two cron jobs, two sellers of the last ticket, two writers of
//! one file.
//!
//! A [`Domain`] is where names live; a [`Lock`] describes what is asked for; acquiring it yields a [`Guard`], which tells when it is
//! lost, and gives the name back when it is dropped. [`Lock::run`] does all of it around a piece of work.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tenure::Error> {
//! # async fn save(fence: tenure::Fence) -> std::io::Result<()> { Ok(()) }
//! let domain = tenure::Domain::open("memory:").await?;
//!
//! let saved = domain.lock("orders/42").run(async |lease| save(lease.fence()).await).await?;
//! saved.value.expect("the work's own result");
//! # Ok(())
//! # }
//! ```
//!
//! # What is held, and for how long
//! The store grants a *lease*: it ends by itself after its ttl unless it is renewed, which happens in the background for as long as the
//! guard lives. So a process that dies frees its names, and one that hangs loses them. A holder is told *before* its lease ends in the
//! store ([`Lease::lost`], [`Lease::is_held`]), unless it is ended there by force, which it is told as soon as the store says so. A holder that
//! was paused between its check and its write is stopped by its [`Fence`], if the resource checks it.
//!
//! A lock is not re-entrant: a task that acquires what it holds waits for itself.
//!
//! # What it runs on
//! A tokio runtime with time enabled and, for all but `memory:`, I/O (`enable_all`). Opening a `file:` or `redis:` domain on a runtime without them is an
//! error ([`Invalid`](ErrorKind::Invalid)). To find that out Tenure uses the drivers and catches tokio's panic, which the panic hook sees; with `panic = "abort"` it does
//! not try. Elsewhere, waiting without time panics as tokio's own timers do. A lease that is renewed needs a runtime: outside of one, acquiring is an error
//! unless the domain was used on one before, or with [`no_renewal`](Lock::no_renewal). Under `start_paused` only tokio's time jumps, not the
//! lock's: use [`testing`]. On Linux, Android and macOS validity is measured on a clock that goes on while the machine sleeps, but for file domains,
//! whose contenders sleep too; on others, on CLOCK_MONOTONIC.
//!
//! # Dropping and cancelling
//! Every future of this crate can be dropped at any time; each says what that does under *Cancel safety*. Every guard can be dropped
//! anywhere, also outside a runtime. What a drop leaves to be done in the background ends with the runtime: await [`Domain::close`] before `main`
//! returns, as in [its recipe](Domain::close).
//!
//! # Testing your own code
//! [`testing`] has a store whose time you move, and whose clients you can cut off.

mod api;
mod backend;
mod core;
mod engine;
mod sync;
mod time;
mod types;
mod url;

pub use api::testing;

// Where names live, and what can be asked of it.
pub use api::domain::Domain;
pub use backend::Capability;
pub use types::duration::parse_duration;
pub use types::finding::{Finding, Verdict};
pub use types::metrics::Metrics;
pub use types::status::{Busy, Health, Holder, Status, Waiter};
pub use url::{Degrade, DomainUrl};

// Asking for a name.
pub use api::lock::{Attempt, Lock};
pub use api::run::{Ran, Report};

// Holding it.
pub use api::guard::{Guard, Returned};
pub use api::lease::Lease;
pub use types::fence::{Fence, HighWater, Stale};
pub use types::owner::Owner;
pub use types::release::Release;
pub use types::ticket::Ticket;

// What can go wrong.
pub use types::error::{Error, ErrorKind};
pub use types::loss::{Loss, LossKind};
pub use types::replicas::TooFewReplicas;

/// The examples of the README are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// So are those of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
struct Guide;
