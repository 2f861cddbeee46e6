//! The `tenure` command, as a program among others: real processes, real signals, real stores.

mod break_lock;
mod completions;
mod hold;
mod look;
mod run;
mod support;
mod tickets;
mod watch;
