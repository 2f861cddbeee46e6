//! Counting: what the answers of several servers mean together. Pure, but for the words of errors.

use std::time::Duration;

use super::Group;
use super::round::Round;
use crate::core::record::{Holding, Reply};
use crate::types::error::{Error, ErrorKind};
use crate::types::owner::Token;

/// Who has what this bid does not get.
pub(super) struct Rival {
    pub(super) holding: Holding,
    pub(super) waiters: usize,
    /// The first server where it holds the name; and our place in the queue there.
    pub(super) server: usize,
    pub(super) joined_at: Option<u64>,
    /// Surely, or if it also has those who did not answer.
    pub(super) has_majority: bool,
    pub(super) may_have_majority: bool,
}

/// The servers that count and granted the name, with the fence of each.
pub(super) fn granted<'a>(round: &'a Round, votes: &'a [bool]) -> impl Iterator<Item = (usize, u64)> + 'a {
    round.replies().filter_map(|(server, reply)| match reply {
        Reply::Granted { fence } if votes[server] => Some((server, *fence)),
        _ => None,
    })
}

/// How many servers that count said whether it can be had there.
pub(super) fn answered(round: &Round, votes: &[bool]) -> usize {
    let replies = round.replies().filter(|(server, reply)| votes[*server] && **reply != Reply::TooLate);
    replies.count()
}

/// Who holds the name, where that is the reply.
pub(super) fn holding(reply: &Reply) -> Option<&Holding> {
    match reply {
        Reply::Waiting { holding, .. } | Reply::Busy { holding, .. } => Some(holding),
        _ => None,
    }
}

/// The token that most servers hold the name for.
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

/// How a round about a lease that should be held ended.
pub(super) struct Held {
    pub(super) done: usize,
    /// It is not held there.
    pub(super) not_held: usize,
}

impl Held {
    /// By the servers that count; that it is not held, any may say.
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

/// Who holds it, as those say who do not hold it for us.
pub(super) fn other_holder(round: &Round) -> Option<(Token, usize)> {
    let holders = round.replies().filter_map(|(_, reply)| match reply {
        Reply::NotHeld { holder } => holder.as_ref(),
        _ => None,
    });
    most_common(holders).map(|(token, count)| (token.clone(), count))
}

/// What it means that there is no answer. A server that is lost to the token was not asked.
fn silence(round: &Round, server: usize) -> Error {
    match round.is_pending(server) {
        true => Error::unanswered("no answer"),
        false => undoing(),
    }
}

fn undoing() -> Error {
    Error::not_yet("still has to undo an earlier request")
}

impl Group {
    /// The error that says, of each server, what happened.
    pub(super) fn too_few<T>(&self, what: &str, answers: &[Result<T, Error>]) -> Error {
        let lines: Vec<_> = answers
            .iter()
            .map(|answer| match answer {
                Ok(_) => "ok".to_owned(),
                Err(error) => error.to_string(),
            })
            .collect();
        let errors: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
        let count = answers.len() - errors.len();
        let text = self.too_few_text(count, what, &lines);
        if errors.iter().any(|error| error.may_have_run()) {
            return Error::unanswered(text);
        }
        if count + errors.iter().filter(|error| error.is_worth_asking_again()).count() >= self.majority() {
            return Error::not_yet(text);
        }
        // A server that is away comes back; what all refuse stays refused.
        let kind = errors.first().map_or(ErrorKind::Unavailable, |error| error.kind());
        match errors.iter().all(|error| error.kind() == kind) {
            true => Error::new(kind, text),
            false => Error::unavailable(text),
        }
    }

    /// The same of a round that was to grant something.
    pub(super) fn too_few_to_grant(&self, round: &Round, youths: &[Option<Duration>]) -> Error {
        let horizon = self.longest_ttl();
        let answer = |server: usize| match (&round.answers[server], youths[server]) {
            (Some(Err(error)), _) => Err(error.clone()),
            (_, Some(age)) => Err(Error::unavailable(format!(
                "started {} ago and may have forgotten leases (it counts again in {})",
                seconds(age),
                seconds(horizon.saturating_sub(age) + Duration::from_secs(1))
            ))),
            (Some(Ok(Reply::TooLate)), _) => Err(Error::unavailable("reached too late")),
            (Some(Ok(_)), _) => Ok(()),
            (None, _) => Err(silence(round, server)),
        };
        self.too_few("can be counted on", &(0..youths.len()).map(answer).collect::<Vec<_>>())
    }

    /// The same of a round about a lease that should be held, on the servers that count.
    pub(super) fn too_few_holders(&self, round: &Round, votes: &[bool]) -> Error {
        let answer = |server: usize| match &round.answers[server] {
            Some(Err(error)) => Err(error.clone()),
            Some(Ok(Reply::NotHeld { .. })) => Err(Error::unavailable("does not hold it")),
            Some(Ok(_)) if !votes[server] => Err(undoing()),
            Some(Ok(_)) => Ok(()),
            None => Err(silence(round, server)),
        };
        self.too_few("hold it", &(0..votes.len()).map(answer).collect::<Vec<_>>())
    }

    /// The same of any other round.
    pub(super) fn too_few_answers(&self, round: &Round) -> Error {
        let answer =
            |server: usize| round.answers[server].clone().unwrap_or_else(|| Err(silence(round, server)));
        self.too_few("answered", &(0..round.answers.len()).map(answer).collect::<Vec<_>>())
    }

    fn too_few_text(&self, count: usize, what: &str, lines: &[String]) -> String {
        let (all, majority) = (self.members.len(), self.majority());
        let are = if majority == 1 { "is" } else { "are" };
        // What to do is said once, at the end, and the address of a server once as well.
        let mut fixes: Vec<(&str, Vec<&str>)> = Vec::new();
        let each = self.members.iter().zip(lines).map(|(member, line)| {
            let (said, fix) = line.split_once("; ").unwrap_or((line, ""));
            match fixes.iter_mut().find(|(known, _)| *known == fix) {
                _ if fix.is_empty() => {}
                Some((_, labels)) => labels.push(&member.label),
                None => fixes.push((fix, vec![&member.label])),
            }
            let said = said.strip_prefix(&format!("redis at {} ", member.label)).unwrap_or(said);
            format!("{}: {said}", member.label)
        });
        let each = each.collect::<Vec<_>>().join(", ");
        let is_one = fixes.len() == 1;
        let fixes = fixes.iter().map(|(fix, labels)| {
            let fix = match fix.strip_prefix("is it ") {
                Some(rest) if labels.len() > 1 => format!("are they {rest}"),
                _ => (*fix).to_owned(),
            };
            if is_one { format!("; {fix}") } else { format!("; {}: {fix}", labels.join(" and ")) }
        });
        let fixes: String = fixes.collect();
        format!("{count} of {all} servers {what}, {majority} {are} needed: {each}{fixes}")
    }
}

/// Whole seconds, for people.
fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs())
}
