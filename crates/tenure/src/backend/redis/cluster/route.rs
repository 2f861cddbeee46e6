//! One request's way to the node that has its slot.
//!
//! A node that does not have it names another, and was not asked in vain: nothing was executed. The same goes for one that is about to give
//! the slot away and has some of its keys (`TRYAGAIN`), and for a cluster that is down: these are told as refusals that pass, and asked again
//! above. Only where a node can't be reached is the map waited for, because then another may have its slots by now.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use redis::ServerError;

use super::super::client::Failure;
use super::super::fault;
use super::super::script::Call;
use super::super::sentinel::shown;
use super::map::{Redirect, redirect};
use super::node::Node;
use super::router::Router;
use super::slot::slot;
use crate::backend::Answer;
use crate::error::Error;

/// How often a request is sent on.
const MOST_HOPS: u32 = 16;
/// How long it is waited for somebody else to have the slots of a node that is out of reach.
const LONGEST_SEARCH: Duration = Duration::from_millis(200);

impl Router {
    /// Executes one call, wherever its slot is. The node is the one that executed it.
    pub(super) async fn execute(&self, mut call: Call) -> Result<(Answer, Arc<Node>), Error> {
        let slot = slot(call.lock());
        let mut node = self.wait_for_owner(slot).await?;
        let mut offset = node.client.offset();
        for _ in 0..MOST_HOPS {
            let next = match self.reach(slot, &node, call.is_asking).await {
                Ok(()) => match node.client.execute(&call).await {
                    Ok(mut answer) => {
                        if call.is_asking {
                            // By the clock of a node that does not have the slot yet.
                            answer.server = None;
                        }
                        return Ok((answer, node));
                    }
                    Err(Failure::Error(error)) => {
                        self.look_again();
                        return Err(error);
                    }
                    Err(Failure::Refused(refusal)) => self.follow(slot, &node, &refusal, &mut call)?,
                },
                Err(error) => {
                    call.is_asking = false;
                    self.successor(slot, &node, error).await?
                }
            };
            node = next;
            // It may not have been connected to before.
            if self.reach(slot, &node, call.is_asking).await.is_ok()
                && let (Some(before), Some(now)) = (offset, node.client.offset())
            {
                call.for_clock_ahead(now - before);
                offset = Some(now);
            }
        }
        Err(Error::not_yet(format!(
            "nodes of the cluster sent a request for slot {slot} on {MOST_HOPS} times; try again when they agree who has it"
        )))
    }

    /// Who has the slot. It need not be known yet, or nobody may have it.
    async fn wait_for_owner(&self, slot: u16) -> Result<Arc<Node>, Error> {
        if let Some(node) = self.owner(slot) {
            return Ok(node);
        }
        let mut asked = self.asked();
        self.look_again();
        match self.failure() {
            // It is known that nobody can say it, and asked again all the time.
            Some(_) => drop(tokio::time::timeout(LONGEST_SEARCH, asked.changed()).await),
            None => drop(asked.changed().await),
        }
        self.owner(slot).ok_or_else(|| {
            self.failure().unwrap_or_else(|| {
                Error::not_yet(format!(
                    "no node of the cluster has slot {slot}; give it to one: `redis-cli --cluster fix`"
                ))
            })
        })
    }

    /// Returns when there is a connection to the node. One that is being made is not waited for any longer when another node has the slot.
    async fn reach(&self, slot: u16, node: &Arc<Node>, is_asking: bool) -> Result<(), Error> {
        if node.client.link.standing().is_some() {
            return Ok(());
        }
        let (mut line, mut asked) = (pin!(node.client.link.line()), self.asked());
        let mut left = pin!(async {
            while is_asking || self.owner(slot).is_some_and(|owner| Arc::ptr_eq(&owner, node)) {
                drop(asked.changed().await);
            }
        });
        let reached = poll_fn(|cx| match line.as_mut().poll(cx) {
            Poll::Ready(line) => Poll::Ready(line.map(drop)),
            Poll::Pending => left.as_mut().poll(cx).map(|()| {
                Err(Error::not_yet(format!(
                    "{} gave its slots away while it was connected to; try again",
                    shown(&node.host)
                )))
            }),
        });
        reached.await
    }

    /// What to do about a refusal: whom to ask next, unless that is an error.
    fn follow(
        &self,
        slot: u16,
        node: &Arc<Node>,
        refusal: &ServerError,
        call: &mut Call,
    ) -> Result<Arc<Node>, Error> {
        match redirect(refusal, &node.host) {
            Some(Redirect::Moved(host)) => {
                call.is_asking = false;
                let next = self.moved(slot, &host)?;
                self.look_again();
                Ok(next)
            }
            Some(Redirect::Ask(host)) => {
                call.is_asking = true;
                self.node(&host)
            }
            None => Err(self.refused(slot, node, refusal)),
        }
    }

    fn refused(&self, slot: u16, node: &Arc<Node>, refusal: &ServerError) -> Error {
        match refusal.code() {
            "TRYAGAIN" => Error::not_yet(format!(
                "slot {slot} is being moved from one node to another, and has its keys on both; try again when it has arrived, or \
                 end a move that broke off: `redis-cli --cluster fix {}`",
                shown(&node.host)
            )),
            "CLUSTERDOWN" => {
                self.look_again();
                let said = refusal.details().unwrap_or_default();
                Error::not_yet(format!(
                    "cluster is down ({said}); bring its masters back, or see `redis-cli --cluster check {}`",
                    shown(&node.host)
                ))
            }
            "READONLY" => {
                node.client.link.drop_connection();
                self.look_again();
                node.client.link.connector.demoted()
            }
            _ => fault::refused(refusal),
        }
    }

    /// Who has the slot of a node that can't be reached, if that is another one by now.
    async fn successor(&self, slot: u16, node: &Arc<Node>, error: Error) -> Result<Arc<Node>, Error> {
        let another = || self.owner(slot).filter(|owner| !Arc::ptr_eq(owner, node));
        if let Some(another) = another() {
            return Ok(another);
        }
        let mut asked = self.asked();
        self.look_again();
        drop(tokio::time::timeout(LONGEST_SEARCH, asked.changed()).await);
        another().ok_or(error)
    }
}
