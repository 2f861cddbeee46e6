//! Knows which node has which slot, and finds out again after changes.
//!
//! The driver's cluster client is not used: it follows redirections by itself, and its handling of pushes, subscriptions and broken
//! connections does not fit a lock. Here every master has its own link. A redirected request corrects its own slot; an inquiry in the
//! background ([`inquiry`](super::inquiry)) corrects the rest.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::super::access::Access;
use super::super::client::SessionContext;
use super::super::connect::Connector;
use super::map::SlotMap;
use super::node::Node;
use super::slot::{SLOTS, slot};
use crate::sync::Mutex;
use crate::types::error::Error;
use crate::types::name::Name;
use crate::url::{HostPort, RedisUrl};

/// How long to keep a node that is known only by redirections.
const NEW: Duration = Duration::from_secs(30);

const NO_NODE: u16 = u16::MAX;

pub(in super::super) struct Router {
    pub(in super::super) context: Arc<SessionContext>,
    pub(super) url: RedisUrl,
    pub(super) access: Access,
    pub(super) timeout: Option<Duration>,
    pub(super) me: Weak<Router>,
    pub(super) known: Mutex<RouterState>,
    pub(super) is_inquiring: AtomicBool,
    /// Counts the inquiries.
    pub(super) asked: watch::Sender<u64>,
}

pub(super) struct RouterState {
    /// The index of the node of each slot.
    slots: Vec<u16>,
    pub(super) nodes: Vec<Arc<Node>>,
    /// The map that the slots come from.
    pub(super) map: SlotMap,
    /// Counts the nodes.
    number: u64,
    /// When the last inquiry ended.
    pub(super) last: Option<Instant>,
    /// Why the last inquiry failed.
    pub(super) failure: Option<Error>,
    /// A redirection has moved a slot since the last map.
    has_moved: bool,
}

impl Router {
    pub(super) fn new(
        url: &RedisUrl,
        timeout: Option<Duration>,
        context: Arc<SessionContext>,
    ) -> Result<Arc<Self>, Error> {
        let access = Access::new(url, url.credentials(), url.db())?;
        Ok(Arc::new_cyclic(|me| Router {
            context,
            url: url.clone(),
            access,
            timeout,
            me: me.clone(),
            known: Mutex::new(RouterState {
                slots: vec![NO_NODE; usize::from(SLOTS)],
                nodes: Vec::new(),
                map: SlotMap::default(),
                number: 0,
                last: None,
                failure: None,
                has_moved: false,
            }),
            is_inquiring: AtomicBool::new(false),
            asked: watch::Sender::new(0),
        }))
    }

    /// Another client of the same cluster.
    pub(in super::super) fn another(&self, context: Arc<SessionContext>) -> Result<Arc<Self>, Error> {
        Router::new(&self.url, self.timeout, context)
    }

    pub(super) fn slot(&self, name: &Name) -> u16 {
        slot(&self.context.keys.lock(name))
    }

    /// The node that has the slot, if known.
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

    /// The nodes that have slots.
    pub(in super::super) fn masters(&self) -> Vec<Arc<Node>> {
        let known = self.known.lock();
        let has_slots = |node: &Arc<Node>| known.map.ranges.iter().any(|range| range.master == node.host);
        known.nodes.iter().filter(|node| has_slots(node)).cloned().collect()
    }

    pub(in super::super) fn map(&self) -> SlotMap {
        self.known.lock().map.clone()
    }

    /// Changes with every inquiry.
    pub(super) fn asked(&self) -> watch::Receiver<u64> {
        self.asked.subscribe()
    }

    /// Why the last inquiry failed.
    pub(in super::super) fn failure(&self) -> Option<Error> {
        self.known.lock().failure.clone()
    }

    /// The node at this address; creates it if it is new.
    pub(super) fn node(&self, host: &HostPort) -> Result<Arc<Node>, Error> {
        let mut known = self.known.lock();
        self.node_in(&mut known, host).map(|index| Arc::clone(&known.nodes[usize::from(index)]))
    }

    fn node_in(&self, known: &mut RouterState, host: &HostPort) -> Result<u16, Error> {
        let index = match known.nodes.iter().position(|node| node.host == *host) {
            Some(index) => index,
            None => {
                let connector = Connector::of_node(&self.url, &self.access, host, self.timeout)?;
                known.number += 1;
                let (router, replicas) = (self.me.clone(), self.url.replicas());
                let node =
                    Node::begin(known.number, host.clone(), connector, &self.context, router, replicas);
                known.nodes.push(node);
                known.nodes.len() - 1
            }
        };
        Ok(u16::try_from(index).ok().filter(|index| *index != NO_NODE).expect("fewer nodes than slots"))
    }

    /// A node redirected a request: this host has the slot.
    pub(super) fn moved(&self, slot: u16, host: &HostPort) -> Result<Arc<Node>, Error> {
        let mut known = self.known.lock();
        let index = self.node_in(&mut known, host)?;
        let before = std::mem::replace(&mut known.slots[usize::from(slot)], index);
        known.has_moved |= before != index && before != NO_NODE;
        Ok(Arc::clone(&known.nodes[usize::from(index)]))
    }

    /// Replaces the map. Drops former masters.
    pub(super) fn apply_map(&self, map: SlotMap) -> Result<(), Error> {
        let mut known = self.known.lock();
        let mut slots = vec![NO_NODE; usize::from(SLOTS)];
        let before = known.slots.clone();
        for range in &map.ranges {
            let index = self.node_in(&mut known, &range.master)?;
            // A promoted replica has as many replicas as its master had, including the old master, even while that is away.
            let before = known.map.ranges.iter().filter(|old| old.replicas.contains(&range.master));
            let replicas = before.map(|old| old.replicas.len()).max().unwrap_or(0);
            known.nodes[usize::from(index)].saw_replicas(replicas.max(range.replicas.len()));
            let last = usize::from(range.last.min(SLOTS - 1));
            slots[usize::from(range.first).min(last)..=last].fill(index);
        }
        let mut both = before.iter().zip(&slots);
        let has_moved = both.any(|(before, now)| before != now && *before != NO_NODE)
            | std::mem::take(&mut known.has_moved);
        let (old, mut nodes) = (std::mem::take(&mut known.nodes), Vec::new());
        let mut new_index = vec![NO_NODE; old.len()];
        for (index, node) in old.iter().enumerate() {
            let is_master = |map: &SlotMap| map.ranges.iter().any(|range| range.master == node.host);
            // A node without slots may be about to get some.
            if is_master(&map) || !is_master(&known.map) && node.created.elapsed() < NEW {
                new_index[index] = u16::try_from(nodes.len()).unwrap_or(NO_NODE);
                nodes.push(Arc::clone(node));
            }
        }
        for index in slots.iter_mut().filter(|index| **index != NO_NODE) {
            *index = new_index[usize::from(*index)];
        }
        (known.slots, known.nodes, known.map) = (slots, nodes, map);
        drop(known);
        // Former masters are dropped after the lock is released.
        drop(old);
        if has_moved && let Some(sink) = self.context.sink.upgrade() {
            // The former nodes do not report changes to the keys of these slots any more.
            sink.verify_all();
        }
        Ok(())
    }
}
