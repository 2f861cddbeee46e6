//! Output for programs: one JSON object a line on stdout, each with the version of the schemas. docs/cli.md describes the fields.
//!
//! Within a version, fields may be added, but none is removed or changes its meaning.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use tenure::Owner;

use crate::address::Located;
use crate::name_status::{NameStatus, WaiterStatus};

/// The version of all schemas.
const VERSION: u32 = 1;

/// An object with the version before its fields.
#[derive(Serialize)]
struct Versioned<'a, T> {
    v: u32,
    #[serde(flatten)]
    object: &'a T,
}

/// One object as a line, without the newline and without control characters: a terminal may show it, and names come from other users.
pub(crate) fn to_line(object: &impl Serialize) -> String {
    let line = serde_json::to_string(&Versioned { v: VERSION, object }).expect("plain fields");
    if !line.contains(char::is_control) {
        return line;
    }
    // JSON escapes the first 32; the others can only be in strings.
    let escape = |c: char| if c.is_control() { format!("\\u{:04x}", u32::from(c)) } else { c.into() };
    line.chars().map(escape).collect()
}

/// A holder or waiter. All fields are null for a lock of another library, which does not say who it is.
#[derive(Debug, Serialize)]
pub(crate) struct Who {
    host: Option<String>,
    user: Option<String>,
    pid: Option<u32>,
    label: Option<String>,
    /// Taken by another library.
    foreign: bool,
}

impl Who {
    pub(crate) fn new(owner: &Owner) -> Self {
        let known = |text: &str| Some(text.to_owned()).filter(|_| !owner.is_foreign());
        Who {
            host: known(owner.host()),
            user: known(owner.user()),
            pid: owner.pid(),
            label: known(owner.label()),
            foreign: owner.is_foreign(),
        }
    }
}

/// One name, as `ls`, `status` and `break` print it.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    name: String,
    domain: Option<String>,
    state: &'static str,
    holder: Option<Who>,
    fence: Option<u64>,
    since_unix_ms: Option<u64>,
    held_ms: Option<u64>,
    lease_left_ms: Option<u64>,
    waiters: Vec<Waiter>,
    broken_fence: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Waiter {
    position: usize,
    #[serde(flatten)]
    who: Who,
    waited_ms: u64,
}

impl Status {
    pub(crate) fn new(seen: &NameStatus, located: Option<&Located>) -> Self {
        let holder = seen.holder.as_ref();
        let waiter = |(index, waiting): (usize, &WaiterStatus)| Waiter {
            position: index + 1,
            who: Who::new(&waiting.owner),
            waited_ms: millis(waiting.waited),
        };
        Status {
            name: seen.name.clone(),
            domain: located.map(|located| located.url.to_string()),
            state: if holder.is_some() { "held" } else { "free" },
            holder: holder.map(|held| Who::new(&held.owner)),
            fence: holder.map(|held| held.fence),
            since_unix_ms: holder.and_then(|held| held.since).map(unix_millis),
            held_ms: holder.and_then(|held| held.held).map(millis),
            lease_left_ms: holder.and_then(|held| held.left).map(millis),
            waiters: seen.waiters.iter().enumerate().map(waiter).collect(),
            broken_fence: seen.broken,
        }
    }
}

/// Whole milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Whole microseconds, for what is measured.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Milliseconds since 1970.
pub(crate) fn unix_millis(moment: SystemTime) -> u64 {
    millis(moment.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_character_reaches_a_terminal_or_gets_lost() {
        let line = to_line(&serde_json::json!({ "name": "a\n\u{1b}[31m\u{7f}\u{9b}31m\"ü" }));
        assert_eq!(line, r#"{"v":1,"name":"a\n\u001b[31m\u007f\u009b31m\"ü"}"#);
    }
}
