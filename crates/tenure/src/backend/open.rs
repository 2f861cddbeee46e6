//! From a URL to a backend: the one place that knows which stores are compiled in.

use std::sync::{Arc, Weak};

use super::file::FileDomain;
use super::memory::{Memory, MemoryStore};
use super::redis::Redis;
use super::{Backend, Pending, Sink};
use crate::clock::Clock;
use crate::url::{DomainUrl, Target};

/// Opens the store that the URL names; what it hears unasked goes to `sink`.
pub(crate) fn open(url: &DomainUrl, clock: &Clock, sink: Weak<dyn Sink>) -> Pending<Arc<dyn Backend>> {
    match url.target() {
        Target::Memory { name } => {
            let store = match name {
                Some(name) => MemoryStore::shared(name),
                None => Arc::new(MemoryStore::new(clock.clone())),
            };
            Pending::now(Ok(Arc::new(Memory::connect(store, sink))))
        }
        Target::File { dir, network_fs_allowed } => {
            let opened = FileDomain::open(dir.clone(), *network_fs_allowed, sink);
            Pending::now(opened.map(|domain| Arc::new(domain) as Arc<dyn Backend>))
        }
        Target::Redis(server) => Redis::open(server, url.timeout(), clock, sink),
    }
}

/// The clock that a client of this store measures validity on.
pub(crate) fn clock(url: &DomainUrl) -> Clock {
    match url.target() {
        Target::File { .. } => Clock::Awake,
        Target::Memory { .. } | Target::Redis(_) => Clock::System,
    }
}
