//! A cluster of Redis or Valkey: each name is on the node that has its slot, and works there as on one server.
//!
//! All keys and channels of a name are in one slot, so the scripts are the same. The rest differs: which node to ask ([`router`],
//! [`route`]), and where to listen for grants ([`channels`]). Clocks, connections and subscriptions are those of the node that has the
//! name now.

pub(super) mod channels;
mod channels_task;
mod inquiry;
mod map;
mod node;
mod route;
pub(super) mod router;
mod slot;

use std::sync::{Arc, Weak};
use std::time::Duration;

pub(super) use self::node::Node;
pub(super) use self::router::Router;
use self::slot::slot;
use super::client::{Failure, SessionContext};
use super::keys::Keys;
use super::script::Call;
use super::{PIPELINE, TRACKED_AFTER, examine, scan};
use crate::backend::GroupOf;
use crate::backend::together;
use crate::backend::{Admin, Answer, Backend, Capability, Component, Pending, Sink};
use crate::core::record::{Op, Reply, pause_behind};
use crate::time::clock::Clock;
use crate::types::error::{Error, ErrorKind};
use crate::types::finding::Finding;
use crate::types::name::{Name, NameMap};
use crate::types::owner::Session;
use crate::url::RedisUrl;

/// One client of a cluster.
pub(crate) struct Cluster(Arc<Router>);

impl Cluster {
    /// Asks the nodes of the URL for the slots, and begins to connect to all masters, as this session.
    pub(crate) fn open(
        url: &RedisUrl,
        timeout: Option<Duration>,
        clock: &Clock,
        sink: Weak<dyn Sink>,
        session: Session,
        must_be_there: bool,
    ) -> Pending<Arc<dyn Component>> {
        let keys = Keys::sharded(url.prefix()).remembering(url.fence_memory());
        let context = SessionContext::new(session, keys, clock.clone(), sink, url.replicas().is_some());
        let router = match Router::new(url, timeout, context) {
            Ok(router) => router,
            Err(error) => return Pending::now(Err(error)),
        };
        Pending::Later(Box::pin(async move {
            let cluster = Cluster::connect(router, must_be_there).await?;
            Ok(Arc::new(cluster) as Arc<dyn Component>)
        }))
    }

    pub(super) async fn connect(router: Arc<Router>, must_be_there: bool) -> Result<Self, Error> {
        match router.fetch_map().await {
            Err(error) if must_be_there || error.kind() != ErrorKind::Unavailable => return Err(error),
            Err(_) => router.refresh_map(),
            Ok(()) => {}
        }
        // A connected node tells its clock, and whether it reports losses. An unreachable node delays this only until the first attempt
        // fails.
        let masters = router.masters();
        let connections = masters.iter().map(|node| node.client.link.active());
        let connections = together::all(connections.collect()).await;
        let is_reached = masters.is_empty() || connections.iter().any(Result::is_ok);
        let is_in_the_way = |error: &Error| !error.is_transient() || must_be_there && !is_reached;
        match connections.into_iter().filter_map(Result::err).find(is_in_the_way) {
            Some(error) => Err(error),
            None => Ok(Cluster(router)),
        }
    }
}

impl Cluster {
    /// The node that has the name, if known.
    pub(super) fn owner_of(&self, name: &Name) -> Option<Arc<Node>> {
        self.0.owner_of(name)
    }
}

impl Backend for Cluster {
    fn session(&self) -> &Session {
        &self.0.context.session
    }

    fn server_now(&self, name: &Name) -> Option<u64> {
        self.0.owner_of(name)?.client.server_now()
    }

    fn execute(&self, name: &Name, op: Op) -> Pending<Answer> {
        if let Err(error) = self.session().check_process() {
            return Pending::now(Err(error));
        }
        let (router, name) = (Arc::clone(&self.0), name.clone());
        let op = match router.owner_of(&name) {
            Some(node) => node.client.keeping_fences(op),
            None => op,
        };
        Pending::Later(Box::pin(async move { execute(&router, &name, op).await }))
    }

    fn most_at_once(&self) -> usize {
        PIPELINE
    }

    fn execute_all(&self, operations: &[(Name, Op)]) -> Pending<Vec<Option<Result<Answer, Error>>>> {
        if let Err(error) = self.session().check_process() {
            return Pending::now(Err(error));
        }
        let (router, operations) = (Arc::clone(&self.0), operations.to_vec());
        Pending::Later(Box::pin(async move { Ok(execute_all(&router, operations).await) }))
    }

    fn list(&self, prefix: &str) -> Pending<Vec<Name>> {
        if let Err(error) = self.session().check_process() {
            return Pending::now(Err(error));
        }
        let (router, prefix) = (Arc::clone(&self.0), prefix.to_owned());
        Pending::Later(Box::pin(async move {
            let masters = router.masters();
            let looks = masters.iter().map(|node| async {
                let active = node.client.link.active().await?;
                scan::names(active.connection, &node.address(), &router.context.keys, &prefix).await
            });
            // Two nodes may list a name that is moving.
            let mut names = NameMap::default();
            for found in together::all(looks.collect()).await {
                names.extend(found?.into_iter().map(|name| (name, ())));
            }
            Ok(names.into_keys().collect())
        }))
    }

    fn polls(&self, name: &Name) -> bool {
        self.0.owner_of(name).is_none_or(|node| !node.client.listener.grants.is_listening(name))
    }

    fn connection(&self, name: &Name) -> u64 {
        self.0.owner_of(name).map_or(0, |node| node.connection())
    }

    /// A slot is on one node at a time, and takes its fences with it when it moves.
    fn groups(&self) -> Option<GroupOf> {
        let keys = self.0.context.keys.clone();
        Some(Arc::new(move |name| slot(&keys.lock(name))))
    }

    fn reconnects(&self) -> bool {
        true
    }

    fn verifies_after(&self) -> Option<Duration> {
        let reports_losses =
            |node: Arc<Node>| node.client.server().is_none_or(|server| server.tracking_refused.is_none());
        self.0.masters().into_iter().all(reports_losses).then_some(TRACKED_AFTER)
    }
}

impl Component for Cluster {
    fn outage(&self) -> Option<Error> {
        let mut outages = self.0.masters().into_iter().map(|node| node.client.link.outage());
        let outage = match outages.next() {
            Some(first) => outages.try_fold(first?, |first, other| other.map(|_| first)),
            None => self.0.failure(),
        };
        // All slots may have moved to other nodes.
        outage.inspect(|_| self.0.refresh_map())
    }
}

impl Admin for Cluster {
    fn capabilities(&self) -> &'static [Capability] {
        use Capability::{Detach, Fifo, Force, List, LossPush};
        match self.verifies_after() {
            Some(_) => &[Fifo, List, Detach, Force, LossPush],
            None => &[Fifo, List, Detach, Force],
        }
    }

    fn warnings(&self) -> Vec<String> {
        let mut all = Vec::new();
        for warning in self.0.masters().iter().flat_map(|node| node.client.warnings()) {
            if !all.contains(&warning) {
                all.push(warning);
            }
        }
        all
    }

    fn examine(&self) -> Pending<Vec<Finding>> {
        if let Err(error) = self.session().check_process() {
            return Pending::now(Err(error));
        }
        Pending::Later(Box::pin(examine::cluster::examine(Arc::clone(&self.0))))
    }

    fn forget(&self, name: &Name) -> Pending<()> {
        if let Err(error) = self.session().check_process() {
            return Pending::now(Err(error));
        }
        let (router, name) = (Arc::clone(&self.0), name.clone());
        Pending::Later(Box::pin(async move {
            let Some(node) = router.owner_of(&name) else { return Ok(()) };
            let lock = router.context.keys.lock(&name);
            node.client.forget(&lock).await.map_err(|failure| node.client.refused(failure, &lock))
        }))
    }
}

async fn execute(router: &Arc<Router>, name: &Name, op: Op) -> Result<Answer, Error> {
    let ends_anothers_lease = matches!(op, Op::TakeOver { .. } | Op::Break { .. });
    let (answer, node) = router.execute(Call::new(&router.context.keys, name, op)).await?;
    if let Reply::Waiting { ahead, .. } = answer.reply {
        node.client.listener.grants.want(name, pause_behind(ahead));
    }
    // The server reports our changes to all clients except us.
    if ends_anothers_lease && let Some(sink) = router.context.sink.upgrade() {
        sink.verify(name);
    }
    Ok(answer)
}

/// Sends one pipeline to each node. The caller repeats operations without an answer one by one.
async fn execute_all(
    router: &Arc<Router>,
    operations: Vec<(Name, Op)>,
) -> Vec<Option<Result<Answer, Error>>> {
    let mut groups: Vec<(Arc<Node>, Vec<usize>)> = Vec::new();
    for (index, (name, _)) in operations.iter().enumerate() {
        let Some(node) = router.owner_of(name) else { continue };
        match groups.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &node)) {
            Some((_, indices)) => indices.push(index),
            None => groups.push((node, vec![index])),
        }
    }
    let call = |(name, op): &(Name, Op)| Call::new(&router.context.keys, name, op.clone());
    let pipelines = groups.iter().map(|(node, indices)| {
        let calls: Vec<_> = indices.iter().map(|&index| call(&operations[index])).collect();
        async move {
            node.client.link.try_active().map(|_| ())?;
            Some(node.client.execute_all(&calls).await)
        }
    });
    let answered = together::all(pipelines.collect()).await;
    let mut answers: Vec<Option<Result<Answer, Error>>> = operations.iter().map(|_| None).collect();
    for ((_, indices), answered) in groups.iter().zip(answered) {
        match answered {
            Some(Ok(group)) => {
                for (&index, answer) in indices.iter().zip(group) {
                    answers[index] = match answer {
                        Ok(answer) => Some(Ok(answer)),
                        Err(Failure::Error(error)) => Some(Err(error)),
                        // The node did not execute it: `execute` follows redirections.
                        Err(Failure::Refused(_)) => None,
                    };
                }
            }
            Some(Err(error)) => {
                router.refresh_map();
                indices.iter().for_each(|&index| answers[index] = Some(Err(error.clone())));
            }
            None => {}
        }
    }
    answers
}
