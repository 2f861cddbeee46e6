//! A world of clients, a network and a clock that only moves when something happens.
//!
//! One seed is one history, so a schedule that breaks a lock can be run again. Messages are lost, doubled,
//! overtake each other and may take longer than a lease; clients are stopped and killed; on demand the
//! store loses its data. A client that is stopped handles what is due when it goes on, in the old order,
//! as a process does after SIGCONT.

use super::event::{Event, Nanos, What};
use super::history::History;
use super::toy_client::Client;
use super::toy_store::{Command, Flaw, MS, Reply, Store, TTL};
use std::cmp::Reverse;
use std::collections::BTreeMap;

pub(super) const NAME: &str = "orders/42";
const CLIENTS: usize = 5;
/// Not zero: a client's wall clock may be behind.
const START: Nanos = 1_000_000 * MS;
const END: Nanos = START + 10_000 * MS;
/// What is not over by then never will be.
const HARD_END: Nanos = END + 5_000 * MS;

#[derive(Debug)]
pub(super) enum Act {
    Ask(usize),
    Resend(usize, u64),
    Renew(usize, u64),
    Finish(usize, u64),
    Deadline(usize, u64),
    AtStore(usize, Command, Nanos),
    AtClient(usize, Reply, Nanos),
    AtResource(usize, u64),
    Torture,
    Heal(usize),
}

impl Act {
    /// The client that must run for this to happen.
    fn client(&self) -> Option<usize> {
        match self {
            Self::Ask(client)
            | Self::Resend(client, _)
            | Self::Renew(client, _)
            | Self::Finish(client, _)
            | Self::Deadline(client, _)
            | Self::AtClient(client, ..) => Some(*client),
            Self::AtStore(..) | Self::AtResource(..) | Self::Torture | Self::Heal(_) => None,
        }
    }
}

pub(super) struct World {
    pub(super) now: Nanos,
    random: u64,
    turn: u64,
    agenda: BTreeMap<Reverse<(Nanos, u64)>, Act>,
    store: Store,
    pub(super) clients: Vec<Client>,
    pub(super) counter: u64,
    /// The resource: writes taken, highest fence.
    resource: (u64, u64),
    events: Vec<Event>,
    pub(super) flaw: Flaw,
    loses_data: bool,
}

impl World {
    /// The history of a lock with a flaw, or with none.
    pub(super) fn run(seed: u64, flaw: Flaw, loses_data: bool) -> History {
        let mut world = Self {
            now: START,
            random: seed,
            turn: 0,
            agenda: BTreeMap::new(),
            store: Store::new(flaw),
            clients: Vec::new(),
            counter: 0,
            resource: (0, 0),
            events: Vec::new(),
            flaw,
            loses_data,
        };
        (0..CLIENTS).for_each(|_| world.add_client());
        world.later(100 * MS, Act::Torture);
        while let Some((Reverse((at, _)), act)) = world.agenda.pop_last() {
            if at > HARD_END {
                break;
            }
            world.now = at;
            match act.client().map(|client| &world.clients[client]) {
                Some(client) if client.is_dead => {}
                Some(client) if client.stopped_until > at => world.later(client.stopped_until - at, act),
                _ => world.perform(act),
            }
        }
        for client in 0..world.clients.len() {
            if !world.clients[client].is_dead && world.clients[client].attempt.is_some() {
                world.say(client, What::GaveUp { name: NAME.to_owned() });
            }
        }
        world.torturer(What::Final { name: NAME.to_owned(), value: world.counter });
        History::from_events(world.events)
    }

    /// A number below `n`: splitmix64.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }

    pub(super) fn later(&mut self, delay: Nanos, act: Act) {
        self.turn += 1;
        self.agenda.insert(Reverse((self.now + delay, self.turn)), act);
    }

    pub(super) fn say(&mut self, client: usize, what: What) {
        self.events.push(Event { at: self.now, client: self.clients[client].id.clone(), what });
    }

    fn torturer(&mut self, what: What) {
        self.events.push(Event { at: self.now, client: "torturer".to_owned(), what });
    }

    fn add_client(&mut self) {
        let client = self.clients.len();
        let clock_behind = self.below(2 * TTL);
        self.clients.push(Client { id: format!("p{client}/t"), clock_behind, ..Client::default() });
        let delay = self.below(20 * MS);
        self.later(delay, Act::Ask(client));
    }

    /// Most messages are quick, some outlive a lease, some never arrive.
    pub(super) fn travel(&mut self) -> Option<Nanos> {
        match self.below(100) {
            0..3 => None,
            3..15 => Some(self.below(3 * TTL / 2)),
            _ => Some(MS / 10 + self.below(2 * MS)),
        }
    }

    pub(super) fn send(&mut self, client: usize, command: Command) {
        let copies = if self.below(20) == 0 { 2 } else { 1 };
        for _ in 0..copies {
            if let Some(delay) = self.travel() {
                self.later(delay, Act::AtStore(client, command, self.now));
            }
        }
    }

    fn perform(&mut self, act: Act) {
        match act {
            Act::Ask(client) if self.now < END => self.ask(client),
            Act::Ask(_) => {}
            Act::Resend(client, token) => self.resend(client, token),
            Act::AtStore(client, command, sent) => self.at_store(client, command, sent),
            Act::AtClient(client, reply, sent) => self.at_client(client, reply, sent),
            Act::Renew(client, token) => self.renew(client, token),
            Act::Deadline(client, fence) => self.finish(client, fence, true),
            Act::Finish(client, fence) => self.finish(client, fence, false),
            Act::AtResource(client, fence) => self.at_resource(client, fence),
            Act::Torture => self.torture(),
            Act::Heal(client) => {
                let victim = Some(self.clients[client].id.clone());
                self.torturer(What::Healed { kind: "stop".to_owned(), victim, name: None });
            }
        }
    }

    fn at_store(&mut self, client: usize, command: Command, sent: Nanos) {
        let reply = self.store.execute(command, self.now);
        if reply == Reply::Freed {
            for waiter in 0..self.clients.len() {
                if !self.clients[waiter].is_dead
                    && self.clients[waiter].attempt.is_some()
                    && let Some(delay) = self.travel()
                {
                    self.later(delay, Act::AtClient(waiter, Reply::Freed, sent));
                }
            }
            return;
        }
        if let Some(delay) = self.travel() {
            self.later(delay, Act::AtClient(client, reply, sent));
        }
        // the cruellest moment: with the grant on its way
        if matches!(reply, Reply::Granted { .. }) && self.now < END && self.below(30) == 0 {
            self.stop(client);
        }
    }

    fn at_resource(&mut self, client: usize, fence: u64) {
        let (seq, last) = self.resource;
        let name = NAME.to_owned();
        if fence >= last || self.flaw == Flaw::TakesStaleWrites {
            self.resource = (seq + 1, fence);
            self.say(client, What::Accepted { name, fence, seq: seq + 1 });
        } else {
            self.say(client, What::Rejected { name, fence, last });
        }
    }

    /// Stops or kills a client, or makes the store forget; holders are preferred, as they hurt most.
    fn torture(&mut self) {
        if self.now >= END {
            return;
        }
        let living: Vec<_> =
            (0..self.clients.len()).filter(|client| !self.clients[*client].is_dead).collect();
        let holder = living.iter().copied().find(|client| !self.clients[*client].holds.is_empty());
        let anyone = living[usize::try_from(self.below(living.len() as u64)).unwrap_or(0)];
        let client = if self.below(2) == 0 { holder.unwrap_or(anyone) } else { anyone };
        let id = self.clients[client].id.clone();
        match self.below(4) {
            0 => {
                self.torturer(What::Killed { victim: id });
                self.clients[client].is_dead = true;
                self.add_client();
            }
            1 if self.loses_data && holder.is_some() => {
                self.torturer(What::Fault { kind: "data-loss".to_owned(), victim: None, name: None });
                self.store.lose_data();
            }
            _ => self.stop(client),
        }
        let delay = 100 * MS + self.below(300 * MS);
        self.later(delay, Act::Torture);
    }

    fn stop(&mut self, client: usize) {
        let length = TTL / 2 + self.below(5 * TTL / 2);
        if self.clients[client].stopped_until <= self.now && !self.clients[client].is_dead {
            let victim = Some(self.clients[client].id.clone());
            self.torturer(What::Fault { kind: "stop".to_owned(), victim, name: None });
            self.clients[client].stopped_until = self.now + length;
            self.later(length, Act::Heal(client));
        }
    }
}
