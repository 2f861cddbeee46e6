//! What an examination of a store found, in a form that a person can act on.
//!
//! A warning of [`Health`](crate::Health) is a sentence that costs nothing to say. A finding costs questions to the store: it is asked for by
//! whoever sets one up, and says of each thing that was looked at whether it is fit, why, and what to type where it is not.

use std::fmt;

use crate::types::error::Error;

/// What follows when a server forgets a lease.
pub(crate) const FENCES_GROW: &str =
    "two may hold a name until the old holder has connected again, and fences still grow";

/// What follows if a server evicts a lock.
pub(crate) const TWO_HOLD: &str = "and then two hold a name";

/// What follows if a server has no replicas.
pub(crate) const NO_SUCCESSOR: &str = "while the server is away, nothing takes its place";

/// Whether something is fit for a store of locks. The worse is the greater, so that the verdict on a store is the greatest of its findings.
///
/// # Examples
/// ```
/// use tenure::Verdict;
///
/// assert!(Verdict::Fit < Verdict::Doubtful && Verdict::Doubtful < Verdict::Unfit);
/// assert_eq!(Verdict::Doubtful.to_string(), "doubtful");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// As it should be.
    Fit,
    /// Locks work. Under circumstances that the reason names, something is lost or slow.
    Doubtful,
    /// Locks do not work, or two may hold a name in the ordinary course of things.
    Unfit,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Fit => "fit",
            Verdict::Doubtful => "doubtful",
            Verdict::Unfit => "unfit",
        })
    }
}

/// One thing that was looked at by [`Domain::examine`](crate::Domain::examine).
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure::Error> {
/// use tenure::{Domain, Verdict};
///
/// for finding in Domain::open("memory:").await?.examine().await? {
///     assert_eq!(finding.verdict, Verdict::Fit, "{finding}");
///     assert_eq!(finding.remedy, None);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Which store of a [layered domain](crate::Domain::layered): `inner` or `outer`. `None` where there is one store.
    pub store: Option<&'static str>,
    /// What was looked at: a word or two, the same in every version.
    pub check: &'static str,
    /// Whether it is fit.
    pub verdict: Verdict,
    /// Why, on one line.
    pub reason: String,
    /// What to do about it, on one line: a command for a shell where there is one.
    pub remedy: Option<String>,
}

impl Finding {
    pub(crate) fn fit(check: &'static str, reason: impl Into<String>) -> Self {
        Finding { store: None, check, verdict: Verdict::Fit, reason: reason.into(), remedy: None }
    }

    pub(crate) fn doubtful(check: &'static str, reason: impl Into<String>) -> Self {
        Finding { verdict: Verdict::Doubtful, ..Finding::fit(check, reason) }
    }

    pub(crate) fn unfit(check: &'static str, reason: impl Into<String>) -> Self {
        Finding { verdict: Verdict::Unfit, ..Finding::fit(check, reason) }
    }

    /// What an error says: what is wrong, then what to do.
    pub(crate) fn of_error(verdict: Verdict, error: &Error) -> Self {
        let remedy = error.remedy().map(str::to_owned);
        Finding { store: None, check: "store", verdict, reason: error.summary(), remedy }
    }

    /// The same, of one store of two.
    pub(crate) fn of(mut self, store: &'static str) -> Self {
        self.store = Some(store);
        self
    }

    /// The same, with what to do about it.
    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(store) = self.store {
            write!(f, "{store} ")?;
        }
        write!(f, "{}: {}: {}", self.check, self.verdict, self.reason)?;
        match &self.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

/// A word as a shell takes it: for what to type.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_a_shell() {
        for (word, shown) in
            [("app", "app"), ("", "''"), ("~a:*", "'~a:*'"), ("it's", r"'it'\''s'"), ("$(x)", "'$(x)'")]
        {
            assert_eq!(quoted(word), shown);
        }
    }
}
