//! What only a Redis server can do to a lock: each test starts its own, and harms it or the way to it.

mod answers;
mod attack;
mod hygiene;
mod interop;
mod loss;
mod opening;
mod recipes;
mod refusals;
mod sentinel;
mod shutdown;
mod waiting;
