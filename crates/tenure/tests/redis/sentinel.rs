//! A master that is found through Sentinel: opening, and what happens when another becomes the master.

mod failover;
mod opening;
mod pace;
mod replicas;
mod rollback;
