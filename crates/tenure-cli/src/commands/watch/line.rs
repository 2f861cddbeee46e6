//! An event as a line: for people, and for programs.

use std::fmt::Write as _;
use std::time::SystemTime;

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use super::events::{Event, EventKind};
use crate::json::{Who, millis, unix_millis};
use crate::text::{escaped, owner, rough, stamp};

impl EventKind {
    fn word(self) -> &'static str {
        match self {
            EventKind::Held => "held",
            EventKind::Queued => "queued",
            EventKind::Left => "left",
            EventKind::Acquired => "acquired",
            EventKind::Released => "released",
            EventKind::Expired => "expired",
            EventKind::Broken => "broken",
        }
    }

    /// The colour only repeats the word.
    fn style(self) -> Style {
        match self {
            EventKind::Acquired => AnsiColor::Green.on_default(),
            EventKind::Expired => AnsiColor::Yellow.on_default(),
            EventKind::Broken => AnsiColor::Red.on_default(),
            EventKind::Held | EventKind::Queued | EventKind::Left | EventKind::Released => Style::new(),
        }
    }
}

/// As people read it: when, what, which name, who, and what else is known.
pub(super) fn text(event: &Event, now: SystemTime) -> String {
    let (style, word) = (event.kind.style(), event.kind.word());
    let (when, name, who) = (stamp(now), escaped(&event.name), owner(&event.who));
    let mut line = format!("{when} {style}{word:8}{style:#} `{name}` by {who}");
    if let Some(fence) = event.fence {
        let _ = write!(line, ", fence {fence}");
    }
    let is_over = matches!(event.kind, EventKind::Released | EventKind::Expired | EventKind::Broken);
    match event.held {
        Some(held) if is_over || event.kind == EventKind::Held => {
            let _ = write!(line, ", held for {}", rough(held));
        }
        _ => {}
    }
    if let Some(waited) = event.waited {
        let _ = write!(line, ", waited {}", rough(waited));
    }
    match event.left {
        Some(left) if event.kind == EventKind::Held => {
            let _ = write!(line, ", lease left {}", rough(left));
        }
        _ => {}
    }
    line
}

/// As programs read it.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    time_unix_ms: u64,
    event: &'static str,
    name: String,
    #[serde(flatten)]
    who: Who,
    fence: Option<u64>,
    held_ms: Option<u64>,
    waited_ms: Option<u64>,
    lease_left_ms: Option<u64>,
}

impl Line {
    pub(super) fn new(event: &Event, now: SystemTime) -> Self {
        Line {
            time_unix_ms: unix_millis(now),
            event: event.kind.word(),
            name: event.name.clone(),
            who: Who::new(&event.who),
            fence: event.fence,
            held_ms: event.held.map(millis),
            waited_ms: event.waited.map(millis),
            lease_left_ms: event.left.map(millis),
        }
    }
}
