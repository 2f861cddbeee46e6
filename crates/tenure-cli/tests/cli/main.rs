//! The `tenure` command, as a program among others: real processes, real signals, real stores.

mod bench;
mod doctor;
mod run;
mod support;
