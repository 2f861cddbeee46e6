//! The `tenure` command, as a program among others: real processes, real signals, real stores.

mod above;
mod bench;
mod break_lock;
mod completions;
mod docs;
mod doctor;
mod hold;
mod json;
mod ls_status;
mod mounts;
mod run;
mod snapshots;
mod support;
mod tickets;
mod top;
mod urls;
mod users;
mod watch;
