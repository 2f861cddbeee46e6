//! From a URL to a server: TLS, users, databases, sockets, and what is wrong with them.

mod first_use;
mod outage;
mod permissions;
mod runtimes;
mod storm;
mod urls;
mod warnings;
