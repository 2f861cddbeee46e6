//! Real Redis servers, and the faults that they and the network before them can have.
//!
//! Never a mock, and never a server that happens to be there: what a test relies on (scripts, expiry, pushes, the order of replies) is
//! what a mock gets wrong, and a shared server has keys and clients of others. A server starts in about 10 ms, so each test has its own.

mod authority;
mod builder;
mod client;
mod clock;
mod cluster;
mod launch;
mod port;
mod proxy;
mod resp;
mod sentinel;
mod server;
mod tls;

pub use builder::Builder;
pub use client::Client;
pub use clock::Clock;
pub use cluster::{Cluster, ClusterBuilder};
pub use proxy::{Fault, Proxy, Step, named};
pub use resp::Reply;
pub use sentinel::{Trio, TrioBuilder};
pub use server::RedisServer;
