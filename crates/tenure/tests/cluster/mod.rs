//! What only a cluster can do to a lock. Each test starts one of its own, because it harms it; so a test does several things with one.

mod clocks;
mod failover;
mod layered;
mod load;
mod moving;
mod opening;
mod permissions;
mod replicas;
mod routing;
mod scene;
