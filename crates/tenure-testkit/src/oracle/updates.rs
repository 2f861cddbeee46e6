//! S3: an unfenced read, sleep, write under the lock loses no update.
//!
//! Each read must see what the write before it left, so the log is a chain, and its length is the final
//! value. Two things bend the chain without a fault of the lock. A client that was killed after its read
//! may or may not have written: both values are possible next. And a process that was stopped between its
//! last look at the guard and its write overwrites whatever it likes; no lease excludes that (it is what
//! fences are for). Such a write, outside the belief that it was read in, is counted as stale, and after
//! it both values are possible. The counter of a name starts at 0.

use super::belief::Beliefs;
use super::event::{Event, Nanos, What};
use super::history::History;
use super::verdict::{Check, Verdict};
use std::collections::{BTreeMap, HashMap};

/// What may have changed a counter, in the order of time.
enum Step<'h> {
    /// A read and its write.
    Done { read: &'h Event, wrote: &'h Event, from: u64, to: u64, is_stale: bool },
    /// A client died between the two.
    Maybe { to: u64 },
}

#[derive(Default)]
struct Chain<'h> {
    steps: Vec<(Nanos, Step<'h>)>,
    last: Option<(&'h Event, u64)>,
}

pub(super) fn updates(history: &History, beliefs: &Beliefs<'_>) -> Verdict {
    let mut verdict = Verdict::new(Check::S3, history);
    let chains = chains(history, beliefs, &mut verdict);
    let (mut completed, mut stale, mut torn) = (0, 0, 0);
    for (name, mut chain) in chains {
        chain.steps.sort_by_key(|(at, _)| *at);
        let (mut own_completed, mut own_stale, mut own_torn) = (0, 0, 0);
        let mut possible = vec![0];
        let mut before: Option<&Event> = None;
        for (_, step) in chain.steps {
            match step {
                Step::Maybe { to } => {
                    own_torn += 1;
                    possible.push(to);
                }
                Step::Done { wrote, to, is_stale: true, .. } => {
                    own_stale += 1;
                    possible.push(to);
                    before = Some(wrote);
                }
                Step::Done { read, wrote, from, to, is_stale: false } => {
                    own_completed += 1;
                    if !possible.contains(&from) {
                        let why = format!(
                            "an update of `{name}` was lost: {possible:?} was there, {from} was read"
                        );
                        verdict.violate(why, before.into_iter().chain([read, wrote]));
                    }
                    possible = vec![to];
                    before = Some(wrote);
                }
            }
        }
        match chain.last {
            None => verdict.violate(format!("nobody recorded the final value of `{name}`"), before),
            Some((event, value)) => {
                let is_count = (own_completed..=own_completed + own_torn).contains(&value);
                if !possible.contains(&value) || (own_stale == 0 && !is_count) {
                    let why = format!("`{name}` ended at {value} after {own_completed} updates");
                    verdict.violate(why, before.into_iter().chain([event]));
                }
            }
        }
        (completed, stale, torn) = (completed + own_completed, stale + own_stale, torn + own_torn);
    }
    let in_usize = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    verdict.require(in_usize(completed), "no update was made under the lock");
    verdict.count("updates", in_usize(completed));
    verdict.count("made after the loss", in_usize(stale));
    verdict.count("cut off by a kill", in_usize(torn));
    verdict
}

fn chains<'h>(
    history: &'h History,
    beliefs: &Beliefs<'h>,
    verdict: &mut Verdict,
) -> BTreeMap<&'h str, Chain<'h>> {
    let mut chains: BTreeMap<&str, Chain<'_>> = BTreeMap::new();
    let mut reads: HashMap<(&str, &str), (&Event, u64)> = HashMap::new();
    let mut spans: HashMap<(&str, &str), Vec<_>> = HashMap::new();
    for belief in &beliefs.all {
        spans.entry((&belief.granted.client, belief.name)).or_default().push(belief.span());
    }
    for event in history.events() {
        let client = event.client.as_str();
        match &event.what {
            What::Read { name, value } => {
                reads.insert((client, name), (event, *value));
            }
            What::Wrote { name, value } => {
                let Some((read, from)) = reads.remove(&(client, name.as_str())) else {
                    verdict.violate(format!("`{name}` was written without a read"), [event]);
                    continue;
                };
                let covers = |span: &super::span::Span| span.from <= read.at && event.at <= span.until;
                let own = spans.get(&(client, name.as_str())).map_or(&[][..], Vec::as_slice);
                let latest = own.partition_point(|span| span.from <= read.at);
                let is_stale = !own[..latest].last().is_some_and(covers);
                let step = Step::Done { read, wrote: event, from, to: *value, is_stale };
                chains.entry(name).or_default().steps.push((event.at, step));
            }
            // who goes on without having written did not write
            What::Released { name, .. } | What::Requested { name } => {
                reads.remove(&(client, name.as_str()));
            }
            What::Final { name, value } => {
                chains.entry(name).or_default().last = Some((event, *value));
            }
            _ => {}
        }
    }
    let deaths = history.deaths();
    for ((client, name), (_, from)) in reads {
        if let Some(death) = deaths.get(client) {
            chains.entry(name).or_default().steps.push((death.at, Step::Maybe { to: from + 1 }));
        }
    }
    chains
}
