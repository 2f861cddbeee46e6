//! What "equal" means between the keys and answers of Redis and those of the record.

use std::time::Duration;

use crate::core::record::Reply;

/// When an operation happened, in ms of the server's clock.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) sent: u64,
    /// The time that the script read.
    pub(super) at: u64,
    pub(super) looked: u64,
}

impl Span {
    /// The end of a key with this life, in ms.
    pub(super) fn life(self, life: u64) -> End {
        End { at_least: self.at + life, slack: self.looked - self.at }
    }
}

/// The last millisecond of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) at_least: u64,
    /// How much later the server may have read its clock.
    pub(super) slack: u64,
}

pub(super) fn same_end(what: &str, real: i64, end: Option<End>) -> Result<Option<End>, String> {
    let Some(end) = end else {
        return equal(&format!("end of {what}"), &real, &-2).map(|()| None);
    };
    match u64::try_from(real) {
        Ok(real) if (end.at_least..=end.at_least + end.slack).contains(&real) => {
            Ok(Some(End { at_least: real, slack: 0 }))
        }
        _ => Err(format!("end of {what}: {real} in Redis, {end:?} expected")),
    }
}

pub(super) fn equal<T: PartialEq + std::fmt::Debug>(what: &str, redis: &T, record: &T) -> Result<(), String> {
    if redis == record {
        Ok(())
    } else {
        Err(format!("{what}: {redis:#?} in Redis, {record:#?} in the record"))
    }
}

/// Removes the time that a lease has left.
pub(super) fn take_left(reply: &mut Reply) -> Option<Duration> {
    match reply {
        Reply::Waiting { holding, .. }
        | Reply::Busy { holding, .. }
        | Reply::Seen { holding: Some(holding), .. } => Some(std::mem::take(&mut holding.left)),
        _ => None,
    }
}

pub(super) fn kind(reply: &Reply) -> &'static str {
    match reply {
        Reply::Granted { .. } => "granted",
        Reply::Waiting { .. } => "waiting",
        Reply::Busy { .. } => "busy",
        Reply::NotHeld { .. } => "not held",
        Reply::Done => "done",
        Reply::TooLate => "too late",
        Reply::Ahead { .. } => "ahead",
        Reply::Seen { broken: None, .. } => "seen",
        Reply::Seen { broken: Some(_), .. } => "seen broken",
    }
}

/// Whole milliseconds, rounded up.
pub(super) fn millis(duration: Duration) -> u128 {
    duration.as_nanos().div_ceil(1_000_000)
}
