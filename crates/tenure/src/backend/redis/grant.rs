//! Messages on the channel of grants.

use std::time::Duration;

use super::client::SessionContext;
use crate::backend::Grant;
use crate::core::record::PROBATION;
use crate::types::fence::FENCE_END;
use crate::types::name::Name;
use crate::types::owner::Token;

/// How many µs the fence of a grant may be above its time, to be believed without asking.
const MOST_AHEAD: u64 = 1_000_000;

/// Passes a grant to the sink, or verifies the name if the time of the grant is not comparable.
pub(super) fn deliver(context: &SessionContext, message: &[u8], is_comparable: impl Fn(&Name) -> bool) {
    let grant = std::str::from_utf8(message).ok().and_then(|message| grant(context, message));
    match (grant, context.grant_sink().upgrade()) {
        (Some((name, grant)), Some(sink)) if is_comparable(&name) => sink.granted(&name, grant),
        (Some((name, _)), Some(sink)) => sink.verify(&name),
        (None, _) => {
            tracing::warn!(target: "tenure", "a message on the channel of grants is not a grant")
        }
        (_, None) => {}
    }
}

/// Parses `fence at term token key`; the key may have spaces. Every client that may publish can send anything here. So a token of another
/// session is ignored, and a term is at most the probation. A believed fence is the floor of later ones: a fence that is far from the
/// time of its grant is set to 0, below every floor, and a heartbeat confirms the grant.
fn grant(context: &SessionContext, message: &str) -> Option<(Name, Grant)> {
    let mut words = message.splitn(5, ' ');
    let mut number = || words.next()?.parse::<u64>().ok();
    let (fence, at, term) = (number()?, number()?, Duration::from_millis(number()?));
    let (token, key) = (Token::from_store(words.next()?), words.next()?);
    let is_ours = token.session().as_ref() == Some(context.session.id()) && fence < FENCE_END;
    let fence = if fence <= at.saturating_add(MOST_AHEAD) { fence } else { 0 };
    let (name, term) = (context.keys.name(key).filter(|_| is_ours)?, term.min(PROBATION));
    Some((name, Grant { token, fence, at, term }))
}
