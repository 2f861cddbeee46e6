//! One master of a cluster, as this session uses it.

use std::sync::{Arc, Weak};
use std::time::Instant;

use super::super::client::{ServerClient, SessionContext};
use super::super::connect::Connector;
use super::super::grant_listener::GrantListener;
use super::super::listener::ServerListener;
use super::super::replicas::RequiredReplicas;
use super::super::sentinel::shown;
use super::channels::Channels;
use super::router::Router;
use crate::url::{HostPort, Replicas};

/// A client of the node, which reconnects as long as it lives.
pub(in super::super) struct Node {
    /// Unique: even the same node gets another number later.
    pub(super) number: u64,
    pub(super) host: HostPort,
    pub(super) created: Instant,
    pub(in super::super) client: ServerClient,
}

impl Node {
    pub(super) fn begin(
        number: u64,
        host: HostPort,
        connector: Connector,
        context: &Arc<SessionContext>,
        router: Weak<Router>,
        replicas: Option<Replicas>,
    ) -> Arc<Self> {
        let connector = Arc::new(connector);
        let required = replicas.map(|wanted| RequiredReplicas::new(wanted, Arc::clone(&connector)));
        let (theirs, ours) = (Arc::clone(&connector), Arc::clone(context));
        let grants = GrantListener::ChannelPerName(Channels::new(theirs, ours, router.clone(), number));
        let listener = ServerListener::new(Arc::clone(context), grants, router, required);
        Arc::new(Node {
            number,
            host,
            created: Instant::now(),
            client: ServerClient::begin(connector, listener),
        })
    }

    /// Its address, for messages.
    pub(in super::super) fn address(&self) -> String {
        shown(&self.host)
    }

    /// Unique among the connections of all nodes that there ever were.
    pub(super) fn connection(&self) -> u64 {
        self.number << 32 | self.client.link.number()
    }

    /// Notes how many replicas it has, by the cluster's map.
    pub(super) fn saw_replicas(&self, replicas: usize) {
        if let Some(required) = &self.client.listener.required {
            required.saw(replicas.try_into().unwrap_or(u64::MAX));
        }
    }
}
