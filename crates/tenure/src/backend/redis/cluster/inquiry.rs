//! Asks which node has which slots: first the connected masters, then every node that was ever named.
//!
//! One inquiry at a time runs in the background for all callers, because a caller may give up before the answer. Of several answers the
//! newest configuration counts. The client believes a node that executes no commands only if no other node answers.

#[cfg(all(test, not(shuttle)))]
mod tests;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::super::connect::{Connector, TIMEOUT};
use super::super::fault;
use super::super::sentinel::shown;
use super::map::{self, SlotMap};
use super::node::Node;
use super::router::Router;
use crate::backend::together;
use crate::time::backoff::Backoff;
use crate::types::error::{Error, ErrorKind};
use crate::url::HostPort;

/// How many connected masters are asked at most.
const MOST_ASKED: usize = 5;
/// The shortest pause between two inquiries.
const NOT_BEFORE: Duration = Duration::from_millis(50);

/// The answer of one node; `None` if there was none in time.
type Asked = Option<Result<SlotMap, Error>>;

impl Router {
    /// The map may be out of date: asks for it in the background.
    pub(in super::super) fn refresh_map(&self) {
        if self.is_inquiring.swap(true, Ordering::AcqRel) {
            return;
        }
        let task = InquiryTask(self.me.clone());
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(task.run())),
            Err(_) => drop(task),
        }
    }

    /// Asks for the map, and applies it.
    pub(super) async fn fetch_map(&self) -> Result<(), Error> {
        let last = self.known.lock().last;
        if let Some(pause) = last.and_then(|last| NOT_BEFORE.checked_sub(last.elapsed())) {
            tokio::time::sleep(pause).await;
        }
        let (known_before, epoch) = {
            let known = self.known.lock();
            (known.nodes.clone(), known.map.epoch)
        };
        let answer = match self.ask_connected(&known_before, epoch).await {
            Some(map) => Ok(map),
            None => self.ask_all(epoch).await,
        };
        let answer = answer.and_then(|map| self.apply_map(map));
        let mut known = self.known.lock();
        known.last = Some(Instant::now());
        known.failure = answer.as_ref().err().cloned();
        answer
    }

    /// Asks connected masters. `None` if no answer is as new as the known map.
    async fn ask_connected(&self, nodes: &[Arc<Node>], epoch: u64) -> Option<SlotMap> {
        let connections = nodes.iter().filter_map(|node| Some((node, node.client.link.try_active()?)));
        let patience = self.patience();
        let asked = connections.take(MOST_ASKED).map(|(node, mut active)| async move {
            let asked = map::ask(&mut active.connection, &node.host);
            tokio::time::timeout(patience, asked).await.ok()?.ok()
        });
        let answers = together::most(asked.collect()).await;
        answers.into_iter().flatten().filter(|map| is_good(map, epoch)).max_by_key(|map| map.epoch)
    }

    /// Asks the nodes of the URL and every node that was ever named, on new connections. A node with an older map may have been cut off:
    /// it counts only if no node with a newer map answers in time.
    async fn ask_all(&self, epoch: u64) -> Result<SlotMap, Error> {
        let mut hosts = self.url.hosts().to_vec();
        for host in self.map().hosts() {
            if !hosts.contains(host) {
                hosts.push(host.clone());
            }
        }
        let asked = hosts.iter().map(|host| async move { (host.clone(), self.ask_one(host).await) });
        let answers = together::first_good(
            asked.collect(),
            |(_, answer)| matches!(answer, Some(Ok(map)) if is_good(map, epoch)),
        );
        let answers = answers.await;
        let best = answers.iter().filter_map(|(_, answer)| answer.as_ref()?.as_ref().ok());
        // A node of a cluster that is down still knows the slots.
        match best.filter(|map| !map.is_empty()).max_by_key(|map| (map.is_up, map.epoch)) {
            Some(map) => Ok(map.clone()),
            None => Err(unknown(&answers)),
        }
    }

    async fn ask_one(&self, host: &HostPort) -> Asked {
        let asked = async {
            let connector = Connector::of_node(&self.url, &self.access, host, self.timeout)?;
            let mut connection = connector.connect(connector.timeout, |_| ()).await?;
            map::ask(&mut connection, host).await
        };
        tokio::time::timeout(self.patience(), asked).await.ok()
    }

    /// How long a node may take to answer.
    fn patience(&self) -> Duration {
        self.timeout.unwrap_or(TIMEOUT) / 2
    }
}

/// Whether this map makes further questions unnecessary, if `epoch` is known.
fn is_good(map: &SlotMap, epoch: u64) -> bool {
    map.is_up && !map.is_empty() && map.epoch >= epoch
}

/// The inquiry in the background.
struct InquiryTask(Weak<Router>);

impl InquiryTask {
    async fn run(self) {
        let mut backoff = Backoff::new();
        while let Some(router) = self.0.upgrade() {
            let answer = router.fetch_map().await;
            router.asked.send_modify(|asked| *asked += 1);
            let Err(error) = answer else { break };
            tracing::debug!(target: "tenure", %error, "cannot find the slots of the cluster");
            // If a master is known, the next request that needs the map asks again.
            if !router.masters().is_empty() {
                break;
            }
            drop(router);
            tokio::time::sleep(backoff.pause()).await;
        }
    }
}

impl Drop for InquiryTask {
    fn drop(&mut self) {
        if let Some(router) = self.0.upgrade() {
            router.is_inquiring.store(false, Ordering::Release);
            // Another task may have begun to wait for an answer since the last one.
            router.asked.send_modify(|asked| *asked += 1);
        }
    }
}

/// No node says which node has which slots.
fn unknown(answers: &[(HostPort, Asked)]) -> Error {
    let is = |kind: ErrorKind| move |(_, answer): &(HostPort, Asked)| matches!(answer, Some(Err(error)) if error.kind() == kind);
    let (kind, fix) = if answers.iter().all(is(ErrorKind::Unsupported)) {
        (
            // The URL names the wrong kind of server.
            ErrorKind::Invalid,
            "write redis:// for one server or redis+sentinel:// for sentinels, or set `cluster-enabled yes`",
        )
    } else if answers.iter().any(is(ErrorKind::Denied)) {
        (ErrorKind::Denied, "correct the user and the password of the URL, and allow `+cluster|slots`")
    } else if answers.iter().any(|(_, answer)| matches!(answer, Some(Ok(_)))) {
        (ErrorKind::Unavailable, "name a node that is part of the cluster")
    } else if answers.iter().any(|(_, answer)| answer.is_none()) {
        (ErrorKind::Unavailable, "are they running, at these ports, with TLS or without as the URL says?")
    } else {
        (ErrorKind::Unavailable, "are they running, at these ports?")
    };
    let each = answers.iter().map(|(host, answer)| match answer {
        Some(Ok(_)) => format!("redis at {} knows of no slots", shown(host)),
        Some(Err(error)) => fault::listed(error),
        None => format!("redis at {} did not answer in time", shown(host)),
    });
    let each = each.collect::<Vec<_>>().join(", ");
    Error::new(kind, "no node of the cluster says where names are").because(each).fix(fix)
}
