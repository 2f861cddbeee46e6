//! Giving a name back at the end of `run` and `hold`, also through an outage of the store.
//!
//! A lease that stays in the store excludes everybody until its ttl is over. So `tenure` tries for a while to give it back. If that fails, it says for
//! how long the name may stay held, and how to free it.

use std::pin::pin;
use std::time::Duration;

use tenure::{Guard, Release};

use super::run::deadline::Moment;
use crate::args;
use crate::output::{self, say_in_background, say_more};
use crate::text::{escaped, rough};

/// How long to try while the store is away. docs/cli.md says so.
pub(crate) const LONGEST_OUTAGE: Duration = Duration::from_secs(10);
/// The pause between two attempts, each of which takes up to 2 s.
const PAUSE: Duration = Duration::from_millis(100);

/// Gives the name back. Tries until the store answers, 10 s are over, the lease has certainly ended in the store, or `interrupted` resolves. Returns
/// `None` if that failed, after a message.
pub(crate) async fn give_back(
    mut guard: Guard,
    asked: &args::Domain,
    interrupted: impl Future,
) -> Option<Release> {
    let (name, fence) = (guard.name().to_owned(), guard.fence());
    let held_before = guard.since().elapsed().unwrap_or_default();
    let (begun, left) = (Moment::now(), guard.remaining());
    let lease_end = begun.after(left);
    // Not the local deadline: the store may have executed a renewal whose answer was lost.
    let give_up = begun.after(LONGEST_OUTAGE.min(guard.left_in_store()));
    let mut interrupted = pin!(interrupted);
    let mut is_first = true;
    loop {
        let left_in_store = guard.left_in_store();
        let sent = Moment::now();
        let failed = |left_in_store, why: &str| {
            output::not_given_back(&name, fence, asked, left_in_store, why);
            None
        };
        let answer = tokio::select! {
            biased;
            answer = guard.release() => answer,
            // A signal that came while the command ended does not interrupt the first attempt.
            _ = &mut interrupted, if !is_first => {
                let passed = Moment::now().since(sent);
                return failed(left_in_store.saturating_sub(passed), "interrupted");
            }
        };
        let now = Moment::now();
        let returned = match answer {
            Ok(Release::Released) => {
                let held = held_before + now.since(begun);
                let fact = format!("gave `{}` back, held for {}", escaped(&name), rough(held));
                if is_first {
                    say_more(fact)
                } else {
                    say_in_background(fact)
                }
                return Some(Release::Released);
            }
            // It may have expired only now, during the attempts: that is not a loss.
            Ok(_) if !left.is_zero() && now >= lease_end => {
                return failed(Duration::ZERO, "store did not answer in time");
            }
            Ok(ended) => return Some(ended),
            Err(returned) => returned,
        };
        let why = returned.error.to_string();
        if !returned.error.is_transient() || now >= give_up {
            return failed(returned.guard.left_in_store(), &why);
        }
        if is_first {
            let (name, limit) = (escaped(&name), rough(give_up.since(begun)));
            say_in_background(format_args!(
                "`{name}` can't be given back yet; trying for up to {limit}: {}",
                escaped(&why)
            ));
        }
        (guard, is_first) = (returned.guard, false);
        tokio::time::sleep(PAUSE).await;
    }
}
