//! A master that is found through Sentinel: opening, and what happens when another becomes the master.

mod disagreement;
mod failover;
mod one_server;
mod opening;
mod pace;
mod replicas;
mod rollback;
mod users;
