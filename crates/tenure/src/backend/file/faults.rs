//! Points between two steps of an operation at which a test can stop or kill a process.

/// A step that is done, before the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    /// The process has locked the stripe, and read nothing.
    Locked,
    /// It has read the stripe and applied the operation, and written nothing.
    Applied,
    /// It has written, and does not know yet whether the file was replaced meanwhile.
    Written,
    /// It knows that the write counts; the stripe is still locked, and no client is notified.
    Committed,
    /// The stripe is unlocked, and no client is notified.
    Unlocked,
    /// It has marked a file as dead whose lock another process keeps; the file is not replaced yet.
    MarkedDead,
    /// It has made an empty draft, whose name announces the replacement.
    Announced,
    /// It has written the draft, which does not have the name of a stripe yet.
    DraftWritten,
    /// The draft has replaced the file.
    Replaced,
    /// It is about to sync the new file, after which it may remove the old one.
    Syncing,
}

/// A check that a test leaves out, to show that it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// After a write: whether the file was replaced meanwhile.
    ReplacedMeanwhile,
    /// Whether the stripe shows the grant of a message.
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
