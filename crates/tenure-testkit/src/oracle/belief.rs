//! Who believed to hold what, and until when.
//!
//! A belief begins when the client was told of the grant, and ends at the first of: the release was called,
//! the loss was told, the client was dead, the latest deadline that it stated. A renewal that is in the
//! log only after the earlier deadline still counts from the beginning: the holder's keeper may have known
//! before its task wrote it down, and a lock that lets a holder come back to life after its deadline must
//! be caught. A silent client believes until its deadline, as a process that was stopped does.

use super::event::{Event, Nanos, What};
use super::history::History;
use super::span::Span;
use super::verdict::Violation;
use std::collections::{BTreeMap, HashMap};

/// One grant, and what became of it.
#[derive(Debug)]
pub(super) struct Belief<'h> {
    pub(super) granted: &'h Event,
    pub(super) name: &'h str,
    pub(super) fence: u64,
    /// The store can't have made the grant before this.
    pub(super) since: Nanos,
    pub(super) deadline: Nanos,
    /// The renewal that gave it this deadline, if not the grant.
    pub(super) renewed: Option<&'h Event>,
    pub(super) released: Option<&'h Event>,
    pub(super) lost: Option<&'h Event>,
    pub(super) death: Option<&'h Event>,
}

impl Belief<'_> {
    /// The time in which it was believed; empty if the deadline had passed before the client knew of it.
    pub(super) fn span(&self) -> Span {
        let let_go = self.let_go().unwrap_or(Nanos::MAX);
        Span { from: self.granted.at, until: self.deadline.min(let_go) }
    }

    /// When the client itself ended it, or was told, or died: anything but a deadline that passed unseen.
    pub(super) fn let_go(&self) -> Option<Nanos> {
        [self.released, self.lost, self.death].into_iter().flatten().map(|event| event.at).min()
    }

    /// Whether the lease was alive when the client wrote the grant down.
    pub(super) fn was_live(&self) -> bool {
        self.granted.at < self.deadline
    }
}

/// All beliefs of a history, and what in the logs makes no sense.
#[derive(Debug)]
pub(super) struct Beliefs<'h> {
    pub(super) all: Vec<Belief<'h>>,
    pub(super) nonsense: Vec<Violation>,
}

impl<'h> Beliefs<'h> {
    pub(super) fn of(history: &'h History) -> Self {
        let mut beliefs = Self { all: Vec::new(), nonsense: Vec::new() };
        let deaths = history.deaths();
        let mut requests: HashMap<(&str, &str), Nanos> = HashMap::new();
        let mut latest: HashMap<(&str, &str, u64), usize> = HashMap::new();
        for event in history.events() {
            let client = event.client.as_str();
            match &event.what {
                What::Requested { name } => {
                    requests.insert((client, name), event.at);
                }
                What::GaveUp { name } => {
                    requests.remove(&(client, name.as_str()));
                }
                What::Granted { name, fence, deadline, since } => {
                    let requested = requests.remove(&(client, name.as_str()));
                    if requested.is_none() {
                        beliefs.nonsense.push(Violation::new("granted without a request", [event]));
                    }
                    latest.insert((client, name, *fence), beliefs.all.len());
                    beliefs.all.push(Belief {
                        granted: event,
                        name,
                        fence: *fence,
                        since: since.unwrap_or(0).max(requested.unwrap_or(0)),
                        deadline: *deadline,
                        renewed: None,
                        released: None,
                        lost: None,
                        death: deaths.get(client).copied(),
                    });
                }
                What::Renewed { name, fence, .. }
                | What::Released { name, fence }
                | What::Lost { name, fence } => match latest.get(&(client, name.as_str(), *fence)) {
                    Some(index) => beliefs.go_on(*index, event),
                    None => {
                        let why = "a fence that this client was not granted";
                        beliefs.nonsense.push(Violation::new(why, [event]));
                    }
                },
                _ => {}
            }
        }
        beliefs
    }

    /// What a holder says of a grant that it has. To be told of a loss in the middle of a release, and to
    /// release after a loss, are both natural; to renew after either is not.
    fn go_on(&mut self, index: usize, event: &'h Event) {
        let belief = &mut self.all[index];
        match &event.what {
            What::Renewed { deadline, .. } => {
                if let Some(end) = belief.released.or(belief.lost) {
                    self.nonsense.push(Violation::new("renewed after its end", [end, event]));
                } else if *deadline > belief.deadline {
                    belief.deadline = *deadline;
                    belief.renewed = Some(event);
                }
            }
            What::Released { .. } => belief.released = belief.released.or(Some(event)),
            What::Lost { .. } => belief.lost = belief.lost.or(Some(event)),
            _ => {}
        }
    }

    /// The beliefs of each name, in the order in which the clients learned of their grants.
    pub(super) fn by_name(&self) -> BTreeMap<&'h str, Vec<&Belief<'h>>> {
        let mut names: BTreeMap<&str, Vec<&Belief<'_>>> = BTreeMap::new();
        for belief in &self.all {
            names.entry(belief.name).or_default().push(belief);
        }
        names
    }
}
