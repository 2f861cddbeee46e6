//! How a client listens for grants: on one channel for all names, or on a cluster, where a channel belongs to a slot, on one for each
//! name.

use std::sync::Arc;
use std::time::Duration;

use super::cluster::channels::Channels;
use super::subscription::Subscription;
use crate::types::error::Error;
use crate::types::name::Name;

pub(super) enum GrantListener {
    OneChannel(Arc<Subscription>),
    ChannelPerName(Arc<Channels>),
}

impl GrantListener {
    /// Whether the client is subscribed to the grants of this name.
    pub(super) fn is_listening(&self, name: &Name) -> bool {
        match self {
            GrantListener::OneChannel(subscription) => subscription.is_subscribed(),
            GrantListener::ChannelPerName(channels) => channels.is_subscribed(name),
        }
    }

    /// A waiter for this name sends its next request after this pause.
    pub(super) fn want(&self, name: &Name, pause: Duration) {
        match self {
            GrantListener::OneChannel(subscription) => subscription.want(pause),
            GrantListener::ChannelPerName(channels) => channels.want(name, pause),
        }
    }

    /// Why the client cannot subscribe, if the server refuses.
    pub(super) fn refusal(&self) -> Option<Error> {
        match self {
            GrantListener::OneChannel(subscription) => subscription.refusal(),
            GrantListener::ChannelPerName(channels) => channels.refusal(),
        }
    }

    /// The connection for commands was replaced.
    pub(super) fn reconnected(&self, is_another_server: bool) {
        match self {
            GrantListener::OneChannel(subscription) => subscription.reconnected(is_another_server),
            GrantListener::ChannelPerName(channels) => channels.reconnected(is_another_server),
        }
    }
}
