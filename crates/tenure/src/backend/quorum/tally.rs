//! Counting: what the answers of several servers mean together. Pure, but for the words of errors.

use std::time::Duration;

use super::Group;
use super::round::Round;
use crate::error::Error;
use crate::owner::Token;
use crate::record::{Holding, Reply};

/// Who has what this bid does not get.
pub(super) struct Rival {
    pub(super) holding: Holding,
    pub(super) waiters: usize,
    /// The first server where it holds the name; and our place in the queue there.
    pub(super) server: usize,
    pub(super) place: Option<u64>,
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
    let (place, waiters) = match reply {
        Reply::Waiting { place, ahead, .. } => (Some(*place), *ahead),
        Reply::Busy { waiters, .. } => (None, *waiters),
        _ => (None, 0),
    };
    let (has_majority, may_have_majority) = (count >= majority, count + unknown >= majority);
    let holding = holding(reply)?.clone();
    Some(Rival { holding, waiters, server, place, has_majority, may_have_majority })
}

/// How a round about a lease that should be held ended.
pub(super) struct Held {
    pub(super) done: usize,
    /// It is not held there.
    pub(super) not_held: usize,
}

impl Held {
    /// Of the servers that count.
    pub(super) fn count(round: &Round, counts: impl Fn(usize) -> bool) -> Self {
        let mut held = Held { done: 0, not_held: 0 };
        for (server, reply) in round.replies() {
            match reply {
                Reply::Done | Reply::Granted { .. } if counts(server) => held.done += 1,
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

impl Group {
    /// The error that says, of each server, what happened.
    pub(super) fn too_few<T>(&self, answers: &[Result<T, Error>]) -> Error {
        let lines: Vec<_> = answers
            .iter()
            .map(|answer| match answer {
                Ok(_) => "ok".to_owned(),
                Err(error) => error.to_string(),
            })
            .collect();
        let count = answers.iter().filter(|answer| answer.is_ok()).count();
        let text = self.too_few_text(count, "answered", &lines);
        // A configuration that is wrong on one server stays wrong.
        match answers.iter().filter_map(|answer| answer.as_ref().err()).any(Error::may_have_run) {
            true => Error::unanswered(text),
            false => Error::unavailable(text),
        }
    }

    /// The same of a round that was to grant something.
    pub(super) fn too_few_to_grant(&self, round: &Round, youths: &[Option<Duration>]) -> Error {
        let horizon = self.longest_ttl();
        let mut count = 0;
        let mut may_have_run = false;
        let lines: Vec<_> = round
            .answers
            .iter()
            .zip(youths)
            .map(|(answer, youth)| match (answer, youth) {
                (Some(Err(error)), _) => {
                    may_have_run |= error.may_have_run();
                    error.to_string()
                }
                (_, Some(age)) => format!(
                    "started {} ago and may have forgotten leases (it counts again in {})",
                    seconds(*age),
                    seconds(horizon.saturating_sub(*age) + Duration::from_secs(1))
                ),
                (Some(Ok(Reply::TooLate)), _) => "reached too late".to_owned(),
                (Some(Ok(_)), _) => {
                    count += 1;
                    "ok".to_owned()
                }
                (None, _) => {
                    may_have_run = true;
                    "no answer".to_owned()
                }
            })
            .collect();
        let text = self.too_few_text(count, "can be counted on", &lines);
        if may_have_run { Error::unanswered(text) } else { Error::unavailable(text) }
    }

    /// The same of any other round.
    pub(super) fn too_few_answers(&self, round: Round) -> Error {
        let no_answer = || Err(Error::unanswered("no answer"));
        let answers: Vec<_> = round.answers.iter().map(|it| it.clone().unwrap_or_else(no_answer)).collect();
        self.too_few(&answers)
    }

    fn too_few_text(&self, count: usize, what: &str, lines: &[String]) -> String {
        let (all, majority) = (self.members.len(), self.majority());
        let are = if majority == 1 { "is" } else { "are" };
        // What to do is said once, at the end, and the address of a server once as well.
        let mut fixes: Vec<&str> = Vec::new();
        let each = self.members.iter().zip(lines).map(|(member, line)| {
            let (said, fix) = line.split_once("; ").unwrap_or((line, ""));
            if !fix.is_empty() && !fixes.contains(&fix) {
                fixes.push(fix);
            }
            let said = said.strip_prefix(&format!("redis at {} ", member.label)).unwrap_or(said);
            format!("{}: {said}", member.label)
        });
        let each = each.collect::<Vec<_>>().join(", ");
        let fixes: String = fixes.iter().map(|fix| format!("; {fix}")).collect();
        format!("{count} of {all} servers {what}, {majority} {are} needed: {each}{fixes}")
    }
}

/// Whole seconds, for people.
fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs())
}
