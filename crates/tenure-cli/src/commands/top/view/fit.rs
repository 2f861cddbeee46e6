//! The width of text on a terminal, and how it is cut and wrapped.

use std::time::Duration;

use ratatui::text::Span;

use crate::text::{CUT, rough};

/// How many columns a text takes.
pub(super) fn width(text: &str) -> u16 {
    u16::try_from(Span::raw(text).width()).unwrap_or(u16::MAX)
}

fn width_of(c: char) -> u16 {
    width(c.encode_utf8(&mut [0; 4]))
}

/// As much of the beginning as fits.
pub(super) fn cut(text: &str, columns: u16) -> String {
    crate::text::cut(text, columns.into())
}

/// As much of the end as fits. The end of an address says more than its beginning.
pub(super) fn cut_left(text: &str, columns: u16) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let kept = text.char_indices().map(|(at, _)| &text[at..]).find(|end| width(end) < columns);
    kept.map_or_else(String::new, |kept| format!("{CUT}{kept}"))
}

/// Wraps a text after spaces, into lines of so many columns. Nothing is left out, so that the typed text ends at the cursor.
pub(super) fn wrapped(text: &str, columns: u16) -> Vec<String> {
    // The widest character takes two.
    let columns = columns.max(2);
    let (mut lines, mut line) = (Vec::new(), String::new());
    for c in text.chars() {
        if width(&line) + width_of(c) <= columns {
            line.push(c);
        } else if c == ' ' {
            // A space beyond the last column is not visible.
            lines.push(std::mem::take(&mut line) + " ");
        } else {
            let rest = line.split_off(line.rfind(' ').map_or(line.len(), |space| space + 1));
            lines.push(std::mem::replace(&mut line, rest));
            line.push(c);
        }
    }
    lines.push(line);
    lines
}

/// How much of a time is left, rounded up to seconds: a new lease of 10 s must not show 9.
pub(super) fn left(duration: Duration) -> String {
    let second = Duration::from_secs(1);
    if duration <= second {
        return rough(duration);
    }
    rough(Duration::from_secs(duration.as_secs() + u64::from(duration.subsec_nanos() > 0)))
}
