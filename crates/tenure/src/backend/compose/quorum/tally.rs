//! Counting: what the answers of several servers mean together, and the errors that list them.

use super::Group;
use super::member::WarmUp;
use super::round::Round;
use crate::core::record::{Holding, Reply};
use crate::types::error::{Error, ErrorKind};
use crate::types::owner::Token;

/// The holder that keeps a bid from its majority.
pub(super) struct Rival {
    pub(super) holding: Holding,
    pub(super) waiters: usize,
    /// The first server where it holds the name, and when our bid joined the queue there.
    pub(super) server: usize,
    pub(super) joined_at: Option<u64>,
    /// For certain; or if it also holds the servers that did not answer.
    pub(super) has_majority: bool,
    pub(super) may_have_majority: bool,
}

/// The servers that count and granted the name, each with its fence.
pub(super) fn granted<'a>(round: &'a Round, votes: &'a [bool]) -> impl Iterator<Item = (usize, u64)> + 'a {
    round.replies().filter_map(|(server, reply)| match reply {
        Reply::Granted { fence } if votes[server] => Some((server, *fence)),
        _ => None,
    })
}

/// How many servers that count granted or refused it.
pub(super) fn answered(round: &Round, votes: &[bool]) -> usize {
    let replies = round.replies().filter(|(server, reply)| votes[*server] && **reply != Reply::TooLate);
    replies.count()
}

/// The holder of the name, if the reply says so.
pub(super) fn holding(reply: &Reply) -> Option<&Holding> {
    match reply {
        Reply::Waiting { holding, .. } | Reply::Busy { holding, .. } => Some(holding),
        _ => None,
    }
}

/// The token for which most servers hold the name.
pub(super) fn most_common<'a>(tokens: impl Iterator<Item = &'a Token>) -> Option<(&'a Token, usize)> {
    let mut counts: Vec<(&Token, usize)> = Vec::new();
    for token in tokens {
        match counts.iter_mut().find(|(known, _)| *known == token) {
            Some((_, count)) => *count += 1,
            None => counts.push((token, 1)),
        }
    }
    counts.into_iter().max_by_key(|(_, count)| *count)
}

pub(super) fn rival(round: &Round, majority: usize) -> Option<Rival> {
    let tokens = round.replies().filter_map(|(_, reply)| holding(reply)).map(|holding| &holding.token);
    let (token, count) = most_common(tokens)?;
    let unknown = round.answers.len() - round.replies().count();
    let (server, reply) =
        round.replies().find(|(_, reply)| holding(reply).is_some_and(|it| it.token == *token))?;
    let (joined_at, waiters) = match reply {
        Reply::Waiting { joined_at, ahead, .. } => (Some(*joined_at), *ahead),
        Reply::Busy { waiters, .. } => (None, *waiters),
        _ => (None, 0),
    };
    let (has_majority, may_have_majority) = (count >= majority, count + unknown >= majority);
    let holding = holding(reply)?.clone();
    Some(Rival { holding, waiters, server, joined_at, has_majority, may_have_majority })
}

/// What the answers say of a lease that should be held.
pub(super) struct Held {
    pub(super) done: usize,
    /// Servers that do not hold it.
    pub(super) not_held: usize,
}

impl Held {
    /// Only servers that count can hold it; every server can say that it does not.
    pub(super) fn count(round: &Round, votes: &[bool]) -> Self {
        let mut held = Held { done: 0, not_held: 0 };
        for (server, reply) in round.replies() {
            match reply {
                Reply::Done | Reply::Granted { .. } if votes[server] => held.done += 1,
                Reply::NotHeld { .. } => held.not_held += 1,
                _ => {}
            }
        }
        held
    }
}

/// The other holder that most of the servers name which do not hold it for us, and how many they are.
pub(super) fn other_holder(round: &Round) -> Option<(Token, usize)> {
    let holders = round.replies().filter_map(|(_, reply)| match reply {
        Reply::NotHeld { holder } => holder.as_ref(),
        _ => None,
    });
    most_common(holders).map(|(token, count)| (token.clone(), count))
}

fn unfinished_undo() -> Error {
    Error::not_yet("still has to undo an earlier request")
}

/// An answer to a round, of one server: an error names its server.
type Outcome = Result<(), Error>;

impl Group {
    /// The error that says of each server what happened.
    pub(super) fn too_few(&self, what: &str, answers: &[Outcome]) -> Error {
        let errors: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
        let (count, all, majority) = (answers.len() - errors.len(), self.members.len(), self.majority());
        let what = format!("{count} of {all} servers {what}, {majority} are needed");
        let error = if errors.iter().any(|error| error.may_have_run()) {
            Error::unanswered(what)
        } else if count + errors.iter().filter(|error| error.is_worth_asking_again()).count() >= majority {
            Error::not_yet(what)
        } else {
            // A server that is away comes back; what all servers refuse stays refused.
            let kind = errors.first().map_or(ErrorKind::Unavailable, |error| error.kind());
            let is_common = errors.iter().all(|error| error.kind() == kind);
            Error::new(if is_common { kind } else { ErrorKind::Unavailable }, what)
        };
        let each = self.members.iter().zip(answers).map(|(member, answer)| match answer {
            Ok(()) => format!("{}: ok", member.label),
            Err(error) => error.summary(),
        });
        let error = error.because(each.collect::<Vec<_>>().join(", "));
        match self.remedies(answers) {
            Some(remedies) => error.fix(remedies),
            None => error,
        }
    }

    /// What to do: each remedy once, with the servers that it is for.
    fn remedies(&self, answers: &[Outcome]) -> Option<String> {
        let mut remedies: Vec<(&str, Vec<&str>)> = Vec::new();
        for (member, answer) in self.members.iter().zip(answers) {
            let Some(remedy) = answer.as_ref().err().and_then(Error::remedy) else { continue };
            match remedies.iter_mut().find(|(known, _)| *known == remedy) {
                Some((_, labels)) => labels.push(&member.label),
                None => remedies.push((remedy, vec![&member.label])),
            }
        }
        let is_one = remedies.len() == 1;
        let said = remedies.iter().map(|(remedy, labels)| match &labels[..] {
            [_] if is_one => (*remedy).to_owned(),
            [label] => format!("{label}: {remedy}"),
            labels => format!("each of {}: {remedy}", labels.join(", ")),
        });
        let said = said.collect::<Vec<_>>().join("; ");
        (!said.is_empty()).then_some(said)
    }

    /// One error of this group about a server. The errors of a backend name their server themselves.
    fn about(&self, server: usize, error: &Error) -> Outcome {
        Err(error.of(&self.members[server].label))
    }

    /// A server that has not answered, or was not asked because the token is unusable there.
    fn no_answer(&self, round: &Round, server: usize) -> Outcome {
        match round.is_pending(server) {
            true => self.about(server, &Error::unanswered("no answer")),
            false => self.about(server, &unfinished_undo()),
        }
    }

    fn each_server(&self, outcome: impl FnMut(usize) -> Outcome) -> Vec<Outcome> {
        (0..self.members.len()).map(outcome).collect()
    }

    /// Too few servers that count granted a request. If only warm-ups are missing, it says how long they last.
    pub(super) fn too_few_to_grant(&self, round: &Round, warm_ups: &[Option<WarmUp>]) -> Error {
        let outcomes = self.each_server(|server| match (&round.answers[server], warm_ups[server]) {
            (Some(Err(error)), _) => Err(error.clone()),
            (_, Some(WarmUp { age, left })) => {
                let what = format!(
                    "started {} s ago and may have forgotten leases (it counts in {} s)",
                    age.as_secs(),
                    left.as_secs()
                );
                self.about(server, &Error::unavailable(what))
            }
            (Some(Ok(Reply::TooLate)), _) => self.about(server, &Error::unavailable("reached too late")),
            (Some(Ok(_)), _) => Ok(()),
            (None, _) => self.no_answer(round, server),
        });
        let error = self.too_few("can be counted on", &outcomes);
        let mut lefts: Vec<_> = warm_ups.iter().flatten().map(|warm_up| warm_up.left).collect();
        lefts.sort_unstable();
        let missing = self.majority().saturating_sub(outcomes.iter().filter(|it| it.is_ok()).count());
        match missing.checked_sub(1).and_then(|last| lefts.get(last)) {
            Some(left) => error.fix(format!("try again in {} s", left.as_secs())),
            None => error,
        }
    }

    /// Too few servers that count hold a lease.
    pub(super) fn too_few_holders(&self, round: &Round, votes: &[bool]) -> Error {
        let outcomes = self.each_server(|server| match &round.answers[server] {
            Some(Err(error)) => Err(error.clone()),
            Some(Ok(Reply::NotHeld { .. })) => self.about(server, &Error::unavailable("does not hold it")),
            Some(Ok(_)) if !votes[server] => self.about(server, &unfinished_undo()),
            Some(Ok(_)) => Ok(()),
            None => self.no_answer(round, server),
        });
        self.too_few("hold it", &outcomes)
    }

    /// Too few servers answered.
    pub(super) fn too_few_answers(&self, round: &Round) -> Error {
        let outcomes = self.each_server(|server| match &round.answers[server] {
            Some(answer) => answer.clone().map(drop),
            None => self.no_answer(round, server),
        });
        self.too_few("answered", &outcomes)
    }
}
