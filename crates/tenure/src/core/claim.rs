//! What a client asks for: a name, for how long, under which label.

use std::sync::Arc;

use crate::core::deadlines::Terms;
use crate::types::error::Error;
use crate::types::name::Name;
use crate::types::owner::check_label;

/// What a client asks for. The lock that describes it and the guards that it yields share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) name: Name,
    pub(crate) terms: Terms,
    pub(crate) label: Arc<str>,
}

impl Claim {
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.terms.check()?;
        check_label(&self.label)
    }

    /// Whether a lease that was taken for `other` serves this claim as well.
    pub(crate) fn is_served_by(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        Arc::ptr_eq(self, other) || self == other
    }
}
