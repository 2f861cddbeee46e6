//! Redis with a directory underneath: what no single store has, in every state of the pair.

mod deaths;
mod degraded;
mod ghosts;
mod holding;
mod machines;
mod opening;
mod processes;
pub(crate) mod scene;
mod sentinel;
mod steps;
mod verbs;
mod warnings;
