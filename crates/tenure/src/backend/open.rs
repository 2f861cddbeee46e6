//! From a URL to a backend: the one place that knows which stores there are.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::compose::layered::{Layered, LayeredListener};
use super::compose::quorum::{MemberListeners, Quorum};
use super::file::FileDomain;
use super::memory::{Memory, MemoryStore};
use super::redis::Redis;
use super::redis::cluster::Cluster;
use super::{Backend, Component, Pending, Presence, Sink, together};
use crate::backend::runtime;
use crate::core::deadlines::Terms;
use crate::time::clock::Clock;
use crate::types::owner::Session;
use crate::url::{Degrade, DomainUrl, Inner, RedisUrl, Target, Topology};

/// Opens the store that the URL names, which pushes to `sink`.
pub(crate) fn open(url: &DomainUrl, clock: &Clock, sink: Weak<dyn Sink>) -> Pending<Arc<dyn Backend>> {
    // A store in memory needs no driver for a name that is free.
    let needs_drivers = !matches!(url.target(), Target::Memory { .. });
    if needs_drivers && let Err(error) = runtime::check() {
        return Pending::now(Err(error));
    }
    match url.target() {
        Target::Memory { name } => {
            let store = match name {
                Some(name) => MemoryStore::shared(name),
                None => Ok(Arc::new(MemoryStore::new(clock.clone()))),
            };
            Pending::now(store.map(|store| Arc::new(Memory::connect(store, sink)) as Arc<dyn Backend>))
        }
        Target::File { dir, network_fs_allowed } => {
            let opened = FileDomain::open(dir.clone(), *network_fs_allowed, sink);
            Pending::now(opened.map(|domain| Arc::new(domain) as Arc<dyn Backend>))
        }
        Target::Redis(server) => match server.inner() {
            None => {
                let opening = servers(server, Times::of(url), clock, sink, Session::random(), true);
                Pending::Later(Box::pin(async move { Ok(opening.await? as Arc<dyn Backend>) }))
            }
            Some(inner) => layered(server, inner, Times::of(url), clock, sink),
        },
    }
}

/// Opens a store on servers. If they need not be there, the client connects as soon as they are.
fn servers(
    url: &RedisUrl,
    times: Times,
    clock: &Clock,
    sink: Weak<dyn Sink>,
    session: Session,
    must_be_there: bool,
) -> Pending<Arc<dyn Component>> {
    match url.topology() {
        Topology::Single | Topology::Unix { .. } | Topology::Sentinel { .. } => {
            Redis::open(url, times.timeout, clock, sink, session, Presence::required_if(must_be_there))
        }
        Topology::Cluster => Cluster::open(url, times.timeout, clock, sink, session, must_be_there),
        Topology::Quorum => quorum(url, times, clock, &sink, session, must_be_there),
    }
}

/// Connects to every server at once. A majority must accept the client.
fn quorum(
    url: &RedisUrl,
    times: Times,
    clock: &Clock,
    sink: &Weak<dyn Sink>,
    session: Session,
    must_be_there: bool,
) -> Pending<Arc<dyn Component>> {
    let listeners = MemberListeners::new(url.hosts().len(), sink, clock);
    let opening: Vec<_> = url
        .members()
        .iter()
        .enumerate()
        .map(|(server, member)| {
            let label = member.hosts().first().map(ToString::to_string).unwrap_or_default();
            let listener = listeners.of(server);
            let presence = Presence::OneOfSeveral;
            let opening = Redis::open(member, times.timeout, clock, listener, session.clone(), presence);
            async move { opening.await.map(|server| (label, server)) }
        })
        .collect();
    let clock = clock.clone();
    Pending::Later(Box::pin(async move {
        let servers = together::all(opening).await.into_iter().collect::<Result<_, _>>()?;
        let quorum = Quorum::new(session, servers, listeners, times.ttl, clock, must_be_there)?;
        Ok(Arc::new(quorum) as Arc<dyn Component>)
    }))
}

/// What the URL says of time.
#[derive(Clone, Copy)]
struct Times {
    timeout: Option<Duration>,
    ttl: Duration,
}

impl Times {
    fn of(url: &DomainUrl) -> Self {
        Times { timeout: url.timeout(), ttl: url.ttl().unwrap_or(Terms::DEFAULT_TTL) }
    }
}

fn layered(
    server: &RedisUrl,
    inner: &Inner,
    times: Times,
    clock: &Clock,
    sink: Weak<dyn Sink>,
) -> Pending<Arc<dyn Backend>> {
    let listener: Arc<dyn Sink> = Arc::new(LayeredListener(sink));
    let (dir, network_fs_allowed) = inner.dir();
    let file = match FileDomain::open(dir, network_fs_allowed, Arc::downgrade(&listener)) {
        Ok(file) => Arc::new(file),
        Err(error) => return Pending::now(Err(error)),
    };
    let (degrade, clock) = (inner.degrade(), clock.clone());
    let session = file.session().clone();
    let must_be_there = degrade == Degrade::Never;
    let outer = servers(server, times, &clock, Arc::downgrade(&listener), session, must_be_there);
    Pending::Later(Box::pin(async move {
        let outer = outer.await?;
        Ok(Arc::new(Layered::new(file, outer, listener, degrade, times.timeout, clock)) as Arc<dyn Backend>)
    }))
}

/// The clock that a client of this store measures validity on.
pub(crate) fn clock(url: &DomainUrl) -> Clock {
    match url.target() {
        Target::File { .. } => Clock::Awake,
        Target::Memory { .. } | Target::Redis(_) => Clock::System,
    }
}
