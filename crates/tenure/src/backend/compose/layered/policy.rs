//! What happens while the outer store is out of reach: the only place that looks at [`Degrade`].

use crate::time::clock::Moment;
use crate::types::error::{Error, ErrorKind};
use crate::url::Degrade;

#[derive(Clone, Copy)]
pub(super) struct Policy(pub(super) Degrade);

impl Policy {
    /// Whether the holder of the inner lease continues without the outer store. Then its lease is degraded, and what the outer store did
    /// not answer must be remembered and undone here: the layer above got an answer.
    pub(super) fn may_degrade(self) -> bool {
        self.0 == Degrade::Allow
    }

    /// The answer of the outer store; `None` if it gave none and the inner store is enough.
    pub(super) fn tolerate<T>(self, answer: Result<T, Error>) -> Result<Option<T>, Error> {
        match answer {
            Err(error) if self.tolerates(&error) => Ok(None),
            answer => answer.map(Some),
        }
    }

    pub(super) fn tolerates(self, error: &Error) -> bool {
        self.may_degrade() && error.kind() == ErrorKind::Unavailable
    }

    /// When to stop waiting for the outer store. If nothing can be done without its answer, the caller's own limit is enough.
    pub(super) fn limit(self, limit: Moment) -> Option<Moment> {
        self.may_degrade().then_some(limit)
    }

    /// Whether a failed request says that the outer store is out of reach. If the caller repeats it at once, the repetition will say so.
    pub(super) fn is_outage(self, error: &Error) -> bool {
        self.may_degrade() || !error.is_worth_asking_again()
    }

    /// What an outage of the outer store means for users.
    pub(super) fn consequence(self) -> &'static str {
        match self.may_degrade() {
            true => "locks exclude the processes of this machine only",
            false => "nobody acquires anything until it is back",
        }
    }
}
