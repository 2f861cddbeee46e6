//! Waiting in the store's queue, for all the tasks of a cohort.
//!
//! A background task, because the tasks that it waits for come and go. It ends with the last of them, so it keeps nothing alive. It
//! beats, so that the store knows that somebody lives here; it asks again when the holder's lease runs out; and it is woken by a
//! push that needs to be confirmed. A push that can be believed as it is has begun the first task's turn before this wakes up.

use std::sync::Arc;
use std::time::Duration;

use crate::core::deadlines::Deadlines;
use crate::core::record::{HEARTBEAT, Holding, Op, Reply, pause_behind};
use crate::engine::acquire::{SLACK, send, unexpected};
use crate::engine::bid::{Alarm, Bid};
use crate::engine::client::Client;
use crate::engine::release;
use crate::engine::table::Placed;
use crate::time::backoff::{Backoff, jittered};
use crate::time::clock::{Moment, micros};
use crate::types::error::Error;
use crate::types::name::Name;
use crate::types::status::Busy;

/// What each waiter ahead adds to the time at which an expired lease is noticed: the first of the queue comes first, and those far behind it
/// only beat.
const STAGGER: Duration = Duration::from_millis(10);
/// How often the first of the queue asks when it can't be pushed to; the one behind it half as often.
const POLL: Duration = Duration::from_millis(25);

/// Waiters far from the head ask at multiples of this, in µs, of the store's clock.
const TOGETHER: u64 = 100_000;

/// Starts to seek a lease for the tasks that wait for the name.
pub(crate) fn start(client: Arc<Client>, name: Name, bid: Bid, alarm: Arc<Alarm>) {
    let tasks = client.tasks.clone();
    let mut seek = Seek { client, name, bid, alarm, has_raced: false, unwanted: None, is_done: false };
    tasks.spawn(async move { seek.run().await });
}

/// When a waiter asks again: with its next beat, after `longest` at the latest, or when the holder's lease runs out. One that said that it
/// polls asks sooner, the first of the queue most often. `server` is the store's time at the answer.
pub(crate) fn due(
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

/// A long pause ends when those of others do: a server that is woken for each beat by itself spends most of its time on waking up. They are spread
/// over their last eighth first, so that waiters that began together don't all ask at once for ever.
fn shared(pause: Duration, server: Option<u64>) -> Duration {
    if pause <= HEARTBEAT {
        return pause;
    }
    let pause = pause - (pause - jittered(pause)) / 4;
    let past = server.map_or(0, |server| server.wrapping_add(micros(pause)) % TOGETHER);
    pause.saturating_sub(Duration::from_micros(past))
}

struct Seek {
    client: Arc<Client>,
    name: Name,
    bid: Bid,
    alarm: Arc<Alarm>,
    /// The name was granted by a push while a request was under way.
    has_raced: bool,
    /// The fence of a grant that nobody took.
    unwanted: Option<u64>,
    is_done: bool,
}

/// What follows from an answer.
enum Next {
    Done,
    Leave,
    Again,
    Sleep(Moment),
    Fail(Error),
}

impl Seek {
    async fn run(&mut self) {
        let mut failing_since = None;
        let mut backoff = Backoff::new();
        if let Some(due) = self.bid.due.take() {
            self.sleep_until(due).await;
        }
        loop {
            if !self.client.is_here() {
                self.is_done = true;
                return;
            }
            let goes_on = self.client.table.lock().goes_on_seeking(&self.name, &self.bid);
            let Some(waits) = goes_on else { return self.leave() };
            let terms = self.bid.claim.terms;
            let polls = self.client.opened().polls(&self.name);
            let op = |bid: &Bid, not_after| bid.op(waits, polls, not_after);
            let asked = self.client.clock.now();
            let give_up = asked + terms.timeout();
            let answer = send(&self.client, &self.name, &mut self.bid, give_up, op).await;
            if !self.client.is_here() {
                self.is_done = true;
                return;
            }
            self.has_raced = self.alarm.is_granted();
            let next = match answer {
                Ok((reply, sent)) => {
                    failing_since = None;
                    backoff = Backoff::new();
                    self.take(reply, sent, polls)
                }
                // Those who wait go on with another bid.
                Err(error) if error.is_transient() && self.client.opened().is_unusable(&self.bid.token) => {
                    Next::Leave
                }
                // Each task knows how long an outage it waits out. The place in the queue is kept for those that do.
                Err(error) if error.is_transient() => {
                    // One request that breaks off is no news.
                    let is_news = failing_since.is_some() || !error.is_worth_asking_again();
                    let now = self.client.clock.now();
                    let outage = now.since(*failing_since.get_or_insert(asked));
                    let (name, bid) = (&self.name, &self.bid);
                    let is_waited_for = self.client.change(|table, after| {
                        table.seek_troubled(name, bid, outage, &error, is_news, after)
                    });
                    if is_waited_for { Next::Sleep(now + backoff.pause()) } else { Next::Leave }
                }
                Err(error) => Next::Fail(error),
            };
            match next {
                Next::Done => {
                    self.is_done = true;
                    return;
                }
                Next::Leave => return self.leave(),
                Next::Again => {}
                Next::Sleep(until) => self.sleep_until(until).await,
                Next::Fail(error) => return self.fail(&error),
            }
        }
    }

    async fn sleep_until(&self, until: Moment) {
        self.client.clock.until(until, self.alarm.wait()).await;
    }

    fn take(&mut self, reply: Reply, sent: Moment, polls: bool) -> Next {
        let (client, name) = (&self.client, &self.name);
        match reply {
            Reply::Granted { fence } => {
                let lease = Deadlines::granted(&self.bid.claim.terms, sent);
                let placed = client.change(|table, after| {
                    table.seek_granted(name, &self.bid, lease, fence, client.session(), after)
                });
                match placed {
                    Placed::Turn => Next::Done,
                    Placed::Unwanted => {
                        self.unwanted = Some(fence);
                        Next::Leave
                    }
                    Placed::Replace(bid) => {
                        if let Some(may_execute_until) = self.bid.may_execute_until {
                            let undo = Op::Leave { token: self.bid.token.clone() };
                            let ttl = self.bid.claim.terms.ttl;
                            release::compensate_after(client, name.clone(), undo, may_execute_until, ttl);
                        }
                        self.bid = bid;
                        Next::Again
                    }
                }
            }
            Reply::Waiting { joined_at, ahead, holding } => {
                self.bid.joined_at = Some(joined_at);
                let server = self.bid.pair.as_ref().map(|pair| pair.server);
                let due = due(sent, server, &holding, ahead, polls, client.opened().longest_pause());
                let busy = Busy { holder: Some(holding.into()), waiters: ahead + 1 };
                client.change(|table, after| table.seek_busy(name, &self.bid, busy, after));
                Next::Sleep(due)
            }
            Reply::Busy { holding, waiters } => {
                let busy = Busy { holder: Some(holding.into()), waiters };
                client.change(|table, after| {
                    table.seek_busy(name, &self.bid, busy, after);
                    table.seek_ended(name, &self.bid, None, client.session(), after);
                });
                if self.bid.may_execute_until.is_some() { Next::Leave } else { Next::Done }
            }
            // What was to be replaced is gone: ask for a lease as everyone does.
            Reply::NotHeld { .. } => {
                self.bid.replaces = None;
                Next::Again
            }
            Reply::TooLate => Next::Sleep(client.clock.now() + SLACK),
            reply => Next::Fail(unexpected(&reply)),
        }
    }

    /// Nobody waits any more, or not for this bid.
    fn leave(&mut self) {
        self.end(None);
    }

    fn fail(&mut self, error: &Error) {
        self.end(Some(error));
    }

    /// Undoes the bid in the store, unless a push gave it to a task, which has it, or gave it back when nothing was under way.
    fn end(&mut self, error: Option<&Error>) {
        self.is_done = true;
        let (client, name) = (&self.client, &self.name);
        client.change(|table, after| table.seek_ended(name, &self.bid, error, client.session(), after));
        let Bid { token, replaces, may_execute_until, claim, bond, .. } = &self.bid;
        let was_used = self.alarm.is_granted() && !self.has_raced && may_execute_until.is_none();
        let is_kept = bond.as_ref().is_some_and(|bond| {
            // The last request may have been executed when all was over, and taken the name once more.
            let is_another = self.unwanted.is_some_and(|fence| bond.is_outlived_by(fence));
            bond.pass_on(*may_execute_until) && !is_another
        });
        if is_kept || was_used {
            return;
        }
        for token in replaces.iter().chain([token]) {
            release::leave(
                &self.client,
                self.name.clone(),
                token.clone(),
                *may_execute_until,
                claim.terms.ttl,
            );
        }
    }
}

impl Drop for Seek {
    /// Dropped before it was done: its runtime is going down. Those who wait on another one must still be served.
    fn drop(&mut self) {
        if self.is_done || !self.client.is_here() {
            return;
        }
        match self.client.tasks.take_other_runtime() {
            Some(runtime) => {
                let mut again = Seek {
                    client: Arc::clone(&self.client),
                    name: self.name.clone(),
                    bid: self.bid.clone(),
                    alarm: Arc::clone(&self.alarm),
                    has_raced: self.has_raced,
                    unwanted: self.unwanted,
                    is_done: false,
                };
                self.client.tasks.spawn_on(&runtime, async move { again.run().await });
            }
            None => self.fail(
                &Error::unavailable("the runtime that waited for this lock shut down")
                    .fix("acquire it again"),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rule 5: a beat is never later than the store expects it.
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
