//! The `tenure` command, as a program among others: real processes, real signals, real stores.

mod completions;
mod docs;
mod hold;
mod run;
mod snapshots;
mod support;
mod tickets;
