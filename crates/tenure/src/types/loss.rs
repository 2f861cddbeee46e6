//! Why a lease ended before its holder gave it back.

use std::fmt;

use crate::types::error::{Error, ErrorKind};
use crate::types::name::Name;
use crate::types::owner::{Owner, Token};

/// Why a lease ended.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tenure::Error> {
/// use tenure::{Domain, LossKind};
///
/// let domain = Domain::open("memory:").await?;
/// let guard = domain.lock("orders/42").acquire().await?;
/// let other = domain.lock("orders/42").label("operator").take_over().await?;
///
/// let loss = guard.lost().await;
/// match loss.kind() {
///     LossKind::Taken { by } => assert_eq!(by.label(), "operator"),
///     kind => unreachable!("{kind:?}"),
/// }
/// # drop(other);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossKind {
    /// Its time ran out: it was not to be renewed any longer, or the process was stopped for too long.
    Expired,
    /// The store answered that someone else holds the name.
    Taken {
        /// Who holds it now.
        by: Owner,
    },
    /// The store answered that nobody holds the name: the lease was broken, deleted or flushed.
    Gone,
    /// Its time ran out while the store did not answer.
    Unreachable,
    /// The domain was closed.
    Closed,
    /// Its own guard gave it back.
    Released,
    /// This process is a forked child: the lease is its parent's, which still holds it.
    Forked,
}

impl LossKind {
    /// Why a lease ended that the store does not know any more.
    pub(crate) fn from_holder(holder: Option<&Token>) -> Self {
        match holder {
            Some(token) => LossKind::Taken { by: token.owner() },
            None => LossKind::Gone,
        }
    }
}

/// A lease that ended, and why.
///
/// It converts into an [`Error`](crate::Error) of kind [`Lost`](crate::ErrorKind::Lost), or [`Forked`](crate::ErrorKind::Forked) in a forked child, so that `return Err(loss.into())` works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    name: Name,
    kind: LossKind,
}

impl Loss {
    pub(crate) fn new(name: Name, kind: LossKind) -> Self {
        Loss { name, kind }
    }

    /// The name whose lease ended.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// What to do about it.
    fn remedy(&self) -> Option<&'static str> {
        match self.kind {
            LossKind::Expired => Some("use a longer ttl, or let it be renewed"),
            LossKind::Forked => Some("open a domain in the child"),
            _ => None,
        }
    }

    /// Why it ended.
    #[must_use]
    pub fn kind(&self) -> &LossKind {
        &self.kind
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lease on `{}` ", self.name)?;
        match &self.kind {
            LossKind::Expired => f.write_str("expired"),
            LossKind::Taken { by } => write!(f, "was taken by {by}"),
            LossKind::Gone => f.write_str("is gone from the store: broken, deleted or flushed"),
            LossKind::Unreachable => f.write_str("ran out while the store did not answer"),
            LossKind::Closed => f.write_str("ended because its domain was closed"),
            LossKind::Released => f.write_str("was released by its guard"),
            LossKind::Forked => f.write_str("belongs to the parent of this forked process"),
        }
    }
}

impl std::error::Error for Loss {}

impl Error {
    /// The lease of a ticket has ended. The store can't tell why: a token that is gone leaves no trace.
    pub(crate) fn useless_ticket(loss: Loss) -> Self {
        let whose = match loss.kind() {
            LossKind::Taken { by } => format!("held by {by}"),
            _ => "free".to_owned(),
        };
        let what = format!("ticket for `{}` is no longer valid", loss.name());
        let reason = format!("its lease has ended, or the ticket was used, and the name is {whose}");
        Error::lost(loss, what).because(reason)
    }

    fn lost(loss: Loss, what: String) -> Self {
        let kind = if *loss.kind() == LossKind::Forked { ErrorKind::Forked } else { ErrorKind::Lost };
        Error::new(kind, what).caused_by(loss)
    }

    /// Why the lease was lost, when that is what this error says.
    #[must_use]
    pub fn loss(&self) -> Option<&Loss> {
        self.source_as()
    }
}

impl From<Loss> for Error {
    fn from(loss: Loss) -> Self {
        let (what, remedy) = (loss.to_string(), loss.remedy());
        let error = Error::lost(loss, what);
        remedy.map_or(error.clone(), |remedy| error.fix(remedy))
    }
}
