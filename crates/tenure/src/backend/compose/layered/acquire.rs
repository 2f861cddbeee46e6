//! Acquiring: the inner lease first, then the outer one, then the fence of the outer grant written back.
//!
//! Every step is idempotent by its token, so that the caller can repeat an operation whose answer was lost. If a step fails, the client undoes
//! the step before it, unless the caller is known to ask again or to leave: then it keeps the inner lease for the caller.
//!
//! If the outer lease belongs to a process of this machine that the inner store saw die, the holder of the inner lease ends it: nobody
//! believes in it any more. So a death costs no ttl here.

use std::time::Duration;

use super::Stores;
use super::bids::LayeredBid;
use super::outside::LONGEST_SILENCE;
use crate::backend::compose::{Acquire, wait_from};
use crate::core::record::{HEARTBEAT, Holding, Op, Reply, Wait};
use crate::time::clock::Moment;
use crate::types::error::Error;
use crate::types::name::Name;
use crate::types::owner::Token;

/// How long an inner lease lasts while the client asks the outer store or waits there, whatever the ttl: three heartbeats, or until the
/// answer must be there. A client that loses the outer store meanwhile delays its machine for this long only.
const WHILE_WAITING: Duration = Duration::from_millis(1_250);
/// Time for the inner steps after the outer store's answer.
const AFTER_ANSWER: Duration = Duration::from_millis(250);

impl Stores {
    pub(super) async fn acquire(&self, name: &Name, request: Acquire) -> Result<Reply, Error> {
        // A client that can't get the outer lease must not keep others from the inner one.
        self.refuse_in_outage()?;
        if !self.policy.may_degrade() {
            self.refuse_unusable(&request.token)?;
        }
        let fence = match self.acquire_inside(name, &request).await? {
            Reply::Granted { fence } => fence,
            reply => return Ok(reply),
        };
        let sent = self.clock.now();
        self.note_ttl(&request.token, request.ttl);
        let answer = self.acquire_outside(name, &request, fence).await;
        let Acquire { token, ttl, wait, .. } = request;
        match self.policy.tolerate(answer) {
            Ok(Some(Reply::Granted { fence })) => {
                self.granted_outside(name, token, ttl, fence, sent).await.map_err(Error::half_way)
            }
            Ok(Some(reply @ Reply::Waiting { joined_at, .. })) => {
                self.bids.change(&token, sent, |bid| bid.outer_joined_at = Some(joined_at));
                Ok(reply)
            }
            Ok(Some(reply)) => {
                self.leave_inside(name, token).await?;
                Ok(reply)
            }
            Ok(None) => {
                self.holds_inner_only(&token, ttl);
                self.extend_inside(name, token, ttl, fence).await
            }
            Err(error) => {
                // A waiter that sends heartbeats asks again, or leaves.
                if !matches!(wait, Wait::Keep { .. }) {
                    self.leave_inside(name, token).await?;
                }
                Err(error)
            }
        }
    }

    /// The outer store has granted it: so does the pair, unless the inner lease has ended.
    async fn granted_outside(
        &self,
        name: &Name,
        token: Token,
        ttl: Duration,
        fence: u64,
        sent: Moment,
    ) -> Result<Reply, Error> {
        match self.write_back(name, &token, fence).await? {
            Reply::Granted { .. } => {
                self.holds_both(&token, ttl, sent);
                self.extend_inside(name, token, ttl, fence).await
            }
            reply => Ok(reply),
        }
    }

    async fn acquire_inside(&self, name: &Name, request: &Acquire) -> Result<Reply, Error> {
        let Acquire { token, floor, not_after, .. } = request;
        let bid = self.bids.get(token);
        let op = Op::Acquire {
            token: token.clone(),
            ttl: WHILE_WAITING.max(self.time_left(name, *not_after) + AFTER_ANSWER),
            wait: wait_from(request.wait, bid.inner_joined_at),
            polls: false,
            floor: *floor,
            not_after: *not_after,
        };
        let reply = self.inside(name, op).await?;
        if let Reply::Waiting { joined_at, .. } = reply {
            self.bids.change(token, self.clock.now(), |bid| bid.inner_joined_at = Some(joined_at));
        }
        // Its inner lease ended while it waited outside: the new holder of the inner lease must not find it ahead there.
        if !matches!(reply, Reply::Granted { .. }) && bid.outer_joined_at.is_some() {
            self.withdraw(name, token).await?;
        }
        Ok(reply)
    }

    async fn acquire_outside(&self, name: &Name, request: &Acquire, fence: u64) -> Result<Reply, Error> {
        let Acquire { token, ttl, floor, not_after, .. } = request;
        self.refuse_unusable(token)?;
        let silence = || self.time_left(name, *not_after) / 2;
        let op = Op::Acquire {
            token: token.clone(),
            ttl: *ttl,
            wait: wait_from(request.wait, self.bids.get(token).outer_joined_at),
            polls: self.outer.polls(name),
            floor: (*floor).max(fence),
            not_after: self.translated(name, *not_after),
        };
        let reply = self.outside(name, op.clone(), silence()).await?;
        match &reply {
            Reply::Waiting { holding, .. } | Reply::Busy { holding, .. }
                if self.ends_dead(name, holding).await =>
            {
                self.outside(name, op, silence()).await
            }
            _ => Ok(reply),
        }
    }

    /// Ends an outer lease whose holder died on this machine. Returns false if that is not known of the holder, or the request failed.
    pub(super) async fn ends_dead(&self, name: &Name, holding: &Holding) -> bool {
        // A session that can't be found proves nothing: somebody may have removed the directory under its processes.
        if self.inner.reaped(name).as_ref() != Some(&holding.token) {
            return false;
        }
        // Nobody knows what it used of its range: all of it stays reserved (I3).
        let op = Op::Release { token: holding.token.clone(), used: u64::MAX };
        self.outside(name, op, LONGEST_SILENCE).await.is_ok()
    }

    /// Both stores have granted it: the outer one in answer to a request that was sent then.
    pub(super) fn holds_both(&self, token: &Token, ttl: Duration, sent: Moment) {
        if !self.policy.may_degrade() {
            // A lease without an entry is not degraded.
            self.bids.end(token);
            return;
        }
        self.bids.change(token, sent, |bid| {
            let may_execute_until = bid.may_execute_until;
            *bid = LayeredBid { proven: Some(sent), ttl, may_execute_until, ..LayeredBid::default() };
        });
    }

    pub(super) fn holds_inner_only(&self, token: &Token, ttl: Duration) {
        self.bids.change(token, self.clock.now(), |bid| {
            let LayeredBid { may_execute_until, is_unusable, .. } = *bid;
            *bid = LayeredBid {
                began_alone: true,
                ttl,
                may_execute_until,
                is_unusable,
                ..LayeredBid::default()
            };
        });
    }

    /// Gives the short inner lease its full ttl.
    async fn extend_inside(
        &self,
        name: &Name,
        token: Token,
        ttl: Duration,
        fence: u64,
    ) -> Result<Reply, Error> {
        match self.inside(name, Op::Renew { token: token.clone(), ttl }).await? {
            Reply::Done => Ok(Reply::Granted { fence }),
            _ => self.too_late(name, token).await,
        }
    }

    /// The inner lease ended before the last step: undoes both.
    async fn too_late(&self, name: &Name, token: Token) -> Result<Reply, Error> {
        let withdrawn = self.withdraw(name, &token).await;
        self.leave_inside(name, token).await?;
        withdrawn.map(|()| Reply::TooLate)
    }

    pub(super) async fn leave_inside(&self, name: &Name, token: Token) -> Result<(), Error> {
        self.inside(name, Op::Leave { token }).await?;
        Ok(())
    }

    /// Enters the fences of the outer grant into the inner record (I3).
    pub(super) async fn write_back(&self, name: &Name, token: &Token, fence: u64) -> Result<Reply, Error> {
        let op = Op::Raise { token: token.clone(), fence };
        let reply = self.inside(name, op).await?;
        if let Reply::Granted { fence: start } = reply
            && start == fence
        {
            return Ok(reply);
        }
        self.too_late(name, token.clone()).await
    }
}

const _: () = assert!(WHILE_WAITING.as_millis() > 3 * HEARTBEAT.as_millis());
