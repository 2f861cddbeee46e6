//! One suite of cases that every store must pass: requirements R1 to R4, and what one expects of a lock that guards money.
//!
//! A case is a plain async function over a [`Fixture`]: it speaks to the public API of `tenure` only, so it says what is promised and
//! not how it is done. [`conformance!`](crate::conformance!) makes a test of every case for one backend, so that the next backend adds
//! a fixture and one line:
//!
//! ```ignore
//! tenure_testkit::conformance!(file, FileFixture::new(), without [loss::a_holder_is_told_before_another_can_hold]);
//! ```
//!
//! What a backend can't do is never skipped in silence. Each case names its [`Need`]s in `cases.rs`; one that is not met is printed with
//! the reason, must stand on the backend's `without` list, and nothing else may stand there. A case that the list
//! there does not name is dead code, and so refused by the compiler.
//!
//! No case hangs (a watchdog of real time ends it), none asserts a speed, and none sleeps to wait for what it can observe. "At once"
//! is proved by a ttl so long that no expiry can explain what is seen.

mod cases;
mod fixture;
mod runner;
mod time;

mod closing;
mod cohort;
mod detach;
mod exclusion;
mod fences;
mod force;
mod keeping;
mod loss;
mod names;
mod outage;
mod release;
mod retry;
mod run;
mod surface;
mod waiting;

#[doc(hidden)]
pub use cases::checks;
pub use fixture::{Ability, Client, Doing, Fixture, Need, die_in_process};
pub use runner::Suite;
