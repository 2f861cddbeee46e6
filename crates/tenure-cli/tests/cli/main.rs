//! The `tenure` command, as a program among others: real processes, real signals, real stores.

mod bench;
mod completions;
mod docs;
mod doctor;
mod hold;
mod run;
mod snapshots;
mod support;
mod tickets;
