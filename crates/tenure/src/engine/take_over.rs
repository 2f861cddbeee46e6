//! Taking a lease past the queue: by force, or with a ticket.
//!
//! Such a lease stands beside the cohort: it does not pass from task to task. Waiting tasks of this process stay in the store's queue, as
//! those of other processes do.

use std::sync::Arc;

use crate::core::claim::Claim;
use crate::core::deadlines::Deadlines;
use crate::core::record::{Op, Reply};
use crate::engine::asking::{ask_store, unexpected};
use crate::engine::bid::Bid;
use crate::engine::client::Client;
use crate::engine::lease_state::Turn;
use crate::engine::release;
use crate::types::error::Error;
use crate::types::loss::{Loss, LossKind};
use crate::types::name::Name;

/// Asks for a lease with `op`, which gets the bid and the moment after which it is to be refused.
pub(crate) async fn take(
    client: &Arc<Client>,
    claim: &Arc<Claim>,
    op: impl Fn(&Bid, u64) -> Op,
) -> Result<Turn, Error> {
    client.check_process()?;
    client.backend().await?;
    let (terms, name) = (claim.terms, claim.name.clone());
    client.see_runtime(&terms)?;
    let bid = {
        let table = client.table.lock();
        table.check_open()?;
        table.bidder.bid(&name, claim)
    };
    let mut taking = TakingOver { client, name: &name, bid, is_done: false };
    let give_up = client.clock.now() + terms.timeout();
    let (reply, sent) = ask_store(client, &name, &mut taking.bid, give_up, op).await?;
    match reply {
        Reply::Granted { fence } => {
            let (bid, lease) = (taking.bid.clone(), Deadlines::granted(&terms, sent));
            let turn = client.change(|table, effects| {
                table.check_open()?;
                Ok(table.add_lease(&name, bid, lease, fence, None, effects))
            });
            let turn = turn.inspect_err(|_: &Error| taking.undo())?;
            taking.is_done = true;
            Ok(turn)
        }
        // Only a ticket can be refused.
        Reply::NotHeld { holder } => {
            let kind = LossKind::from_holder(holder.as_ref());
            Err(Error::useless_ticket(Loss::new(name.clone(), kind)))
        }
        reply => Err(unexpected(&reply)),
    }
}

/// Gives the lease back if the caller is gone before it gets it.
struct TakingOver<'a> {
    client: &'a Arc<Client>,
    name: &'a Name,
    bid: Bid,
    is_done: bool,
}

impl TakingOver<'_> {
    fn undo(&self) {
        let Bid { token, may_execute_until, claim, .. } = &self.bid;
        release::leave(self.client, self.name.clone(), token.clone(), *may_execute_until, claim.terms.ttl);
    }
}

impl Drop for TakingOver<'_> {
    fn drop(&mut self) {
        if !self.is_done && self.bid.may_execute_until.is_some() && self.client.is_here() {
            self.undo();
        }
    }
}
