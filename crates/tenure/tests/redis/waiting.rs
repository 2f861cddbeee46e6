//! The rules of waiting and hand-over, each with the interleaving that it prevents.
//!
//! ARCHITECTURE.md numbers them. What is waited for here is seen at the server, by raw commands or by a client that takes no part; what a
//! client is not to see, or to say too late, its own proxy sees to.

mod clocks;
mod deaths;
mod elsewhere;
mod ghosts;
mod herd;
mod order;
mod process;
mod pushes;
pub(crate) mod scene;
mod set_back;
