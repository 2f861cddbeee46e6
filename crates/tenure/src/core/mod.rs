//! The rules of the lock, pure: no I/O, no clock, no tokio. Time comes in, decisions go out.

pub(crate) mod claim;
pub(crate) mod deadlines;
pub(crate) mod record;
