//! The one error type of the crate.
//!
//! It is opaque, so that the driver below can change without breaking callers, and cloneable, because one failed attempt to connect is
//! the answer to every task that waited for it. Callers match on [`Error::kind`]. What failed, why, and what to do are fields: no code
//! parses a message. Contention is never an error.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

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

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    /// What failed.
    what: String,
    /// Why it failed, in the words of the store, the driver or the system.
    reason: Option<String>,
    /// What the reader can do about it.
    remedy: Option<String>,
    retry: Retry,
    /// The store is there, but can't grant anything to the token of the request.
    needs_new_token: bool,
    source: Option<Source>,
}

/// Shared, because an error that says the same in other words keeps its source.
type Source = Arc<dyn std::error::Error + Send + Sync>;

/// Whether the same request is worth sending again at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Retry {
    No,
    /// The store did not execute the request, but it is there and will soon.
    NotExecuted,
    /// No answer came: the store may have executed the request, or may still do so.
    Unanswered,
    /// The store executed the request, but not as safely as it was asked to.
    Unconfirmed,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Error::with(kind, what, Retry::No)
    }

    fn with(kind: ErrorKind, what: impl Into<String>, retry: Retry) -> Self {
        let what = what.into();
        Error(Arc::new(Inner {
            kind,
            what,
            reason: None,
            remedy: None,
            retry,
            needs_new_token: false,
            source: None,
        }))
    }

    fn change(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// Why it failed.
    pub(crate) fn because(self, reason: impl Into<String>) -> Self {
        self.change(|inner| inner.reason = Some(reason.into()))
    }

    /// What to do about it.
    pub(crate) fn fix(self, remedy: impl Into<String>) -> Self {
        self.change(|inner| inner.remedy = Some(remedy.into()))
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Error::new(ErrorKind::Invalid, what)
    }

    pub(crate) fn unsupported(what: impl Into<String>) -> Self {
        Error::new(ErrorKind::Unsupported, what)
    }

    /// The store is known to be out of reach: it did not execute the request.
    pub(crate) fn unavailable(what: impl Into<String>) -> Self {
        Error::new(ErrorKind::Unavailable, what)
    }

    /// The client sent a request and got no answer: the store may have executed it, or may still do so.
    pub(crate) fn unanswered(what: impl Into<String>) -> Self {
        Error::with(ErrorKind::Unavailable, what, Retry::Unanswered)
    }

    /// The store refused to execute the request for now, as one that is just starting does.
    pub(crate) fn not_yet(what: impl Into<String>) -> Self {
        Error::with(ErrorKind::Unavailable, what, Retry::NotExecuted)
    }

    /// The store executed a request, but not as safely as it was asked to. Asking again at once would not change that.
    pub(crate) fn executed_unsafely(what: impl Into<String>) -> Self {
        Error::with(ErrorKind::Unavailable, what, Retry::Unconfirmed)
    }

    /// The same error, with a typed source that the caller can ask for.
    pub(crate) fn caused_by(self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.change(|inner| inner.source = Some(Arc::new(source)))
    }

    /// The source, if it is of this type.
    pub(crate) fn source_as<T: std::error::Error + 'static>(&self) -> Option<&T> {
        self.0.source.as_deref()?.downcast_ref()
    }

    /// The same error for a request of several steps, some of which the store executed.
    pub(crate) fn half_way(self) -> Self {
        self.change(|inner| {
            inner.retry = match inner.retry {
                Retry::No => Retry::Unconfirmed,
                Retry::NotExecuted => Retry::Unanswered,
                retry => retry,
            }
        })
    }

    /// The same error for a request whose token is unusable: a request with another one may succeed.
    pub(crate) fn needing_new_token(self) -> Self {
        self.change(|inner| inner.needs_new_token = true)
    }

    pub(crate) fn needs_new_token(&self) -> bool {
        self.0.needs_new_token
    }

    /// The same error, of one of several stores.
    pub(crate) fn of(&self, store: &str) -> Self {
        self.clone().change(|inner| inner.what = format!("{store}: {}", inner.what))
    }

    pub(crate) fn closed() -> Self {
        Error::new(ErrorKind::Closed, "domain is closed").fix("open it again")
    }

    pub(crate) fn forked() -> Self {
        Error::new(ErrorKind::Forked, "domain belongs to the parent of this forked process")
            .fix("open a domain in the child")
    }

    /// What kind of error this is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What failed, without the reason and the remedy.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// Why it failed, if the store, the driver or the system said so.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.0.reason.as_deref()
    }

    /// What failed and why, without the remedy.
    pub(crate) fn summary(&self) -> String {
        match &self.0.reason {
            Some(reason) => format!("{}: {reason}", self.0.what),
            None => self.0.what.clone(),
        }
    }

    /// What the reader can do about it.
    ///
    /// # Examples
    /// ```
    /// let error = tenure::Domain::lazy("memory:?tll=3s").unwrap_err();
    /// assert_eq!(error.what(), "unknown option `tll` in domain URL");
    /// assert!(error.remedy().unwrap().starts_with("expected one of "));
    /// ```
    #[must_use]
    pub fn remedy(&self) -> Option<&str> {
        self.0.remedy.as_deref()
    }

    /// Whether the same call may succeed later without any change by the caller.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.0.kind == ErrorKind::Unavailable
    }

    /// Whether the request may have been executed although no answer came.
    pub(crate) fn may_have_run(&self) -> bool {
        matches!(self.0.retry, Retry::Unanswered | Retry::Unconfirmed)
    }

    /// Whether the same request, sent again at once, may well be answered.
    pub(crate) fn is_worth_asking_again(&self) -> bool {
        matches!(self.0.retry, Retry::NotExecuted | Retry::Unanswered)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary())?;
        if let Some(remedy) = &self.0.remedy {
            write!(f, "; {remedy}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error").field("kind", &self.0.kind).field("message", &self.to_string()).finish()
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
