//! Too few replicas acknowledged a lease.
//!
//! A type of its own, and not a kind of error: what a caller does about it is what it does about every store that is away, try again
//! later. Who wants to tell an operator that it is the replicas that are missing, and how many, finds it inside the error.

use std::fmt;

use crate::types::error::Error;

/// How many replicas acknowledged a lease, and how many had to, in a domain that was opened with `?replicas=`. An
/// [`Error::too_few_replicas`](crate::Error::too_few_replicas).
///
/// The lease is not held. What was granted is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFewReplicas {
    acknowledged: u64,
    needed: u64,
}

impl TooFewReplicas {
    pub(crate) fn new(acknowledged: u64, needed: u64) -> Self {
        TooFewReplicas { acknowledged, needed }
    }

    /// How many acknowledged in time.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// How many had to.
    #[must_use]
    pub fn needed(&self) -> u64 {
        self.needed
    }
}

impl fmt::Display for TooFewReplicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} replicas acknowledged", self.acknowledged, self.needed)
    }
}

impl std::error::Error for TooFewReplicas {}

impl Error {
    /// The store executed a request, but too few replicas know of it.
    pub(crate) fn unconfirmed(replicas: TooFewReplicas, what: impl Into<String>) -> Self {
        Error::executed_unsafely(what).caused_by(replicas)
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
    ///     Err(error) => match error.too_few_replicas() {
    ///         Some(short) => println!("{} of {} replicas are there", short.acknowledged(), short.needed()),
    ///         None => println!("{error}"),
    ///     },
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn too_few_replicas(&self) -> Option<&TooFewReplicas> {
        self.source_as()
    }
}
