//! Too few replicas acknowledged a lease.
//!
//! A type of its own, and not a kind of error: what a caller does about it is what it does about every store that is away, try again
//! later. Who wants to tell an operator that it is the replicas that are missing, and how many, finds it inside the error.

use std::fmt;

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
