//! Two worlds are one when nothing that can happen tells them apart: so that the exploration ends.
//!
//! Times count from now, and only as far as anything depends on them; places and old fences only by their order. Clients are
//! interchangeable: everything that belongs to one, in its head, in the network and in the record, is put into one number, and
//! the numbers are sorted.

use std::time::Duration;

use super::client::{Client, Phase};
use super::world::{Answer, Ask, Body, Message, TTL, World, owner};
use crate::core::deadlines::Step;
use crate::core::record::{HEARTBEAT, RANGE};
use crate::time::clock::micros;

/// A hash that mixes well and costs little.
#[derive(Clone, Copy)]
struct Mix(u64);

impl Mix {
    fn add(&mut self, value: u64) {
        let mut mixed = (self.0 ^ value).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.0 = mixed ^ (mixed >> 31);
    }
}

/// How long until `then`; zero when it is past.
fn until(then: u64, now: u64) -> u64 {
    then.saturating_sub(now)
}

/// How long ago `then` was, up to a limit.
fn ago(then: u64, now: u64, limit: Duration) -> u64 {
    now.saturating_sub(then).min(micros(limit))
}

/// Numbers that count by their order only, but for those from `since` on.
struct Ranks {
    old: Vec<u64>,
    since: u64,
}

impl Ranks {
    fn new(since: u64, numbers: impl Iterator<Item = u64>) -> Self {
        let mut old: Vec<u64> = numbers.filter(|number| *number < since).collect();
        old.sort_unstable();
        old.dedup();
        Ranks { old, since }
    }

    fn of(&self, number: u64) -> u64 {
        match number.checked_sub(self.since) {
            Some(recent) => 1_000 + recent,
            None => self.old.partition_point(|old| *old < number) as u64,
        }
    }
}

impl World {
    pub(super) fn fingerprint(&self) -> u64 {
        let (places, fences) = (self.places(), self.fences());
        let mut clients: Vec<u64> = (0..)
            .zip(&self.clients)
            .map(|(client, state)| self.of_client(client, state, &places, &fences))
            .collect();
        clients.sort_unstable();
        let mut mix = Mix(0);
        clients.into_iter().for_each(|client| mix.add(client));
        mix.add(fences.of(self.record.last));
        mix.add(fences.of(self.ran));
        mix.add(self.since_last_grant());
        let budget = self.budget;
        mix.add(u64::from_le_bytes([
            budget.unanswered,
            budget.duplicates,
            budget.crashes,
            budget.cancels,
            budget.set_backs,
            0,
            0,
            0,
        ]));
        mix.0
    }

    fn places(&self) -> Ranks {
        let queued = self.record.queue.iter().map(|waiter| waiter.joined_at);
        let known = self.clients.iter().map(|client| match client.phase {
            Phase::Waiting { joined_at } => joined_at,
            _ => 0,
        });
        let sent = self.messages.iter().map(|message| match message.body {
            Body::Request(Ask::Acquire { joined_at, .. })
            | Body::Reply { answer: Answer::Waiting { joined_at, .. }, .. } => joined_at,
            _ => 0,
        });
        // Zero is no place.
        Ranks::new(World::store_at(self.now), queued.chain(known).chain(sent).chain([0]))
    }

    fn fences(&self) -> Ranks {
        let clients = self.clients.iter().flat_map(|client| {
            let held = match &client.phase {
                Phase::Holding { fence, .. } => *fence,
                Phase::Ending { used, .. } => used.unwrap_or(0),
                _ => 0,
            };
            [client.floor, held]
        });
        let sent = self.messages.iter().map(|message| match message.body {
            Body::Request(Ask::Acquire { floor, .. }) => floor,
            Body::Request(Ask::Release { used }) => used,
            Body::Reply { answer: Answer::Granted { fence }, .. } | Body::Push { fence, .. } => fence,
            Body::Reply { answer: Answer::Waiting { seen, .. }, .. } => seen,
            _ => 0,
        });
        let numbers = [0, self.ran, self.record.last];
        Ranks::new(u64::MAX, clients.chain(sent).chain(numbers))
    }

    /// What rule 5 and the next fence see of the last one: its age, which is a few µs off a number of ticks.
    fn since_last_grant(&self) -> u64 {
        let wall = self.store_now().wall;
        let age = (wall + RANGE - 1).wrapping_sub(self.record.last).cast_signed();
        if self.wall_set_back > 0 {
            return age.min(micros(super::LAPSE).cast_signed()).cast_unsigned();
        }
        let ticks = age.div_euclid(micros(self.scope.tick).cast_signed());
        let is_recent = age < 2 * micros(HEARTBEAT).cast_signed();
        let is_ahead = self.record.last >= wall;
        (ticks.min(8).cast_unsigned() << 2) | u64::from(is_recent) << 1 | u64::from(is_ahead)
    }

    /// How many ticks until a moment: nothing happens in between.
    fn ticks(&self, left: Duration) -> u64 {
        micros(left).div_ceil(micros(self.scope.tick))
    }

    fn of_client(&self, client: u8, state: &Client, places: &Ranks, fences: &Ranks) -> u64 {
        let (now, store) = (self.now, World::store_at(self.now));
        let mut mix = Mix(u64::from(state.attempt) << 8 | u64::from(state.attempts_left));
        match &state.phase {
            Phase::Idle => mix.add(1),
            Phase::Waiting { joined_at } => {
                mix.add(2 + places.of(*joined_at) * 8);
                mix.add(ago(state.last_sent, now, HEARTBEAT));
                // Of a pair counts how long its request took; one that took longer than a lease proves nothing.
                let pair = state.pair.map(|pair| {
                    let executed = World::moment(client, pair.server - World::store_at(0));
                    executed.since(pair.sent).min(TTL)
                });
                mix.add(pair.map_or(u64::MAX, micros));
            }
            Phase::Holding { lease, fence } => {
                let moment = World::moment(client, now);
                mix.add(3 + fences.of(*fence) * 8);
                mix.add(self.ticks(lease.deadline().since(moment)));
                mix.add(match lease.step(moment) {
                    Step::Rest { until } => self.ticks(until.since(moment)),
                    Step::Renew { .. } => u64::MAX,
                    Step::Over { .. } => u64::MAX - 1,
                });
            }
            Phase::Ending { used, answered } => {
                let used = used.filter(|_| !answered).unwrap_or(0);
                mix.add(4 + u64::from(*answered) * 8 + fences.of(used) * 16);
            }
            Phase::Crashed { buried } => mix.add(5 + u64::from(*buried) * 8),
        }
        mix.add(state.asked.map_or(u64::MAX, |asked| now - asked.sent));
        if state.waits() || state.attempts_left > 0 {
            mix.add(fences.of(state.floor));
        }
        mix.add(until(state.requests_until, store) << 1 | u64::from(state.was_copied));
        for (attempt, forgotten) in &state.over {
            mix.add(u64::from(*attempt) + until(*forgotten, store) * 16);
        }
        let mut sent: Vec<u64> = self
            .messages
            .iter()
            .filter(|message| message.client == client)
            .map(|message| self.of_message(message, state, places, fences))
            .collect();
        sent.sort_unstable();
        sent.into_iter().for_each(|message| mix.add(message));
        self.in_the_record(client, places, &mut mix);
        mix.0
    }

    fn of_message(&self, message: &Message, state: &Client, places: &Ranks, fences: &Ranks) -> u64 {
        let (now, store) = (self.now, World::store_at(self.now));
        let is_awaited = state.is_waiting_for(message.attempt, message.sent);
        let mut mix = Mix(u64::from(message.attempt) << 1 | u64::from(is_awaited));
        // What was sent longer ago than a lease lasts proves nothing.
        let age = ago(message.sent, now, TTL);
        let mut of_ask = |ask: &Ask| match ask {
            Ask::Acquire { joined_at, floor, not_after } => {
                mix.add(1 + age * 8);
                mix.add(places.of(*joined_at));
                mix.add(fences.of(*floor));
                mix.add(until(not_after + 1 + micros(self.scope.tick), store));
            }
            Ask::Renew { ttl } => {
                mix.add(2 + ago(message.sent, now, *ttl) * 8);
                mix.add(micros(*ttl));
            }
            Ask::Release { used } => mix.add(3 + fences.of(*used) * 8),
            Ask::Leave => mix.add(4),
        };
        match &message.body {
            Body::Request(ask) => of_ask(ask),
            Body::Reply { ask, answer, server } => {
                match ask {
                    // What was asked in an acquire has no part in what its answer means.
                    Ask::Acquire { .. } => mix.add(5 + age * 8),
                    ask => of_ask(ask),
                }
                let took = (server - World::store_at(message.sent)).min(micros(TTL));
                let is_ending = matches!(ask, Ask::Release { .. } | Ask::Leave);
                mix.add(if is_ending { u64::from(*server > state.requests_until) } else { took });
                match answer {
                    Answer::Granted { fence } => mix.add(1 + fences.of(*fence) * 8),
                    Answer::Waiting { joined_at, seen } => {
                        mix.add(2 + places.of(*joined_at) * 8);
                        mix.add(fences.of(*seen));
                    }
                    Answer::NotHeld => mix.add(3),
                    Answer::Done => mix.add(4),
                    Answer::TooLate => mix.add(5),
                }
            }
            Body::Push { fence, term, .. } => {
                mix.add(6 + age * 8);
                mix.add(fences.of(*fence));
                mix.add(micros(*term));
            }
        }
        mix.0
    }

    /// What the record knows of a client.
    fn in_the_record(&self, client: u8, places: &Ranks, mix: &mut Mix) {
        let store = self.store_now();
        if let Some(holder) = &self.record.holder {
            let (who, attempt) = owner(&holder.token);
            let left = until(holder.expires + 1, store.lease / 1_000);
            // An expired lease is none.
            if who == client && left > 0 {
                mix.add(left * 16 + u64::from(attempt));
            }
        }
        for waiter in &self.record.queue {
            let (who, attempt) = owner(&waiter.token);
            if who == client {
                mix.add(u64::from(attempt) + places.of(waiter.joined_at) * 16);
                // Put forward by the pause.
                let pause = self.scope.pause;
                let most = super::LAPSE + pause + Duration::from_micros(1);
                mix.add(ago(waiter.beat, store.lease + micros(pause), most));
            }
        }
    }
}
