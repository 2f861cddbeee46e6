//! Acquiring: the inner store first, then the outer one, then what came of it written back.
//!
//! Every step is idempotent by its token, so that an operation whose answer was lost is asked again from the start. What a step has taken is
//! undone where the next one fails, unless whoever asked is known to ask again or to leave: then the inner lease is kept for it.
//!
//! Whoever holds the inner lease and finds the outer one held by a process of this machine that the inner store saw die ends that one there: nobody
//! is left who could believe in it. So a death costs no ttl here.

use std::time::Duration;

use super::TimePair;
use super::bids::Standing;
use super::outside::LONGEST_SILENCE;
use crate::core::record::{HEARTBEAT, Holding, Op, Reply, Wait};
use crate::time::clock::Moment;
use crate::types::error::Error;
use crate::types::name::Name;
use crate::types::owner::Token;
use crate::url::Degrade;

/// How long an inner lease lasts while the outer one is asked and waited for: three beats, or until the answer must be there, and no longer,
/// whatever the ttl. Whoever is cut off from the outer store meanwhile keeps the others of its machine waiting for so long.
const WHILE_WAITING: Duration = Duration::from_millis(1_250);
/// What is to be done inside when the answer is there.
const AFTER_ANSWER: Duration = Duration::from_millis(250);

/// What an acquire asks for.
pub(super) struct Ask {
    pub(super) token: Token,
    pub(super) ttl: Duration,
    pub(super) wait: Wait,
    pub(super) floor: u64,
    pub(super) not_after: u64,
}

impl Ask {
    /// How it waits in one of the stores, where it has this place.
    fn wait(&self, joined_at: Option<u64>) -> Wait {
        match (self.wait, joined_at) {
            (Wait::No, _) => Wait::No,
            (_, Some(joined_at)) => Wait::Keep { joined_at },
            (_, None) => Wait::Join,
        }
    }
}

impl TimePair {
    pub(super) async fn acquire(&self, name: &Name, ask: Ask) -> Result<Reply, Error> {
        // Whoever can't get the outer one must not keep others from the inner one.
        self.refuse_in_outage()?;
        if self.degrade == Degrade::Never {
            self.refuse_spent(&ask.token)?;
        }
        let fence = match self.acquire_inside(name, &ask).await? {
            Reply::Granted { fence } => fence,
            reply => return Ok(reply),
        };
        let sent = self.clock.now();
        self.note_ttl(&ask.token, ask.ttl);
        match self.acquire_outside(name, &ask, fence).await {
            Ok(Reply::Granted { fence }) => {
                self.granted_outside(name, ask, fence, sent).await.map_err(Error::half_way)
            }
            Ok(reply @ Reply::Waiting { joined_at, .. }) => {
                self.bids.change(&ask.token, sent, |standing| standing.outer = Some(joined_at));
                Ok(reply)
            }
            Ok(reply) => {
                self.undo(name, ask.token).await?;
                Ok(reply)
            }
            Err(error) if self.may_go_on_without(&error) => {
                self.holds_alone(&ask.token, ask.ttl);
                self.lengthen_inside(name, ask.token, ask.ttl, fence).await
            }
            Err(error) => {
                // Whoever beats asks again, or leaves.
                if !matches!(ask.wait, Wait::Keep { .. }) {
                    self.undo(name, ask.token).await?;
                }
                Err(error)
            }
        }
    }

    /// The outer store has granted it: then so does the pair, unless the inner lease has ended.
    async fn granted_outside(&self, name: &Name, ask: Ask, fence: u64, sent: Moment) -> Result<Reply, Error> {
        match self.write_back(name, &ask.token, fence).await? {
            Reply::Granted { .. } => {
                self.holds_both(&ask.token, ask.ttl, sent);
                self.lengthen_inside(name, ask.token, ask.ttl, fence).await
            }
            reply => Ok(reply),
        }
    }

    async fn acquire_inside(&self, name: &Name, ask: &Ask) -> Result<Reply, Error> {
        let standing = self.bids.standing(&ask.token);
        let op = Op::Acquire {
            token: ask.token.clone(),
            ttl: WHILE_WAITING.max(self.time_left(name, ask.not_after) + AFTER_ANSWER),
            wait: ask.wait(standing.inner),
            polls: false,
            floor: ask.floor,
            not_after: ask.not_after,
        };
        let reply = self.inside(name, op).await?;
        if let Reply::Waiting { joined_at, .. } = reply {
            self.bids.change(&ask.token, self.clock.now(), |standing| standing.inner = Some(joined_at));
        }
        // Its inner lease ended while it waited outside: whoever has it now must not find this one ahead there.
        if !matches!(reply, Reply::Granted { .. }) && standing.outer.is_some() {
            self.withdraw(name, &ask.token).await?;
        }
        Ok(reply)
    }

    async fn acquire_outside(&self, name: &Name, ask: &Ask, fence: u64) -> Result<Reply, Error> {
        self.refuse_spent(&ask.token)?;
        let silence = || self.time_left(name, ask.not_after) / 2;
        let op = Op::Acquire {
            token: ask.token.clone(),
            ttl: ask.ttl,
            wait: ask.wait(self.bids.standing(&ask.token).outer),
            polls: self.outer.polls(name),
            floor: ask.floor.max(fence),
            not_after: self.translated(name, ask.not_after),
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

    /// Ends an outer lease whose holder died on this machine; false when it is not known to be such a one, or could not be ended.
    pub(super) async fn ends_dead(&self, name: &Name, holding: &Holding) -> bool {
        // That its session can't be found is no proof: a directory may have been removed under its processes.
        if self.inner.reaped(name).as_ref() != Some(&holding.token) {
            return false;
        }
        // What it used of its range is not known: all of it stays reserved (I3).
        let op = Op::Release { token: holding.token.clone(), used: u64::MAX };
        self.outside(name, op, LONGEST_SILENCE).await.is_ok()
    }

    /// Both stores have granted it: the outer one in answer to a request that was sent then.
    pub(super) fn holds_both(&self, token: &Token, ttl: Duration, sent: Moment) {
        if self.degrade == Degrade::Never {
            // What is not known of is whole.
            self.bids.end(token);
            return;
        }
        self.bids.change(token, sent, |standing| {
            let may_execute_until = standing.may_execute_until;
            *standing = Standing { proven: Some(sent), ttl, may_execute_until, ..Standing::default() };
        });
    }

    /// Only the inner store has granted it.
    pub(super) fn holds_alone(&self, token: &Token, ttl: Duration) {
        self.bids.change(token, self.clock.now(), |standing| {
            let Standing { may_execute_until, is_unusable, .. } = *standing;
            *standing =
                Standing { began_alone: true, ttl, may_execute_until, is_unusable, ..Standing::default() };
        });
    }

    /// Makes a lease of what was held while the outer store was asked.
    async fn lengthen_inside(
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

    /// The inner lease ended before all was done: whoever asked took too long.
    async fn too_late(&self, name: &Name, token: Token) -> Result<Reply, Error> {
        let withdrawn = self.withdraw(name, &token).await;
        self.inside(name, Op::Leave { token }).await?;
        withdrawn.map(|()| Reply::TooLate)
    }

    /// Gives the inner lease back: the other one was not to be had.
    pub(super) async fn undo(&self, name: &Name, token: Token) -> Result<(), Error> {
        self.inside(name, Op::Leave { token }).await?;
        Ok(())
    }

    /// The inner record learns which fences the outer one gave (I3).
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
