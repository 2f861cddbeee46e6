//! S4 and L1: what must happen in time.
//!
//! S4 is asked of the holders that a fault found. Some faults take the lease for certain (an operator's
//! DEL): the holder must be told within a bound from the fault. Others may take it (a stopped process, a
//! cut cable): whoever then lets its deadline pass without a release must be told at that deadline, or as
//! soon as it can run again. Who released or died meanwhile needs no telling.
//!
//! L1 counts the time in which someone waits and nobody *believes to hold* the name. A long hold is no
//! fault of the lock, while a holder that died ends its belief, so what is measured is the recovery. Time
//! in which the store itself was at fault does not count, nor does a waiter that was itself stopped or cut
//! off. The clock starts again when the fault ends: "recovers within" is counted from there.

use super::belief::{Belief, Beliefs};
use super::event::{Event, Nanos, What};
use super::history::History;
use super::span::{Span, subtract, union};
use super::verdict::{Check, Verdict, readable};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// When a holder must have been told that it lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The fault takes the lease of every holder concerned, who must know this long after it.
    After(Duration),
    /// The fault may make a deadline pass; the holder must know this long after its deadline.
    AfterDeadline(Duration),
    /// The same, counted from the deadline or from the end of the fault, and of any other that befell
    /// this client, whichever is later.
    AfterHeal(Duration),
}

/// A fault, and the time that it lasted.
struct Window<'h> {
    fault: &'h Event,
    kind: &'h str,
    victim: Option<&'h str>,
    name: Option<&'h str>,
    span: Span,
}

impl Window<'_> {
    fn concerns(&self, client: &str, name: &str) -> bool {
        self.victim.is_none_or(|victim| Event::concerns(victim, client))
            && self.name.is_none_or(|own| own == name)
    }
}

/// The faults in the order of time. One that never heals is an instant.
fn windows(history: &History) -> Vec<Window<'_>> {
    let mut windows: Vec<Window<'_>> = Vec::new();
    let mut open: HashMap<(&str, Option<&str>, Option<&str>), usize> = HashMap::new();
    for event in history.events() {
        match &event.what {
            What::Fault { kind, victim, name } => {
                let (victim, name) = (victim.as_deref(), name.as_deref());
                open.insert((kind, victim, name), windows.len());
                let span = Span { from: event.at, until: event.at };
                windows.push(Window { fault: event, kind, victim, name, span });
            }
            What::Healed { kind, victim, name } => {
                if let Some(index) = open.remove(&(kind.as_str(), victim.as_deref(), name.as_deref())) {
                    windows[index].span.until = event.at;
                }
            }
            _ => {}
        }
    }
    windows
}

/// S4: the holders that a fault of this kind found are told within its bound.
pub(super) fn told(history: &History, beliefs: &Beliefs<'_>, kind: &str, bound: Told) -> Verdict {
    let mut verdict = Verdict::new(Check::S4, history);
    let windows = windows(history);
    let (mut concerned, mut undecided, mut losses) = (0, 0, 0);
    for belief in &beliefs.all {
        let own = windows.iter().filter(|window| window.concerns(&belief.granted.client, belief.name));
        let found = |window: &&Window<'_>| window.kind == kind && belief.span().has(window.span.from);
        let Some(first) = own.clone().find(found) else {
            continue;
        };
        concerned += 1;
        let delays = own.filter(|window| window.kind == kind || window.victim.is_some());
        let Some(due) = due(belief, bound, first, delays) else {
            continue;
        };
        losses += 1;
        if belief.let_go().is_some_and(|at| at <= due) {
            continue;
        }
        if due >= history.end() {
            undecided += 1;
            continue;
        }
        let late = belief.let_go().map_or("never".to_owned(), |at| format!("{} late", readable(at - due)));
        let why = format!("the loss of `{}` by `{kind}` was told {late}", belief.name);
        let events =
            [Some(first.fault), Some(belief.granted), belief.lost.or(belief.released).or(belief.death)];
        verdict.violate(why, events.into_iter().flatten());
    }
    verdict.require(concerned, &format!("no fault `{kind}` found a holder"));
    let of_kind = windows.iter().filter(|window| window.kind == kind).count();
    verdict.count(&format!("of kind {kind}"), of_kind);
    verdict.count("holders found", concerned);
    verdict.count("losses", losses);
    verdict.count("ended too early to tell", undecided);
    verdict
}

/// When the holder must know, if it lost at all.
fn due<'w>(
    belief: &Belief<'_>,
    bound: Told,
    first: &Window<'_>,
    delays: impl Iterator<Item = &'w Window<'w>>,
) -> Option<Nanos> {
    let nanos = |bound: Duration| u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
    let did_lose = || belief.let_go().is_none_or(|at| at >= belief.deadline) || belief.lost.is_some();
    match bound {
        Told::After(bound) => Some(first.fault.at.saturating_add(nanos(bound))),
        Told::AfterDeadline(bound) => did_lose().then(|| belief.deadline.saturating_add(nanos(bound))),
        Told::AfterHeal(bound) => did_lose().then(|| {
            // a holder that is stopped again before it could be told is given time again
            delays.fold(belief.deadline.saturating_add(nanos(bound)), |due, window| {
                let is_delayed = window.span.from <= due && window.span.until > belief.deadline;
                if is_delayed { due.max(window.span.until.saturating_add(nanos(bound))) } else { due }
            })
        }),
    }
}

/// L1: the longest time in which a name was free while someone waited, faults apart.
pub(super) fn idle(history: &History, beliefs: &Beliefs<'_>, bound: Duration) -> Verdict {
    let mut verdict = Verdict::new(Check::L1, history);
    let windows = windows(history);
    let held = beliefs.by_name();
    let (mut waits, mut longest) = (0, 0);
    for (name, waiting) in waits_by_name(history) {
        waits += waiting.len();
        let waited = waiting.iter().flat_map(|(requested, span)| {
            let client = requested.client.as_str();
            let own = windows.iter().filter(|w| w.victim.is_some() && w.concerns(client, name));
            subtract(vec![*span], own.map(|window| window.span).collect())
        });
        let at_fault = windows.iter().filter(|w| w.victim.is_none() && w.concerns("", name)).map(|w| w.span);
        let believed = held.get(name).into_iter().flatten().map(|belief| belief.span());
        for gap in subtract(union(waited.collect()), believed.chain(at_fault).collect()) {
            longest = longest.max(gap.length());
            if u128::from(gap.length()) > bound.as_nanos() {
                let waiter = waiting.iter().find(|(_, span)| span.from < gap.until && gap.from < span.until);
                let next = held.get(name).into_iter().flatten().find(|b| b.granted.at >= gap.until);
                let why = format!("`{name}` was free for {} while one waited", readable(gap.length()));
                verdict.violate(why, waiter.map(|w| w.0).into_iter().chain(next.map(|b| b.granted)));
            }
        }
    }
    verdict.require(waits, "nobody waited");
    verdict.count("waits", waits);
    verdict.count(&format!("µs idle at the longest (of {})", bound.as_micros()), (longest / 1_000) as usize);
    verdict
}

/// Each request, and the time until it was granted, given up or ended by a death.
fn waits_by_name<'h>(history: &'h History) -> BTreeMap<&'h str, Vec<(&'h Event, Span)>> {
    let mut waits: BTreeMap<&str, Vec<(&Event, Span)>> = BTreeMap::new();
    let mut open: HashMap<(&str, &str), &Event> = HashMap::new();
    let mut close = |name, requested: &'h Event, until| {
        let span = Span { from: requested.at, until };
        waits.entry(name).or_default().push((requested, span));
    };
    for event in history.events() {
        match &event.what {
            What::Requested { name } => {
                open.entry((&event.client, name)).or_insert(event);
            }
            What::Granted { name, .. } | What::GaveUp { name } => {
                if let Some(requested) = open.remove(&(event.client.as_str(), name.as_str())) {
                    close(name, requested, event.at);
                }
            }
            _ => {}
        }
    }
    let deaths = history.deaths();
    for ((client, name), requested) in open {
        close(name, requested, deaths.get(client).map_or(history.end(), |death| death.at));
    }
    waits
}
