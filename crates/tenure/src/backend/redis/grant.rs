//! What the channel of grants says.

use std::time::Duration;

use super::client::Asker;
use crate::backend::Grant;
use crate::core::record::PROBATION;
use crate::types::fence::FENCE_END;
use crate::types::name::Name;
use crate::types::owner::Token;

/// How far, in µs, the fence of a grant may be above its time to be believed without asking.
const MOST_AHEAD: u64 = 1_000_000;

/// Passes a grant on, or a doubt where its time is not to be compared with others.
pub(super) fn heard(asker: &Asker, message: &[u8], is_comparable: impl Fn(&Name) -> bool) {
    let grant = std::str::from_utf8(message).ok().and_then(|message| grant(asker, message));
    match (grant, asker.told().upgrade()) {
        (Some((name, grant)), Some(sink)) if is_comparable(&name) => sink.granted(&name, grant),
        (Some((name, _)), Some(sink)) => sink.verify(&name),
        (None, _) => {
            tracing::warn!(target: "tenure", "a message that is no grant came by the channel of grants")
        }
        (_, None) => {}
    }
}

/// `fence at term token key`; the key may have spaces. Whoever may publish can say anything here. A token of another session is not ours to
/// give back, no hand-over lasts longer at first, and a fence that is believed is the floor of later ones: one that is not about the time of its
/// grant, which is compared with the server's, is left out. Then it is below every floor, and a beat confirms the grant.
fn grant(asker: &Asker, message: &str) -> Option<(Name, Grant)> {
    let mut words = message.splitn(5, ' ');
    let mut number = || words.next()?.parse::<u64>().ok();
    let (fence, at, term) = (number()?, number()?, Duration::from_millis(number()?));
    let (token, key) = (Token::from_store(words.next()?), words.next()?);
    let is_ours = token.session().as_ref() == Some(asker.session.id()) && fence < FENCE_END;
    let fence = if fence <= at.saturating_add(MOST_AHEAD) { fence } else { 0 };
    let (name, term) = (asker.keys.name(key).filter(|_| is_ours)?, term.min(PROBATION));
    Some((name, Grant { token, fence, at, term }))
}
