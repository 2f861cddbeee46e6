//! Time: the one source of it, a clock that tests move, and the pauses between attempts.

pub(crate) mod backoff;
pub(crate) mod clock;
pub(crate) mod manual_clock;
pub(crate) mod moment;
