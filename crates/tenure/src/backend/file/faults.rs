//! Points at which a process can be stopped or killed by a test, between two steps of which each is harmless by itself.

/// Where it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    /// The stripe is locked; nothing was read.
    Locked,
    /// The operation was applied to what was read; nothing was written.
    Applied,
    /// It was written, and it is not known yet whether the stripe was stolen meanwhile.
    Written,
    /// It is known to count; the stripe is still locked, and nobody has been told.
    Committed,
    /// The stripe is free, and nobody has been told.
    Unlocked,
    /// A stripe whose holder is stuck was declared dead; nothing takes its place yet.
    Condemned,
    /// What is to take its place was begun, and announced by its name.
    Announced,
    /// It was written completely, and has no name that counts.
    Copied,
    /// It has taken its place.
    Replaced,
    /// It is about to be written to disk, so that what it replaced can be removed.
    Syncing,
}

/// A check that a test leaves out, to see that it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// After a write, whether the stripe was stolen meanwhile.
    StolenMeanwhile,
    /// Whether the stripe says the same as a message that says "granted".
    Message,
}

/// Passes a point.
#[cfg(any(not(test), shuttle))]
#[inline(always)]
pub(super) fn at(_: Point) {}

/// Whether a check is left out.
#[cfg(any(not(test), shuttle))]
#[inline(always)]
pub(super) fn leaves_out(_: Check) -> bool {
    false
}

#[cfg(all(test, not(shuttle)))]
mod injected;
#[cfg(all(test, not(shuttle)))]
pub(super) use self::injected::{Action, VARIABLE, arm, at, leaves_out};
