//! What only a real store can do to a lock, each kind in a folder of its own. One program, because what they mostly do is wait, and beside
//! each other they wait at the same time.

mod cluster;
mod failover;
mod layered;
mod quorum;
mod redis;
