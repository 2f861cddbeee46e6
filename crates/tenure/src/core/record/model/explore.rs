//! Every world that can be reached from the first one, breadth first, so that the first counterexample is a shortest one.
//!
//! Only a fingerprint of each world is kept, and how it was reached; a counterexample is the list of steps that lead to it.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use super::Scope;
use super::client::{Client, Phase};
use super::world::{Action, Budget, Violation, World, owner};
use crate::time::clock::micros;

/// A fingerprint is a hash already.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("fingerprints are numbers")
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// What an exploration found.
pub(super) struct Found {
    pub(super) worlds: usize,
    pub(super) steps: usize,
    /// From how many worlds it was seen that, without further faults, everybody gets the name.
    pub(super) continued: usize,
    pub(super) violation: Option<(Violation, Vec<Action>)>,
}

/// Explores a scope until its end, or until a violation of the kind that is looked for; of any kind when `only` is `None`.
pub(super) fn explore(scope: &'static Scope, only: Option<Violation>) -> Found {
    let mut seen: HashSet<u64, BuildHasherDefault<AsItIs>> = HashSet::default();
    let mut ways: Vec<(u32, Action)> = vec![(0, Action::Tick)];
    let mut found = Found { worlds: 1, steps: 0, continued: 0, violation: None };
    let first = World::new(scope);
    seen.insert(first.fingerprint());
    let mut frontier = vec![(0u32, first)];
    let mut actions = Vec::new();
    while !frontier.is_empty() {
        let mut next = Vec::new();
        for (index, world) in frontier {
            actions.clear();
            world.actions(&mut actions);
            for action in &actions {
                found.steps += 1;
                let mut successor = world.clone();
                successor.act(*action);
                let fingerprint = successor.fingerprint();
                if !seen.insert(fingerprint) {
                    continue;
                }
                let new = u32::try_from(ways.len()).expect("fewer worlds than that");
                ways.push((index, *action));
                found.worlds += 1;
                let looks_for = |violation| only.is_none_or(|only| only == violation);
                let mut violation = successor.violation.filter(|violation| looks_for(*violation));
                if violation.is_none()
                    && looks_for(Violation::Stuck)
                    && fingerprint % scope.continue_one_in == 0
                {
                    found.continued += 1;
                    violation = successor.is_stuck().then_some(Violation::Stuck);
                }
                if let Some(violation) = violation {
                    found.violation = Some((violation, way_to(new, &ways)));
                    return found;
                }
                // What follows a violation that is not looked for is still a world of this scope.
                successor.violation = None;
                next.push((new, successor));
            }
        }
        frontier = next;
    }
    found
}

fn way_to(mut index: u32, ways: &[(u32, Action)]) -> Vec<Action> {
    let mut way = Vec::new();
    while index != 0 {
        let (before, action) = ways[index as usize];
        way.push(action);
        index = before;
    }
    way.reverse();
    way
}

impl World {
    /// All that can happen next.
    pub(super) fn actions(&self, actions: &mut Vec<Action>) {
        let after = self.now + micros(self.scope.tick);
        let timeouts = self.clients.iter().filter(|client| client.would_time_out(after)).count();
        if timeouts <= usize::from(self.budget.unanswered) {
            actions.push(Action::Tick);
        }
        for index in 0..u8::try_from(self.messages.len()).expect("few messages") {
            actions.push(Action::Deliver(index));
            if self.budget.duplicates > 0 {
                actions.push(Action::Duplicate(index));
            }
        }
        for (client, state) in (0..).zip(&self.clients) {
            state.actions(client, self, actions);
            match state.phase {
                Phase::Crashed { buried: false } => actions.push(Action::Bury(client)),
                Phase::Crashed { .. } | Phase::Idle => {}
                _ if self.budget.crashes > 0 => actions.push(Action::Crash(client)),
                _ => {}
            }
        }
        let now = self.store_now().lease / 1_000;
        let is_free = self.record.holder.as_ref().is_none_or(|holder| now > holder.expires);
        if is_free && !self.record.queue.is_empty() {
            actions.push(Action::Touch);
        }
        if self.budget.set_backs > 0 {
            actions.push(Action::SetWallBack);
        }
    }

    /// What must hold in every world.
    pub(super) fn check(&mut self) {
        let now = self.store_now().lease;
        let valid = self.record.holder.as_ref().filter(|holder| now / 1_000 <= holder.expires);
        let holder = valid.map(|holder| owner(&holder.token));
        let queue = self.record.queue.iter();
        let living = queue.filter(|waiter| now.saturating_sub(waiter.beat) <= micros(super::LAPSE));
        let present = holder.into_iter().chain(living.map(|waiter| owner(&waiter.token)));
        let believes = |(client, state): &(u8, &Client)| state.believes(*client, self.now);
        let mut believers = (0..).zip(&self.clients).filter(believes);
        let violation = match (believers.next(), believers.next()) {
            (Some(_), Some(_)) => Some(Violation::TwoBelieve),
            (Some((client, state)), None) if holder != Some((client, state.attempt)) => {
                Some(Violation::Baseless)
            }
            _ if self.is_haunted(present) => Some(Violation::Haunted),
            _ => None,
        };
        if let Some(violation) = violation {
            self.violation.get_or_insert(violation);
        }
    }

    fn is_haunted(&self, mut present: impl Iterator<Item = (u8, u8)>) -> bool {
        let now = World::store_at(self.now);
        present.any(|(client, attempt)| {
            let over = &self.clients[usize::from(client)].over;
            over.iter().any(|(done, forgotten)| *done == attempt && now > *forgotten)
        })
    }

    /// Whether somebody living is left waiting, or something is left behind, when from here on nothing fails: once with all messages
    /// in flight delivered, once with all of them lost.
    fn is_stuck(&self) -> bool {
        let mut all_lost = self.clone();
        all_lost.messages.clear();
        self.clone().continues_to_the_end().is_none() || all_lost.continues_to_the_end().is_none()
    }

    fn continues_to_the_end(mut self) -> Option<()> {
        self.budget = Budget { unanswered: u8::MAX, ..Budget::NONE };
        let mut waiting: Vec<u8> =
            (0..).zip(&self.clients).filter(|(_, state)| state.waits()).map(|(client, _)| client).collect();
        let crashed =
            self.clients.iter().filter(|client| matches!(client.phase, Phase::Crashed { .. })).count();
        let patience = micros(self.scope.patience) + crashed as u64 * micros(self.scope.patience_per_crash);
        let (end, mut actions) = (self.now + patience, Vec::new());
        loop {
            // Promptly: everything is delivered, everybody does what it can, and only then time passes.
            loop {
                if !self.messages.is_empty() {
                    self.act(Action::Deliver(0));
                    continue;
                }
                actions.clear();
                for (client, state) in (0..).zip(&self.clients) {
                    if state.believes(client, self.now) {
                        waiting.retain(|waiter| *waiter != client);
                    }
                    state.actions(client, &self, &mut actions);
                }
                let prompt = |action: &&Action| {
                    !matches!(action, Action::Join(_) | Action::Renew(_) | Action::RenewLonger(_))
                };
                let Some(action) = actions.iter().find(prompt) else {
                    break;
                };
                self.act(*action);
            }
            if self.violation.is_some() {
                return None;
            }
            let done =
                self.clients.iter().all(|client| matches!(client.phase, Phase::Idle | Phase::Crashed { .. }));
            if done && waiting.is_empty() && self.record.is_idle(self.store_now()) {
                return Some(());
            }
            if self.now >= end {
                return None;
            }
            self.act(Action::Tick);
        }
    }
}
