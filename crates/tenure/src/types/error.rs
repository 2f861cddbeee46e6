//! The one error type of the crate.
//!
//! It is opaque and cloneable: opaque, so that the driver below can change without breaking callers; cloneable, because one failed
//! attempt to connect is the answer to everyone who waited for it. Callers match on [`Error::kind`], which says what they can do
//! about it. Contention is never an error.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use crate::types::loss::{Loss, LossKind};
use crate::types::shortage::Shortage;

/// What went wrong, as far as a program can act on it.
///
/// # Examples
/// ```
/// use tenure::{Domain, ErrorKind};
///
/// let error = Domain::lazy("memcached://localhost").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Invalid);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The lease was lost. Stop the work, or acquire again and check what was done.
    Lost,
    /// The store could not be reached, or did not answer in time. Whatever was asked for is not held; try again later.
    Unavailable,
    /// This store can't do what was asked. The message names what would.
    Unsupported,
    /// The caller's input is wrong: a URL, an option, a name, a time. The message names it.
    Invalid,
    /// The store refused: credentials or permissions are missing.
    Denied,
    /// The store holds, or answered, something that this version does not understand.
    Protocol,
    /// The domain was closed by [`Domain::close`](crate::Domain::close).
    Closed,
    /// This process is a forked child, and its parent used the domain before the fork. The child holds nothing of what the parent holds; open a
    /// domain in the child.
    Forked,
}

/// An error of this crate: a [kind](ErrorKind), a message that says what to do, and perhaps a source.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use tenure::{Domain, ErrorKind};
///
/// match Domain::open("memory:?tll=3s").await {
///     Ok(_) => unreachable!(),
///     Err(error) if error.is_transient() => println!("try again later: {error}"),
///     Err(error) => {
///         assert_eq!(error.kind(), ErrorKind::Invalid);
///         assert!(error.to_string().contains("unknown option `tll`"));
///     }
/// }
/// # }
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    again: Again,
    source: Option<Source>,
}

/// Shared, because an error that says the same in other words keeps its source.
type Source = Arc<dyn std::error::Error + Send + Sync>;

/// Whether the same request is worth sending again at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Again {
    No,
    /// It was not executed, but the store is there, and will execute it soon.
    NotYet,
    /// No answer came: it may have been executed, or may be still.
    Unanswered,
    /// It was executed, but not as safely as it was asked to be.
    Unconfirmed,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error::with(kind, message, Again::No)
    }

    fn with(kind: ErrorKind, message: impl Into<String>, again: Again) -> Self {
        Error(Arc::new(Inner { kind, message: message.into(), again, source: None }))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Invalid, message)
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Unsupported, message)
    }

    /// The store is known to be out of reach: the request was not executed.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Unavailable, message)
    }

    /// A request was sent and no answer came: it may have been executed, or may be still.
    pub(crate) fn unanswered(message: impl Into<String>) -> Self {
        Error::with(ErrorKind::Unavailable, message, Again::Unanswered)
    }

    /// A request was executed, and is not to be relied on, because too few replicas know of it. That more will soon is not to be expected.
    pub(crate) fn unconfirmed(shortage: Shortage, message: impl Into<String>) -> Self {
        let (kind, source) = (ErrorKind::Unavailable, Some(Arc::new(shortage) as _));
        Error(Arc::new(Inner { kind, message: message.into(), again: Again::Unconfirmed, source }))
    }

    /// The store refused to execute the request for now, as one that is just starting does: it was not executed.
    pub(crate) fn not_yet(message: impl Into<String>) -> Self {
        Error::with(ErrorKind::Unavailable, message, Again::NotYet)
    }

    /// The same for a request of several steps, of which some were executed.
    pub(crate) fn half_way(self) -> Self {
        let again = match self.0.again {
            Again::No => Again::Unconfirmed,
            Again::NotYet => Again::Unanswered,
            again => again,
        };
        self.reworded(self.0.message.clone(), again)
    }

    /// The same error, of one of several stores.
    pub(crate) fn of(&self, store: &str) -> Self {
        self.reworded(format!("{store}: {}", self.0.message), self.0.again)
    }

    /// The same kind of error, with the same source.
    fn reworded(&self, message: String, again: Again) -> Self {
        Error(Arc::new(Inner { kind: self.0.kind, message, again, source: self.0.source.clone() }))
    }

    pub(crate) fn closed() -> Self {
        Error::new(ErrorKind::Closed, "domain is closed; open it again to go on")
    }

    pub(crate) fn forked() -> Self {
        Error::new(
            ErrorKind::Forked,
            "domain belongs to the parent of this forked process; open a domain in the child",
        )
    }

    /// The lease of a ticket is not there any more. The store can't tell why: a token that is gone leaves no trace.
    pub(crate) fn useless_ticket(loss: Loss) -> Self {
        let whose = match loss.kind() {
            LossKind::Taken { by } => format!("held by {by}"),
            _ => "free".to_owned(),
        };
        let message = format!(
            "ticket for `{}` is not good any more: its lease has ended, or the ticket was used; the name is {whose}",
            loss.name()
        );
        Error::lost(loss, message)
    }

    fn lost(loss: Loss, message: String) -> Self {
        let kind = if *loss.kind() == LossKind::Forked { ErrorKind::Forked } else { ErrorKind::Lost };
        let source = Some(Arc::new(loss) as _);
        Error(Arc::new(Inner { kind, message, again: Again::No, source }))
    }

    /// What kind of error this is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the same call may succeed later without any change by the caller.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.0.kind == ErrorKind::Unavailable
    }

    /// Why the lease was lost, when that is what this error says.
    #[must_use]
    pub fn loss(&self) -> Option<&Loss> {
        self.0.source.as_deref()?.downcast_ref()
    }

    /// How many replicas acknowledged, when this error says that they were too few: the store is there, and its replicas are not.
    ///
    /// # Examples
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tenure::Error> {
    /// let domain = tenure::Domain::open("redis+sentinel://s1,s2,s3/main?replicas=all").await?;
    /// match domain.lock("orders/42").acquire().await {
    ///     Ok(guard) => println!("held, and known to all replicas: {}", guard.fence()),
    ///     Err(error) => match error.shortage() {
    ///         Some(short) => println!("{} of {} replicas are there", short.acknowledged(), short.needed()),
    ///         None => println!("{error}"),
    ///     },
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn shortage(&self) -> Option<&Shortage> {
        self.0.source.as_deref()?.downcast_ref()
    }

    /// Whether the request may have been executed although no answer came.
    pub(crate) fn may_have_run(&self) -> bool {
        matches!(self.0.again, Again::Unanswered | Again::Unconfirmed)
    }

    /// Whether the same request, sent again at once, may well be answered.
    pub(crate) fn is_worth_asking_again(&self) -> bool {
        matches!(self.0.again, Again::NotYet | Again::Unanswered)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error").field("kind", &self.0.kind).field("message", &self.0.message).finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<Loss> for Error {
    fn from(loss: Loss) -> Self {
        let message = loss.to_string();
        Error::lost(loss, message)
    }
}
