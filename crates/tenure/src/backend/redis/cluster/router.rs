//! Knows which node has which slot, and finds out again when that has changed.
//!
//! The driver's client of a cluster is not used: it answers redirections by itself, and what it does about pushes, subscriptions and broken
//! connections is not what a lock needs. Here every master has a link of its own. A request that is sent on corrects the slot that it was for;
//! everything else is asked for in the background, one question at a time: first the masters that are connected, then everybody who was
//! ever named. What a node says counts less the older its configuration is, and one that would not execute commands is not believed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::watch;

use super::super::access::Access;
use super::super::client::Asker;
use super::super::connect::Connector;
use super::super::link::Pace;
use super::super::sentinel::shown;
use super::map::{self, Map};
use super::node::Node;
use super::slot::{SLOTS, slot};
use super::together;
use crate::error::{Error, ErrorKind};
use crate::name::Name;
use crate::sync::Mutex;
use crate::url::{HostPort, RedisUrl};

/// How many connected masters are asked for the map.
const MOST_ASKED: usize = 5;
/// How soon the map is asked for again at the earliest.
const NOT_BEFORE: Duration = Duration::from_millis(50);

/// How long a node is kept that is a master by what others were told to ask it.
const NEW: Duration = Duration::from_secs(30);

const NOBODY: u16 = u16::MAX;

pub(in super::super) struct Router {
    pub(super) asker: Arc<Asker>,
    url: RedisUrl,
    access: Access,
    timeout: Option<Duration>,
    me: Weak<Router>,
    known: Mutex<Known>,
    is_asking: AtomicBool,
    /// Counts the times that the map was asked for.
    asked: watch::Sender<u64>,
}

struct Known {
    /// The index of a node, for each slot.
    slots: Vec<u16>,
    nodes: Vec<Arc<Node>>,
    /// What it was made from.
    map: Map,
    /// Counts the nodes.
    number: u64,
    /// When somebody was last asked.
    last: Option<Instant>,
    /// Why nobody said who has which slots.
    failure: Option<Error>,
    /// A slot was found somewhere else than it was.
    has_moved: bool,
}

impl Router {
    pub(super) fn new(
        url: &RedisUrl,
        timeout: Option<Duration>,
        asker: Arc<Asker>,
    ) -> Result<Arc<Self>, Error> {
        let access = Access::new(url, url.credentials(), url.db())?;
        Ok(Arc::new_cyclic(|me| Router {
            asker,
            url: url.clone(),
            access,
            timeout,
            me: me.clone(),
            known: Mutex::new(Known {
                slots: vec![NOBODY; usize::from(SLOTS)],
                nodes: Vec::new(),
                map: Map::default(),
                number: 0,
                last: None,
                failure: None,
                has_moved: false,
            }),
            is_asking: AtomicBool::new(false),
            asked: watch::Sender::new(0),
        }))
    }

    /// Another client of the same cluster.
    pub(super) fn another(&self, asker: Arc<Asker>) -> Result<Arc<Self>, Error> {
        Router::new(&self.url, self.timeout, asker)
    }

    pub(super) fn slot(&self, name: &Name) -> u16 {
        slot(&self.asker.keys.lock(name))
    }

    /// Who has the slot, as far as is known.
    pub(super) fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        let known = self.known.lock();
        known.nodes.get(usize::from(known.slots[usize::from(slot)])).cloned()
    }

    pub(super) fn owner_of(&self, name: &Name) -> Option<Arc<Node>> {
        self.owner(self.slot(name))
    }

    pub(super) fn number_of(&self, name: &Name) -> Option<u64> {
        self.owner_of(name).map(|node| node.number)
    }

    /// Those that have slots.
    pub(super) fn masters(&self) -> Vec<Arc<Node>> {
        let known = self.known.lock();
        let has_slots = |node: &Arc<Node>| known.map.ranges.iter().any(|range| range.master == node.host);
        known.nodes.iter().filter(|node| has_slots(node)).cloned().collect()
    }

    pub(super) fn map(&self) -> Map {
        self.known.lock().map.clone()
    }

    /// How often the map was asked for.
    pub(super) fn asked(&self) -> watch::Receiver<u64> {
        self.asked.subscribe()
    }

    /// Why it is not known who has a slot.
    pub(super) fn failure(&self) -> Option<Error> {
        self.known.lock().failure.clone()
    }

    /// The node at this address, which need not have been known.
    pub(super) fn node(&self, host: &HostPort) -> Result<Arc<Node>, Error> {
        let mut known = self.known.lock();
        self.node_in(&mut known, host).map(|index| Arc::clone(&known.nodes[usize::from(index)]))
    }

    fn node_in(&self, known: &mut Known, host: &HostPort) -> Result<u16, Error> {
        let index = match known.nodes.iter().position(|node| node.host == *host) {
            Some(index) => index,
            None => {
                let connector = Connector::of_node(&self.url, &self.access, host, self.timeout)?;
                known.number += 1;
                let (router, replicas) = (self.me.clone(), self.url.replicas());
                let node = Node::begin(known.number, host.clone(), connector, &self.asker, router, replicas);
                known.nodes.push(node);
                known.nodes.len() - 1
            }
        };
        Ok(u16::try_from(index).ok().filter(|index| *index != NOBODY).expect("fewer nodes than slots"))
    }

    /// A node says that this one has the slot.
    pub(super) fn moved(&self, slot: u16, host: &HostPort) -> Result<Arc<Node>, Error> {
        let mut known = self.known.lock();
        let index = self.node_in(&mut known, host)?;
        let before = std::mem::replace(&mut known.slots[usize::from(slot)], index);
        known.has_moved |= before != index && before != NOBODY;
        Ok(Arc::clone(&known.nodes[usize::from(index)]))
    }

    /// Something is not as it was: asks for the map, in the background.
    pub(in super::super) fn look_again(&self) {
        if self.is_asking.swap(true, Ordering::AcqRel) {
            return;
        }
        let asking = Asking(self.me.clone());
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(asking.run())),
            Err(_) => drop(asking),
        }
    }

    /// Asks for the map.
    pub(super) async fn ask(&self) -> Result<(), Error> {
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
            None => self.ask_everybody().await,
        };
        let answer = answer.and_then(|map| self.learn(map));
        let mut known = self.known.lock();
        known.last = Some(Instant::now());
        known.failure = answer.as_ref().err().cloned();
        answer
    }

    /// Those to whom a connection stands; none of them may know better than what is known.
    async fn ask_connected(&self, nodes: &[Arc<Node>], epoch: u64) -> Option<Map> {
        let lines = nodes.iter().filter_map(|node| Some((node, node.client.link.standing()?)));
        let patience = self.patience();
        let asked = lines.take(MOST_ASKED).map(|(node, mut line)| async move {
            let asked = map::ask(&mut line.connection, &node.host);
            tokio::time::timeout(patience, asked).await.ok()?.ok()
        });
        let answers = together::most(asked.collect()).await;
        let good = |map: &Map| map.is_up && !map.is_empty() && map.epoch >= epoch;
        answers.into_iter().flatten().filter(good).max_by_key(|map| map.epoch)
    }

    /// The seeds, and everybody who was ever named, on new connections.
    async fn ask_everybody(&self) -> Result<Map, Error> {
        let mut hosts = self.url.hosts().to_vec();
        for host in self.map().hosts() {
            if !hosts.contains(host) {
                hosts.push(host.clone());
            }
        }
        let asked = hosts.iter().map(|host| async move { (host.clone(), self.ask_one(host).await) });
        let answers = together::first_good(asked.collect(), |(_, answer)| {
            answer.as_ref().is_ok_and(|map: &Map| map.is_up && !map.is_empty())
        });
        let answers = answers.await;
        let best = answers.iter().filter_map(|(_, answer)| answer.as_ref().ok());
        // A cluster that is down still knows who has which slots.
        match best.filter(|map| !map.is_empty()).max_by_key(|map| (map.is_up, map.epoch)) {
            Some(map) => Ok(map.clone()),
            None => Err(unknown(answers)),
        }
    }

    async fn ask_one(&self, host: &HostPort) -> Result<Map, Error> {
        let connector = Connector::of_node(&self.url, &self.access, host, self.timeout)?;
        let asked = async {
            let mut connection = connector.connect(|_| ()).await?;
            map::ask(&mut connection, host).await
        };
        let silent = |_| Error::unavailable(format!("did not answer within {:?}", self.patience()));
        tokio::time::timeout(self.patience(), asked).await.map_err(silent)?
    }

    /// How long one may take to say who has which slots.
    fn patience(&self) -> Duration {
        self.timeout.unwrap_or(super::super::connect::TIMEOUT) / 2
    }

    /// From now on this is how it is. Masters that are none any more are left.
    fn learn(&self, map: Map) -> Result<(), Error> {
        let mut known = self.known.lock();
        let mut slots = vec![NOBODY; usize::from(SLOTS)];
        let before = known.slots.clone();
        for range in &map.ranges {
            let index = self.node_in(&mut known, &range.master)?;
            known.nodes[usize::from(index)].saw_replicas(range.replicas.len());
            let last = usize::from(range.last.min(SLOTS - 1));
            slots[usize::from(range.first).min(last)..=last].fill(index);
        }
        let mut both = before.iter().zip(&slots);
        let has_moved = both.any(|(before, now)| before != now && *before != NOBODY)
            | std::mem::take(&mut known.has_moved);
        let (old, mut nodes) = (std::mem::take(&mut known.nodes), Vec::new());
        let mut places = vec![NOBODY; old.len()];
        for (index, node) in old.iter().enumerate() {
            let is_master = |map: &Map| map.ranges.iter().any(|range| range.master == node.host);
            // One that nobody has given slots yet may be about to get some.
            if is_master(&map) || !is_master(&known.map) && node.born.elapsed() < NEW {
                places[index] = u16::try_from(nodes.len()).unwrap_or(NOBODY);
                nodes.push(Arc::clone(node));
            }
        }
        for index in slots.iter_mut().filter(|index| **index != NOBODY) {
            *index = places[usize::from(*index)];
        }
        (known.slots, known.nodes, known.map) = (slots, nodes, map);
        drop(known);
        // What is not a master any more is left only now, without the lock.
        drop(old);
        if has_moved && let Some(sink) = self.asker.sink.upgrade() {
            // Where the slots were, nobody tells any more what happens to their keys.
            sink.doubt_all();
        }
        Ok(())
    }
}

/// One question for the map, in the background.
struct Asking(Weak<Router>);

impl Asking {
    async fn run(self) {
        let mut pace = Pace::new();
        while let Some(router) = self.0.upgrade() {
            let answer = router.ask().await;
            router.asked.send_modify(|asked| *asked += 1);
            let Err(error) = answer else { break };
            tracing::debug!(target: "tenure", %error, "it is not known who has which slots");
            // Whoever knows of a node asks again when it needs to.
            if !router.masters().is_empty() {
                break;
            }
            drop(router);
            pace.rest().await;
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(router) = self.0.upgrade() {
            router.is_asking.store(false, Ordering::Release);
            // Somebody may have begun to wait for an answer since the last one.
            router.asked.send_modify(|asked| *asked += 1);
        }
    }
}

/// Nobody says who has which slots.
fn unknown(answers: Vec<(HostPort, Result<Map, Error>)>) -> Error {
    let is = |kind: ErrorKind| move |(_, answer): &(HostPort, Result<Map, Error>)| matches!(answer, Err(error) if error.kind() == kind);
    let (kind, fix) = if answers.iter().all(is(ErrorKind::Unsupported)) {
        (ErrorKind::Unsupported, "write redis:// for one server, or set `cluster-enabled yes`")
    } else if answers.iter().any(is(ErrorKind::Denied)) {
        (ErrorKind::Denied, "correct the user and the password of the URL, and allow `+cluster|slots`")
    } else if answers.iter().any(|(_, answer)| answer.is_ok()) {
        (ErrorKind::Unavailable, "name a node that is part of the cluster")
    } else {
        (ErrorKind::Unavailable, "are they running, at these ports?")
    };
    let each = answers.iter().map(|(host, answer)| match answer {
        Ok(_) => format!("{} knows of no slots", shown(host)),
        Err(error) => {
            let said = error.to_string();
            let said = said.split("; ").next().unwrap_or_default();
            // What others say of a server begins with its address.
            let said = said.strip_prefix(&format!("redis at {} ", shown(host))).unwrap_or(said);
            format!("{} {said}", shown(host))
        }
    });
    let each = each.collect::<Vec<_>>().join(", ");
    Error::new(kind, format!("no node of the cluster says where names are: {each}; {fix}"))
}
