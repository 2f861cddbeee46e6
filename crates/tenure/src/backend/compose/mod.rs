//! Stores that are made of other stores, which they know by the trait alone.

pub(crate) mod layered;
pub(crate) mod quorum;
