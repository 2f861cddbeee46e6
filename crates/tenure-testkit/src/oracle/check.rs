//! S1 and S2: exclusion and fences.
//!
//! S1 needs no judgement: believed intervals on a name overlap or they don't. S2 does, because a client
//! writes a grant down some time after the store made it. All that is certain is that the store made it
//! between the request (or `since`, if the client knows better) and the stamp. So fences must grow from
//! one grant to the next *if the first was written down before the second can have been made*, and no two
//! grants may share a fence. Where that is not certain, but both leases were alive when they were written
//! down, in the wrong order of fences, then either the fences went back or two leases were valid at once
//! in the store. Exclusion is then not proved: it counts under S1, which a store that lost its data may
//! break, where fences must not. A client that logs `since` leaves few such pairs.

use super::belief::{Belief, Beliefs};
use super::event::{Event, What};
use super::history::History;
use super::verdict::{Check, Verdict, readable};
use std::collections::{BTreeMap, BTreeSet};

/// The logs make sense: no event refers to a grant that never was.
pub(super) fn log(history: &History, beliefs: &Beliefs<'_>) -> Verdict {
    let mut verdict = Verdict::new(Check::Log, history);
    verdict.count("events", history.events().len());
    verdict.count("torn lines", history.torn());
    verdict.violations.extend_from_slice(&beliefs.nonsense);
    verdict
}

/// S1: no two believed intervals on one name overlap, tolerance 0.
pub(super) fn exclusion(history: &History, beliefs: &Beliefs<'_>) -> Verdict {
    let mut verdict = Verdict::new(Check::S1, history);
    verdict.count("names", history.names().len());
    verdict.count("clients", history.clients().len());
    let (mut stillborn, mut inverted) = (0, 0);
    for (name, beliefs) in beliefs.by_name() {
        let mut longest: Option<&Belief<'_>> = None;
        let mut highest: Option<&Belief<'_>> = None;
        for belief in beliefs {
            if !belief.was_live() {
                stillborn += 1;
                continue;
            }
            if let Some(before) = longest
                && belief.span().length() > 0
                && belief.granted.at < before.span().until
            {
                let both = before.span().until.min(belief.span().until) - belief.granted.at;
                let why = format!("two believe to hold `{name}`, for {}", readable(both));
                verdict.violate(why, ends(before).chain(ends(belief)));
            } else if let Some(before) = highest
                && belief.fence < before.fence
                && before.granted.at < belief.granted.at
                && !is_certainly_before(before, belief)
            {
                inverted += 1;
                let why =
                    format!("two leases on `{name}` were valid at once in the store, or fences went back");
                verdict.violate(why, ends(before).chain(ends(belief)));
            }
            longest = longest.filter(|b| b.span().until >= belief.span().until).or(Some(belief));
            highest = highest.filter(|b| b.fence >= belief.fence).or(Some(belief));
        }
    }
    verdict.count("of them expired on arrival", stillborn);
    verdict.count("out of order", inverted);
    verdict
}

/// The grant and what ended the belief: an event, or the deadline of the last renewal or of the grant.
fn ends<'h>(belief: &Belief<'h>) -> impl Iterator<Item = &'h Event> {
    let until = belief.span().until;
    let let_go = [belief.released, belief.lost, belief.death].into_iter().flatten();
    let end = let_go.into_iter().find(|event| event.at == until).or(belief.renewed);
    std::iter::once(belief.granted).chain(end)
}

fn is_certainly_before(before: &Belief<'_>, after: &Belief<'_>) -> bool {
    before.granted.at < after.since
}

/// S2: fences strictly increase in the order of grants, and the resource takes no write that is stale.
pub(super) fn fences(history: &History, beliefs: &Beliefs<'_>) -> Verdict {
    let mut verdict = Verdict::new(Check::S2, history);
    for (name, mut made) in beliefs.by_name() {
        let stamped = made.clone();
        made.sort_by_key(|belief| belief.since);
        let (mut next, mut highest): (usize, Option<&Belief<'_>>) = (0, None);
        for belief in made {
            while let Some(before) = stamped.get(next).filter(|b| is_certainly_before(b, belief)) {
                highest = highest.filter(|b| b.fence >= before.fence).or(Some(*before));
                next += 1;
            }
            if let Some(before) = highest.filter(|before| before.fence > belief.fence) {
                let why =
                    format!("the fence of `{name}` went back from {} to {}", before.fence, belief.fence);
                verdict.violate(why, [before.granted, belief.granted]);
            }
        }
        let mut owners: BTreeMap<u64, &Belief<'_>> = BTreeMap::new();
        for belief in stamped {
            if let Some(other) = owners.insert(belief.fence, belief) {
                let why = format!("the fence {} of `{name}` was granted twice", belief.fence);
                verdict.violate(why, [other.granted, belief.granted]);
            }
        }
    }
    writes(history, beliefs, &mut verdict);
    verdict
}

/// The resource's side of S2, in the resource's own order: `seq`, not the stamps.
fn writes(history: &History, beliefs: &Beliefs<'_>, verdict: &mut Verdict) {
    let granted: BTreeSet<_> = beliefs.all.iter().map(|belief| (belief.name, belief.fence)).collect();
    let mut accepted: Vec<(&str, u64, u64, &Event)> = Vec::new();
    let mut rejected = 0;
    for event in history.events() {
        match &event.what {
            What::Accepted { name, fence, seq } => {
                accepted.push((name, *seq, *fence, event));
                if !granted.contains(&(name.as_str(), *fence)) {
                    verdict.violate(format!("`{name}` took a fence that was never granted"), [event]);
                }
            }
            What::Rejected { name, fence, last } => {
                rejected += 1;
                if fence >= last {
                    verdict.violate(format!("`{name}` rejected a write that was not stale"), [event]);
                }
            }
            _ => {}
        }
    }
    accepted.sort_by_key(|(name, seq, ..)| (*name, *seq));
    for pair in accepted.windows(2) {
        let [(name, seq, fence, event), (next_name, next_seq, next_fence, next)] = pair else {
            continue;
        };
        if name == next_name && seq == next_seq {
            verdict.violate(format!("`{name}` took two writes as its number {seq}"), [*event, *next]);
        } else if name == next_name && fence > next_fence {
            verdict.violate(format!("`{name}` took a stale write after one with {fence}"), [*event, *next]);
        }
    }
    verdict.count("writes accepted", accepted.len());
    verdict.count("stale writes rejected", rejected);
}
