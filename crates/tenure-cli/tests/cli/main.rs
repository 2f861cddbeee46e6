//! The `tenure` command, as a program among others: real processes, real signals, real stores.

mod run;
mod support;
mod top;
