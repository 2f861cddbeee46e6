//! From a URL to a backend: the one place that knows which stores are compiled in.

use std::sync::{Arc, Weak};

use super::memory::{Memory, MemoryStore};
use super::{Backend, Pending, Sink};
use crate::clock::Clock;
use crate::error::Error;
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
        Target::File { .. } => not_compiled_in("file", "file"),
        Target::Redis(_) => not_compiled_in("redis", "redis"),
    }
}

fn not_compiled_in(store: &str, feature: &str) -> Pending<Arc<dyn Backend>> {
    Pending::now(Err(Error::unsupported(format!(
        "{store} domains (feature `{feature}`) are not in this version of tenure; use `memory:`"
    ))))
}
