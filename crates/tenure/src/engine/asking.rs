//! Asking the store for a lease: one request of a bid, and what its answer means.
//!
//! Both the task that asks for itself ([`acquire`](super::acquire)) and the background task that waits for a cohort ([`seek`](super::seek))
//! ask through here, so the same reply means the same to both.

use std::time::Duration;

use crate::backend::Answer;
use crate::core::deadlines::TimePair;
use crate::core::record::{HEARTBEAT, Holding, Op, Reply, pause_behind};
use crate::engine::bid::Bid;
use crate::engine::client::Client;
use crate::time::backoff::{Attempts, jittered};
use crate::time::clock::{Moment, micros};
use crate::types::error::{Error, ErrorKind};
use crate::types::name::Name;
use crate::types::status::Busy;

/// How much later each waiter further back notices that a lease expired, so that the first of the queue comes first.
const STAGGER: Duration = Duration::from_millis(10);
/// How often the first of the queue asks if it can't be pushed to; the second asks half as often.
const POLL: Duration = Duration::from_millis(25);

/// Waiters far from the head ask at multiples of this, in µs, of the store's clock.
const TOGETHER: u64 = 100_000;

/// What the answer to a request for a lease means.
pub(crate) enum Asked {
    /// The bid has the lease, whose fences start at `fence`. The request was sent at `sent`.
    Granted { fence: u64, sent: Moment },
    /// The bid is in the store's queue, and asks again at `again`.
    Waiting { busy: Busy, again: Moment },
    /// The store refused the bid, which is not in the queue.
    Refused(Busy),
    /// The lease that the bid was to replace is gone.
    NothingToReplace,
    /// The request came too late: the store did not execute it.
    TooLate,
}

/// What the reply to [`Bid::op`] means. `polls` is what the request said.
///
/// # Errors
/// [`Protocol`](ErrorKind::Protocol) if it is no reply to a request for a lease.
pub(crate) fn interpret(
    client: &Client,
    bid: &mut Bid,
    polls: bool,
    reply: Reply,
    sent: Moment,
) -> Result<Asked, Error> {
    Ok(match reply {
        Reply::Granted { fence } => Asked::Granted { fence, sent },
        Reply::Waiting { joined_at, ahead, holding } => {
            bid.joined_at = Some(joined_at);
            let server = bid.pair.as_ref().map(|pair| pair.server);
            let again = next_request(sent, server, &holding, ahead, polls, client.opened().longest_pause());
            // The store tells a waiter how many are ahead of it, and not how many are behind.
            Asked::Waiting { busy: Busy { holder: Some(holding.into()), waiters: None }, again }
        }
        Reply::Busy { holding, waiters } => {
            Asked::Refused(Busy { holder: Some(holding.into()), waiters: Some(waiters) })
        }
        Reply::NotHeld { .. } if bid.replaces.is_some() => Asked::NothingToReplace,
        Reply::TooLate => Asked::TooLate,
        reply => return Err(unexpected(&reply)),
    })
}

/// Asks the store until it answers, at most until `give_up`; again only while a request breaks off, or comes too late to be executed.
pub(crate) async fn ask_store(
    client: &Client,
    name: &Name,
    bid: &mut Bid,
    give_up: Moment,
    op: impl Fn(&Bid, u64) -> Op,
) -> Result<(Reply, Moment), Error> {
    let mut attempts = Attempts::until(give_up);
    loop {
        let error = match send(client, name, bid, give_up, &op).await {
            Ok((Reply::TooLate, _)) => {
                Error::not_yet("requests reach the store too late to be executed").fix("try again")
            }
            Err(error) => error,
            answer => return answer,
        };
        attempts.again(&client.clock, error).await?;
    }
}

/// Sends one request of a bid. Until the store answers, it may execute the request later.
pub(crate) async fn send(
    client: &Client,
    name: &Name,
    bid: &mut Bid,
    give_up: Moment,
    op: impl Fn(&Bid, u64) -> Op,
) -> Result<(Reply, Moment), Error> {
    let backend = client.opened();
    let sent = client.clock.now();
    let timeout = micros(give_up.since(sent));
    let not_after = backend.server_now(name).map_or(u64::MAX, |now| now.saturating_add(timeout));
    let (before, connection) = (bid.may_execute_until.replace(give_up), backend.connection(name));
    let answer = client.in_time(give_up, backend.execute(name, op(bid, not_after))).await;
    if !matches!(&answer, Err(error) if error.may_have_run()) {
        bid.may_execute_until = before;
    }
    let Answer { reply, server, is_degraded } = answer?;
    bid.is_degraded = is_degraded;
    let server = server.filter(|_| connection == backend.connection(name));
    bid.pair = server.map(|server| TimePair { sent, server, connection });
    Ok((reply, sent))
}

pub(crate) fn unexpected(reply: &Reply) -> Error {
    Error::new(ErrorKind::Protocol, format!("store answered an acquire with {reply:?}"))
        .fix("is it of another version?")
}

/// When a waiter asks again: with its next heartbeat, after `longest` at the latest, or when the holder's lease runs out. A waiter that
/// polls asks sooner, the first of the queue most often. `server` is the store's time at the answer.
pub(crate) fn next_request(
    sent: Moment,
    server: Option<u64>,
    holding: &Holding,
    ahead: usize,
    polls: bool,
    longest: Duration,
) -> Moment {
    let position = u32::try_from(ahead).unwrap_or(u32::MAX);
    // The last millisecond of a lease still belongs to it.
    let expiry = sent + holding.left + Duration::from_millis(1) + STAGGER.saturating_mul(position);
    let beat = match polls {
        true => jittered(POLL.saturating_mul(position.saturating_add(1)).min(HEARTBEAT)),
        false => shared(pause_behind(ahead).min(longest), server),
    };
    expiry.min(sent + beat)
}

/// Long pauses of several waiters end together, because a server that is woken for each heartbeat spends most of its time on waking up. They
/// are first spread over their last eighth, so that waiters that began together don't all ask at once for ever.
fn shared(pause: Duration, server: Option<u64>) -> Duration {
    if pause <= HEARTBEAT {
        return pause;
    }
    let pause = pause - (pause - jittered(pause)) / 4;
    let past = server.map_or(0, |server| server.wrapping_add(micros(pause)) % TOGETHER);
    pause.saturating_sub(Duration::from_micros(past))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rule 5: a heartbeat is never later than the store expects it.
    #[test]
    fn long_pauses_end_together_and_short_ones_as_they_are() {
        for server in [0, 1_234_567, u64::MAX] {
            for pause in [401, 450, 5_000, 12_000].map(Duration::from_millis) {
                let shared = shared(pause, Some(server));
                assert!(
                    shared <= pause && shared + pause / 8 + Duration::from_millis(100) >= pause,
                    "{shared:?}"
                );
                assert_eq!(server.wrapping_add(micros(shared)) % TOGETHER, 0, "{server} {pause:?}");
            }
            assert_eq!(shared(HEARTBEAT, Some(server)), HEARTBEAT);
        }
    }
}
