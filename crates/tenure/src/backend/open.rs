//! From a URL to a backend: the one place that knows which stores are compiled in.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::file::FileDomain;
use super::layered::{Ear, Layered};
use super::memory::{Memory, MemoryStore};
use super::redis::Redis;
use super::{Backend, Pending, Sink};
use crate::clock::Clock;
use crate::error::Error;
use crate::owner::Session;
use crate::url::{Degrade, DomainUrl, Inner, RedisUrl, Target, Topology};

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
        Target::Redis(server) => match server.inner() {
            None => servers(server, url.timeout(), clock, sink, Session::random(), true),
            Some(inner) => layered(server, inner, url.timeout(), clock, sink),
        },
    }
}

/// Opens what is on servers. Those that need not be there at once are connected to as soon as they are.
fn servers(
    url: &RedisUrl,
    timeout: Option<Duration>,
    clock: &Clock,
    sink: Weak<dyn Sink>,
    session: Session,
    must_be_there: bool,
) -> Pending<Arc<dyn Backend>> {
    match url.topology() {
        Topology::Single | Topology::Unix { .. } | Topology::Sentinel { .. } => {
            Redis::open(url, timeout, clock, sink, session, must_be_there)
        }
        Topology::Cluster => Pending::now(Err(not_yet("Cluster is"))),
        Topology::Quorum => Pending::now(Err(not_yet("a quorum is"))),
    }
}

fn not_yet(what: &str) -> Error {
    Error::unsupported(format!("{what} not in this version of tenure; use one server: redis://host"))
}

fn layered(
    server: &RedisUrl,
    inner: &Inner,
    timeout: Option<Duration>,
    clock: &Clock,
    sink: Weak<dyn Sink>,
) -> Pending<Arc<dyn Backend>> {
    let ear: Arc<dyn Sink> = Arc::new(Ear(sink));
    let (dir, network_fs_allowed) = inner.dir();
    let file = match FileDomain::open(dir, network_fs_allowed, Arc::downgrade(&ear)) {
        Ok(file) => Arc::new(file),
        Err(error) => return Pending::now(Err(error)),
    };
    let (degrade, clock) = (inner.degrade(), clock.clone());
    let session = file.session().clone();
    let must_be_there = degrade == Degrade::Never;
    let outer = servers(server, timeout, &clock, Arc::downgrade(&ear), session, must_be_there);
    Pending::Later(Box::pin(async move {
        let outer = outer.await?;
        Ok(Arc::new(Layered::new(file, outer, ear, degrade, timeout, clock)) as Arc<dyn Backend>)
    }))
}

/// The clock that a client of this store measures validity on.
pub(crate) fn clock(url: &DomainUrl) -> Clock {
    match url.target() {
        Target::File { .. } => Clock::Awake,
        Target::Memory { .. } | Target::Redis(_) => Clock::System,
    }
}
