//! What users hold: domains, locks, guards and leases.

pub(crate) mod domain;
#[cfg(all(test, not(shuttle)))]
mod gate_tests;
pub(crate) mod guard;
pub(crate) mod lease;
pub(crate) mod lock;
pub(crate) mod run;
#[cfg(all(test, shuttle))]
mod schedules;
pub mod testing;
mod ticket;
