//! One master of a cluster, as this session sees it.

use std::sync::{Arc, Weak};
use std::time::Instant;

use super::super::client::{Asker, Client};
use super::super::connect::Connector;
use super::super::ear::Ear;
use super::super::hearing::Hearing;
use super::super::replicas::Acknowledgement;
use super::super::sentinel::shown;
use super::channels::Channels;
use super::router::Router;
use crate::url::{HostPort, Replicas};

/// A client of it, which connects as long as it lives.
pub(in super::super) struct Node {
    /// No other node of this domain has it, also not the same one later.
    pub(super) number: u64,
    pub(super) host: HostPort,
    pub(super) born: Instant,
    pub(in super::super) client: Client,
}

impl Node {
    pub(super) fn begin(
        number: u64,
        host: HostPort,
        connector: Connector,
        asker: &Arc<Asker>,
        router: Weak<Router>,
        replicas: Option<Replicas>,
    ) -> Arc<Self> {
        let connector = Arc::new(connector);
        let acknowledgement = replicas.map(|wanted| Acknowledgement::new(wanted, Arc::clone(&connector)));
        let (theirs, ours) = (Arc::clone(&connector), Arc::clone(asker));
        let hearing = Hearing::OfEach(Channels::new(theirs, ours, router.clone(), number));
        let ear = Ear::new(Arc::clone(asker), hearing, router, acknowledgement);
        Arc::new(Node { number, host, born: Instant::now(), client: Client::begin(connector, ear) })
    }

    /// What to call it in a message.
    pub(in super::super) fn address(&self) -> String {
        shown(&self.host)
    }

    /// Counts the connections of all nodes that there ever were.
    pub(super) fn connection(&self) -> u64 {
        self.number << 32 | self.client.link.number()
    }

    /// It has so many replicas, as the cluster has it.
    pub(super) fn saw_replicas(&self, replicas: usize) {
        if let Some(acknowledgement) = &self.client.ear.acknowledgement {
            acknowledgement.saw(replicas.try_into().unwrap_or(u64::MAX));
        }
    }
}
