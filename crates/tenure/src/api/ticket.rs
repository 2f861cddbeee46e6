//! What can be done with a ticket: adopt its lease, renew it, give it back.
//!
//! A detached lease belongs to nobody's table: no keeper renews it, and no deadline is known here. So each of these is one question to the
//! store, which compares the token; what it answers is all that can be said.

use std::sync::Arc;

use crate::api::domain::Domain;
use crate::api::guard::Guard;
use crate::backend::Answer;
use crate::core::claim::Claim;
use crate::core::deadlines::Terms;
use crate::core::record::{Op, Reply};
use crate::engine::asking::unexpected;
use crate::engine::bid::Bid;
use crate::engine::release;
use crate::engine::take_over;
use crate::types::error::Error;
use crate::types::loss::{Loss, LossKind};
use crate::types::release::Release;
use crate::types::ticket::Ticket;

impl Ticket {
    /// Takes over a lease that was [detached](Guard::detach), under a new token and a higher fence, with the ttl that it had; it is renewed, and no
    /// `max_hold` goes along. Of two that adopt the same ticket, one succeeds.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) when the lease has ended, or was adopted by another.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open whether the ticket was used; if it was, the lease is given back.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// # let domain = tenure::Domain::open("memory:").await?;
    /// let ticket = domain.lock("orders/42").acquire().await?.detach().await?;
    /// let guard = ticket.adopt(&domain).await?;
    /// assert!(ticket.adopt(&domain).await.is_err(), "a ticket is good for once");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn adopt(&self, domain: &Domain) -> Result<Guard, Error> {
        let terms = Terms { ttl: self.ttl, ..domain.terms };
        let label = self.token.owner().label().into();
        let claim = Arc::new(Claim { name: self.name.clone(), terms, label });
        claim.check()?;
        let op = |bid: &Bid, not_after| {
            let (from, token) = (self.token.clone(), bid.token.clone());
            Op::Adopt { from, token, ttl: terms.first_term(), floor: bid.floor, not_after }
        };
        let turn = take_over::take(&domain.client, &claim, op).await?;
        Ok(Guard::new(Arc::clone(&domain.client), turn, claim))
    }

    /// Makes a lease that was [detached](Guard::detach) last for at least its ttl from now. It stays detached, under the same fence, and the
    /// ticket stays good.
    ///
    /// # Errors
    /// [`Lost`](crate::ErrorKind::Lost) when the lease has ended, or was adopted.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open whether the lease was renewed.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// # let domain = tenure::Domain::open("memory:").await?;
    /// let ticket = domain.lock("orders/42").acquire().await?.detach().await?;
    /// ticket.renew(&domain).await?;
    /// assert!(domain.inspect("orders/42").await?.is_held());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn renew(&self, domain: &Domain) -> Result<(), Error> {
        Terms { ttl: self.ttl, ..domain.terms }.check()?;
        let op = Op::Detach { token: self.token.clone(), ttl: self.ttl };
        match domain.execute(&self.name, op).await?.reply {
            Reply::Done => Ok(()),
            Reply::NotHeld { holder } => {
                let kind = LossKind::from_holder(holder.as_ref());
                Err(Error::useless_ticket(Loss::new(self.name.clone(), kind)))
            }
            reply => Err(unexpected(&reply)),
        }
    }

    /// Gives back a lease that was [detached](Guard::detach): the next one has its turn at once. A lease that has ended, or was adopted, is not
    /// touched.
    ///
    /// When an answer was lost and the lease is gone at the next try, that is taken for the work of the first: [`Released`](Release::Released).
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) when the store can't be reached for 2 s, as for [`Guard::release`]: it can be tried again,
    /// and the lease ends by its ttl otherwise.
    ///
    /// # Cancel safety
    /// Dropping the future leaves it open whether the lease was given back.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// # let domain = tenure::Domain::open("memory:").await?;
    /// use tenure::Release;
    ///
    /// let ticket = domain.lock("orders/42").acquire().await?.detach().await?;
    /// assert_eq!(ticket.release(&domain).await?, Release::Released);
    /// assert_eq!(ticket.release(&domain).await?, Release::Gone, "it has ended, or the ticket was used");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release(&self, domain: &Domain) -> Result<Release, Error> {
        domain.begin().await?;
        let (client, backend) = (&domain.client, domain.client.backend().await?);
        // Of the range, the turns up to the ticket's fence were used, and none after it.
        let op = Op::Release { token: self.token.clone(), used: self.fence.get() };
        let mut attempts = release::attempts(client, domain.terms.timeout());
        let mut was_unanswered = false;
        loop {
            match client.in_time(attempts.give_up, backend.execute(&self.name, op.clone())).await {
                Ok(_) if was_unanswered => return Ok(Release::Released),
                Ok(Answer { reply, .. }) => return Ok(Release::from_reply(&reply)),
                Err(error) => {
                    was_unanswered |= error.may_have_run();
                    attempts.again(&client.clock, error).await?;
                }
            }
        }
    }
}
