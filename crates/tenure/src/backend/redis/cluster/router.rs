//! Knows which node has which slot, and finds out again when that has changed.
//!
//! The driver's client of a cluster is not used: it answers redirections by itself, and what it does about pushes, subscriptions and broken
//! connections is not what a lock needs. Here every master has a link of its own. A request that is sent on corrects the slot that it was for;
//! everything else is asked for in the background ([`inquiry`](super::inquiry)).

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::super::access::Access;
use super::super::client::Asker;
use super::super::connect::Connector;
use super::map::Map;
use super::node::Node;
use super::slot::{SLOTS, slot};
use crate::sync::Mutex;
use crate::types::error::Error;
use crate::types::name::Name;
use crate::url::{HostPort, RedisUrl};

/// How long a node is kept that is a master by what others were told to ask it.
const NEW: Duration = Duration::from_secs(30);

const NOBODY: u16 = u16::MAX;

pub(in super::super) struct Router {
    pub(in super::super) asker: Arc<Asker>,
    pub(super) url: RedisUrl,
    pub(super) access: Access,
    pub(super) timeout: Option<Duration>,
    pub(super) me: Weak<Router>,
    pub(super) known: Mutex<Known>,
    pub(super) is_asking: AtomicBool,
    /// Counts the times that the map was asked for.
    pub(super) asked: watch::Sender<u64>,
}

pub(super) struct Known {
    /// The index of a node, for each slot.
    slots: Vec<u16>,
    pub(super) nodes: Vec<Arc<Node>>,
    /// What it was made from.
    pub(super) map: Map,
    /// Counts the nodes.
    number: u64,
    /// When somebody was last asked.
    pub(super) last: Option<Instant>,
    /// Why nobody said who has which slots.
    pub(super) failure: Option<Error>,
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
    pub(in super::super) fn another(&self, asker: Arc<Asker>) -> Result<Arc<Self>, Error> {
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
    pub(in super::super) fn masters(&self) -> Vec<Arc<Node>> {
        let known = self.known.lock();
        let has_slots = |node: &Arc<Node>| known.map.ranges.iter().any(|range| range.master == node.host);
        known.nodes.iter().filter(|node| has_slots(node)).cloned().collect()
    }

    pub(in super::super) fn map(&self) -> Map {
        self.known.lock().map.clone()
    }

    /// How often the map was asked for.
    pub(super) fn asked(&self) -> watch::Receiver<u64> {
        self.asked.subscribe()
    }

    /// Why it is not known who has a slot.
    pub(in super::super) fn failure(&self) -> Option<Error> {
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

    /// From now on this is how it is. Masters that are none any more are left.
    pub(super) fn learn(&self, map: Map) -> Result<(), Error> {
        let mut known = self.known.lock();
        let mut slots = vec![NOBODY; usize::from(SLOTS)];
        let before = known.slots.clone();
        for range in &map.ranges {
            let index = self.node_in(&mut known, &range.master)?;
            // Whoever takes the place of a master has as many, the old one among them, also while that is away.
            let before = known.map.ranges.iter().filter(|old| old.replicas.contains(&range.master));
            let replicas = before.map(|old| old.replicas.len()).max().unwrap_or(0);
            known.nodes[usize::from(index)].saw_replicas(replicas.max(range.replicas.len()));
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
            sink.verify_all();
        }
        Ok(())
    }
}
