//! How a request reaches the node that has its slot.
//!
//! A node without the slot names another node, and has executed nothing. A node that is about to give the slot away and has some of its
//! keys answers `TRYAGAIN`; the client repeats the request for a while. A cluster that is down refuses. The caller sees these as refusals
//! that pass, and repeats them. Only if a node cannot be reached does the client wait for a new map, because another node may have its
//! slots by now.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use redis::ServerError;
use tokio::runtime::Handle;

use super::super::client::Failure;
use super::super::fault;
use super::super::script::Call;
use super::map::{Redirect, redirect};
use super::node::Node;
use super::router::Router;
use super::slot::slot;
use crate::backend::Answer;
use crate::time::backoff::jittered;
use crate::types::error::Error;

/// How many redirections a request follows.
const MOST_HOPS: u32 = 16;
/// How long to wait for another node to have the slots of an unreachable one.
const LONGEST_SEARCH: Duration = Duration::from_millis(200);

/// The pause before a request is repeated whose slot has keys on both nodes: a move takes milliseconds, unless the slot is large.
const ON_BOTH_SIDES: Duration = Duration::from_millis(10);
/// How long to repeat it here.
const LONGEST_MOVE: Duration = Duration::from_millis(200);
/// The pause before a lease is verified again whose slot is moving.
const ON_ITS_WAY: Duration = Duration::from_millis(200);

impl Router {
    /// Executes one call on the node that has its slot. Returns that node with the answer.
    pub(super) async fn execute(&self, mut call: Call) -> Result<(Answer, Arc<Node>), Error> {
        let (slot, start) = (slot(call.lock()), Instant::now());
        let mut node = self.wait_for_owner(slot).await?;
        let (mut offset, mut hops) = (node.client.offset(), 0);
        // At most half of the caller's time: the caller shall get the reason, and not time out.
        let left = call.not_after().zip(node.client.server_now()).map(|(end, now)| end.saturating_sub(now));
        let patience = left.map_or(LONGEST_MOVE, |left| LONGEST_MOVE.min(Duration::from_micros(left / 2)));
        while hops < MOST_HOPS {
            if let Err(error) = self.reach(slot, &node, call.is_asking).await {
                // The node that redirected the request would do so again.
                if call.is_asking {
                    self.refresh_map();
                    return Err(error);
                }
                node = self.successor(slot, &node, error).await?;
                hops += 1;
                continue;
            }
            // The offset of its clock is known only after it is connected.
            if let (Some(before), Some(now)) = (offset, node.client.offset()) {
                call.for_clock_ahead(now - before);
                offset = Some(now);
            }
            let refusal = match node.client.execute(&call).await {
                Ok(mut answer) => {
                    if call.is_asking {
                        // The time is that of a node that does not have the slot yet.
                        answer.server = None;
                        self.verify_later(&call);
                    }
                    return Ok((answer, node));
                }
                Err(Failure::Error(error)) => {
                    self.refresh_map();
                    return Err(error);
                }
                Err(Failure::Refused(refusal)) => refusal,
            };
            if refusal.code() == "TRYAGAIN" && start.elapsed() < patience {
                tokio::time::sleep(jittered(ON_BOTH_SIDES)).await;
                call.is_asking = false;
                node = self.wait_for_owner(slot).await?;
                continue;
            }
            node = self.follow(slot, &node, &refusal, &mut call)?;
            hops += 1;
        }
        Err(Error::not_yet(format!(
            "nodes of the cluster redirected a request for slot {slot} {MOST_HOPS} times"
        ))
        .fix("try again when they agree which node has it"))
    }

    /// The server does not report changes to a key that was asked for before its slot has arrived. So verify the lease again soon.
    fn verify_later(&self, call: &Call) {
        let (name, sink) = (self.context.keys.name(call.lock()), self.context.sink.clone());
        let (Some(name), true, Ok(runtime)) = (name, call.is_renewal(), Handle::try_current()) else {
            return;
        };
        runtime.spawn(async move {
            tokio::time::sleep(ON_ITS_WAY).await;
            sink.upgrade().into_iter().for_each(|sink| sink.verify(&name));
        });
    }

    /// The node that has the slot. Waits for the map if the node is unknown.
    async fn wait_for_owner(&self, slot: u16) -> Result<Arc<Node>, Error> {
        if let Some(node) = self.owner(slot) {
            return Ok(node);
        }
        let mut asked = self.asked();
        self.refresh_map();
        match self.failure() {
            // No node could tell the slots, and an inquiry repeats the question.
            Some(_) => drop(tokio::time::timeout(LONGEST_SEARCH, asked.changed()).await),
            None => drop(asked.changed().await),
        }
        self.owner(slot).ok_or_else(|| {
            self.failure().unwrap_or_else(|| {
                Error::not_yet(format!("no node of the cluster has slot {slot}"))
                    .fix("give it to one: `redis-cli --cluster fix`")
            })
        })
    }

    /// Returns when the node is connected. Stops waiting if another node has the slot.
    async fn reach(&self, slot: u16, node: &Arc<Node>, is_asking: bool) -> Result<(), Error> {
        if node.client.link.try_active().is_some() {
            return Ok(());
        }
        let (mut active, mut asked) = (pin!(node.client.link.active()), self.asked());
        let mut left = pin!(async {
            while is_asking || self.owner(slot).is_some_and(|owner| Arc::ptr_eq(&owner, node)) {
                drop(asked.changed().await);
            }
        });
        let reached = poll_fn(|cx| match active.as_mut().poll(cx) {
            Poll::Ready(active) => Poll::Ready(active.map(drop)),
            Poll::Pending => left.as_mut().poll(cx).map(|()| {
                Err(Error::not_yet(format!(
                    "{} gave its slots away while the client connected to it",
                    node.address()
                ))
                .fix("try again"))
            }),
        });
        reached.await
    }

    /// The node to ask after this refusal, or the error that it means.
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
                self.refresh_map();
                Ok(next)
            }
            Some(Redirect::Ask(host)) => {
                call.is_asking = true;
                self.node(&host)
            }
            None => Err(self.refused(slot, node, refusal, call.lock())),
        }
    }

    fn refused(&self, slot: u16, node: &Arc<Node>, refusal: &ServerError, lock: &str) -> Error {
        match refusal.code() {
            "TRYAGAIN" => Error::not_yet(format!(
                "slot {slot} is moving from one node to another, and both have some of its keys"
            ))
            .fix(format!(
                "try again when it has arrived, or \
                 end a move that broke off: `redis-cli --cluster fix {}`",
                node.address()
            )),
            "CLUSTERDOWN" => {
                self.refresh_map();
                let said = refusal.details().unwrap_or_default();
                Error::not_yet("cluster is down").because(said).fix(format!(
                    "bring its masters back, or see `redis-cli --cluster check {}`",
                    node.address()
                ))
            }
            "READONLY" => {
                self.refresh_map();
                node.client.link.connector.demoted()
            }
            _ => fault::refused_for(refusal, &node.address(), lock),
        }
    }

    /// The node that has taken over the slot of an unreachable one, if there is one by now.
    async fn successor(&self, slot: u16, node: &Arc<Node>, error: Error) -> Result<Arc<Node>, Error> {
        let another = || self.owner(slot).filter(|owner| !Arc::ptr_eq(owner, node));
        if let Some(another) = another() {
            return Ok(another);
        }
        let mut asked = self.asked();
        self.refresh_map();
        drop(tokio::time::timeout(LONGEST_SEARCH, asked.changed()).await);
        another().ok_or(error)
    }
}
