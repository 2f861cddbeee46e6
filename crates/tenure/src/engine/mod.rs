//! What runs behind the API: one client's tasks, leases and requests. It knows stores by the trait alone.
//!
//! From the bottom up: a [`bid`] asks for a lease, a [`cohort`] has the tasks and leases of one name, the [`table`] has all cohorts under one
//! lock, and the [`client`] has the table and the store. Above it stand the tasks that use it: [`acquire`], [`seek`], [`release`], [`take_over`]
//! and the [`keeper`].

pub(crate) mod acquire;
pub(crate) mod asking;
pub(crate) mod bid;
pub(crate) mod client;
pub(crate) mod cohort;
pub(crate) mod effects;
pub(crate) mod floors;
pub(crate) mod keeper;
pub(crate) mod lease_state;
pub(crate) mod leftovers;
pub(crate) mod opening;
pub(crate) mod release;
pub(crate) mod seek;
pub(crate) mod table;
pub(crate) mod take_over;
pub(crate) mod tasks;

use std::sync::Arc;

use crate::time::clock::Clock;
use client::{Background, Client, Connect};

/// A client with its background tasks.
pub(crate) fn new_client(clock: Clock, connect: Connect) -> Arc<Client> {
    let background = Background { seek: seek::start, keep: keeper::keep, give_up: release::give_up };
    Client::new(clock, connect, background)
}
