//! Redis with a directory underneath: what no single store has, in every state of the pair.

mod degraded;
mod holding;
mod machines;
mod opening;
mod processes;
mod scene;
mod steps;
mod verbs;
mod warnings;
