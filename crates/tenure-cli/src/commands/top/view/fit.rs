//! Text in columns: how wide it is on a terminal, and what is left of it where it does not fit.

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

/// As much of the end as fits: of an address the end tells more.
pub(super) fn cut_left(text: &str, columns: u16) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let kept = text.char_indices().map(|(at, _)| &text[at..]).find(|end| width(end) < columns);
    kept.map_or_else(String::new, |kept| format!("{CUT}{kept}"))
}

/// A text in lines of so many columns, broken after a space where there is one. Nothing is left out, so that the end of what is typed is where
/// the cursor is.
pub(super) fn wrapped(text: &str, columns: u16) -> Vec<String> {
    // The widest character takes two.
    let columns = columns.max(2);
    let (mut lines, mut line) = (Vec::new(), String::new());
    for c in text.chars() {
        if width(&line) + width_of(c) <= columns {
            line.push(c);
        } else if c == ' ' {
            // It may stand beyond the end, where it is not seen.
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

/// What is left of a time: whole seconds are rounded up, so that a new lease of 10 s is not told to have 9.
pub(super) fn left(duration: Duration) -> String {
    let second = Duration::from_secs(1);
    if duration <= second {
        return rough(duration);
    }
    rough(Duration::from_secs(duration.as_secs() + u64::from(duration.subsec_nanos() > 0)))
}
