//! How grants are heard: on one channel for all names, or, where a channel belongs to a slot, on one for each name.

use std::sync::Arc;
use std::time::Duration;

use super::cluster::channels::Channels;
use super::subscription::Subscription;
use crate::types::error::Error;
use crate::types::name::Name;

/// One of the two.
pub(super) enum Hearing {
    OfAll(Arc<Subscription>),
    OfEach(Arc<Channels>),
}

impl Hearing {
    /// Whether grants of this name are heard.
    pub(super) fn stands(&self, name: &Name) -> bool {
        match self {
            Hearing::OfAll(subscription) => subscription.stands(),
            Hearing::OfEach(channels) => channels.stands(name),
        }
    }

    /// Somebody waits for this name, and asks again after this pause.
    pub(super) fn want(&self, name: &Name, pause: Duration) {
        match self {
            Hearing::OfAll(subscription) => subscription.want(pause),
            Hearing::OfEach(channels) => channels.want(name, pause),
        }
    }

    /// Why grants are not heard, when the server refuses.
    pub(super) fn refusal(&self) -> Option<Error> {
        match self {
            Hearing::OfAll(subscription) => subscription.refusal(),
            Hearing::OfEach(channels) => channels.refusal(),
        }
    }

    /// There is a new connection for commands.
    pub(super) fn reconnected(&self, is_another_server: bool) {
        match self {
            Hearing::OfAll(subscription) => subscription.reconnected(is_another_server),
            Hearing::OfEach(channels) => channels.reconnected(is_another_server),
        }
    }
}
