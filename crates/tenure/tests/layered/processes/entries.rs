//! Who entered while Redis was away.
//!
//! What is judged as that: a grant to a request that was made after Redis had gone away for its process, and before it was back. Whatever was
//! asked before may have been granted in time.

use std::collections::BTreeMap;

use tenure_testkit::oracle::{Event, History, Nanos, What};

/// How many requests were granted, by policy.
pub(super) struct Entries {
    /// Made and granted while Redis was away for whoever made them.
    pub(super) inside: BTreeMap<String, usize>,
    pub(super) outside: BTreeMap<String, usize>,
}

/// A time in which Redis was away for the victim, or for all.
struct Span {
    from: Nanos,
    to: Nanos,
    victim: Option<String>,
}

impl Span {
    fn has(&self, asked_at: Nanos, granted: &Event) -> bool {
        let concerns = self.victim.as_ref().is_none_or(|victim| Event::concerns(victim, &granted.client));
        concerns && self.from < asked_at && granted.at < self.to
    }
}

impl Entries {
    pub(super) fn of(history: &History) -> Self {
        let (spans, mut asked) = (spans(history), BTreeMap::new());
        let mut entries = Entries { inside: BTreeMap::new(), outside: BTreeMap::new() };
        for event in history.events() {
            match &event.what {
                What::Requested { .. } => drop(asked.insert(event.client.clone(), event.at)),
                What::Granted { .. } => {
                    let asked_at = asked[&event.client];
                    let is_away = spans.iter().any(|span| span.has(asked_at, event));
                    let policy = event.client.split('-').next().unwrap_or_default().to_owned();
                    let counts = if is_away { &mut entries.inside } else { &mut entries.outside };
                    *counts.entry(policy).or_insert(0) += 1;
                }
                _ => {}
            }
        }
        entries
    }
}

/// Those that ended.
fn spans(history: &History) -> Vec<Span> {
    let (mut spans, mut begun) = (Vec::new(), BTreeMap::new());
    for event in history.events() {
        match &event.what {
            What::Fault { victim, .. } => drop(begun.insert(victim.clone(), event.at)),
            What::Healed { victim, .. } => {
                let from = begun.remove(victim).expect("a fault that began");
                spans.push(Span { from, to: event.at, victim: victim.clone() });
            }
            _ => {}
        }
    }
    spans
}
