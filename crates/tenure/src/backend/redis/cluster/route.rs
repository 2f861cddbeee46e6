//! One request's way to the node that has its slot.
//!
//! A node that does not have it names another, and was not asked in vain: nothing was executed. The same goes for one that is about to give
//! the slot away and has some of its keys (`TRYAGAIN`), which is asked again for a while, and for a cluster that is down: these are told as
//! refusals that pass, and asked again above. Only where a node can't be reached is the map waited for, because then another may have its slots by now.

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

/// How often a request is sent on.
const MOST_HOPS: u32 = 16;
/// How long it is waited for somebody else to have the slots of a node that is out of reach.
const LONGEST_SEARCH: Duration = Duration::from_millis(200);

/// How soon a request is sent again whose slot has its keys on both sides: a slot is moved in milliseconds, unless it is large.
const ON_BOTH_SIDES: Duration = Duration::from_millis(10);
/// How long that goes on from here.
const LONGEST_MOVE: Duration = Duration::from_millis(200);
/// How soon a lease is verified again whose key is in a slot that is being moved.
const ON_ITS_WAY: Duration = Duration::from_millis(200);

impl Router {
    /// Executes one call, wherever its slot is. The node is the one that executed it.
    pub(super) async fn execute(&self, mut call: Call) -> Result<(Answer, Arc<Node>), Error> {
        let (slot, start) = (slot(call.lock()), Instant::now());
        let mut node = self.wait_for_owner(slot).await?;
        let (mut offset, mut hops) = (node.client.offset(), 0);
        // Half of the time that whoever asked has: it is to be told why, and not to give up on an answer.
        let left = call.not_after().zip(node.client.server_now()).map(|(end, now)| end.saturating_sub(now));
        let patience = left.map_or(LONGEST_MOVE, |left| LONGEST_MOVE.min(Duration::from_micros(left / 2)));
        while hops < MOST_HOPS {
            if let Err(error) = self.reach(slot, &node, call.is_asking).await {
                // Whoever sent it on to a node that is away would do so again.
                if call.is_asking {
                    self.look_again();
                    return Err(error);
                }
                node = self.successor(slot, &node, error).await?;
                hops += 1;
                continue;
            }
            // It may not have been connected to before.
            if let (Some(before), Some(now)) = (offset, node.client.offset()) {
                call.for_clock_ahead(now - before);
                offset = Some(now);
            }
            let refusal = match node.client.execute(&call).await {
                Ok(mut answer) => {
                    if call.is_asking {
                        // By the clock of a node that does not have the slot yet.
                        answer.server = None;
                        self.verify_later(&call);
                    }
                    return Ok((answer, node));
                }
                Err(Failure::Error(error)) => {
                    self.look_again();
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
            "nodes of the cluster sent a request for slot {slot} on {MOST_HOPS} times"
        ))
        .fix("try again when they agree who has it"))
    }

    /// Changes to a key are not told where it is asked for before its slot has arrived: that is made up for soon.
    fn verify_later(&self, call: &Call) {
        let (name, sink) = (self.asker.keys.name(call.lock()), self.asker.sink.clone());
        let (Some(name), true, Ok(runtime)) = (name, call.is_renewal(), Handle::try_current()) else {
            return;
        };
        runtime.spawn(async move {
            tokio::time::sleep(ON_ITS_WAY).await;
            sink.upgrade().into_iter().for_each(|sink| sink.verify(&name));
        });
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
                Error::not_yet(format!("no node of the cluster has slot {slot}"))
                    .fix("give it to one: `redis-cli --cluster fix`")
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
                    "{} gave its slots away while it was connected to",
                    node.address()
                ))
                .fix("try again"))
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
            None => Err(self.refused(slot, node, refusal, call.lock())),
        }
    }

    fn refused(&self, slot: u16, node: &Arc<Node>, refusal: &ServerError, lock: &str) -> Error {
        match refusal.code() {
            "TRYAGAIN" => Error::not_yet(format!(
                "slot {slot} is being moved from one node to another, and has its keys on both"
            ))
            .fix(format!(
                "try again when it has arrived, or \
                 end a move that broke off: `redis-cli --cluster fix {}`",
                node.address()
            )),
            "CLUSTERDOWN" => {
                self.look_again();
                let said = refusal.details().unwrap_or_default();
                Error::not_yet(format!("cluster is down ({said})")).fix(format!(
                    "bring its masters back, or see `redis-cli --cluster check {}`",
                    node.address()
                ))
            }
            "READONLY" => {
                self.look_again();
                node.client.link.connector.demoted()
            }
            _ => fault::refused_for(refusal, &node.address(), lock),
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
