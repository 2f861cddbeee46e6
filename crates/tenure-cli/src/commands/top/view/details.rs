//! Everything that is known of the selected name.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Paragraph};

use super::super::row::RowWaiter;
use super::super::state::State;
use super::Palette;
use super::fit::{self, wrapped};
use crate::text::{rough, utc};

/// The width of the keys.
const KEY: u16 = 8;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, state: &State, palette: Palette) {
    if area.height == 0 {
        return;
    }
    let (above, below) = (state.scroll, state.room.details - state.scroll);
    let title = match (above, below) {
        (0, 0) => " details ".to_owned(),
        _ => format!(" details, {above} lines above, {below} below "),
    };
    let block = Block::new().borders(Borders::TOP).title(title);
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let lines: Vec<Line<'_>> = facts(state, inside.width)
        .into_iter()
        .skip(above)
        .take(inside.height.into())
        .map(Line::from)
        .collect();
    frame.render_widget(Paragraph::new(lines).style(palette.row(false, state.is_stale())), inside);
}

/// How many lines do not fit.
pub(super) fn hidden(area: Rect, state: &State) -> usize {
    if area.height == 0 {
        return 0;
    }
    needed(area.width, state).saturating_sub(usize::from(area.height))
}

/// How many lines all of them take, with the title.
pub(super) fn needed(width: u16, state: &State) -> usize {
    facts(state, width).len() + 1
}

fn facts(state: &State, width: u16) -> Vec<String> {
    let Some(row) = state.selected() else {
        return vec!["no name is selected".to_owned()];
    };
    let mut lines = Vec::new();
    let mut fact = |key: &str, value: &str| {
        let value = wrapped(value, width.saturating_sub(KEY));
        for (number, part) in value.iter().enumerate() {
            let key = if number == 0 { key } else { "" };
            lines.push(format!("{key:<width$}{part}", width = usize::from(KEY)));
        }
    };
    fact("name", &row.shown);
    match &row.holding {
        None => fact("holder", "nobody"),
        Some(holding) => {
            fact("holder", &holding.who);
            if !holding.label.is_empty() {
                fact("label", &holding.label);
            }
            if let (Some(since), Some(held_for)) = (holding.since, holding.held_for) {
                fact("fence", &holding.fence.to_string());
                fact("since", &format!("{}, for {}", utc(since), rough(held_for)));
            }
            match holding.left {
                Some(left) => {
                    let (left, longest) = (fit::left(left), fit::left(holding.longest));
                    fact("lease", &format!("{left} left; the most that was seen: {longest}"));
                }
                None => fact("lease", "without expiry: it stays until it is released or broken"),
            }
            if let Some(renewed) = holding.renewed {
                let ago = rough(state.now.duration_since(renewed).unwrap_or_default());
                fact("renewed", &format!("{ago} ago: its holder lives"));
            }
        }
    }
    match row.queue.len() {
        0 => fact("queue", "nobody waits"),
        waiting => fact("queue", &format!("{waiting} waiting")),
    }
    for (position, RowWaiter { who, label, waited }) in (1..).zip(&row.queue) {
        let label = if label.is_empty() { String::new() } else { format!(", label `{label}`") };
        fact(&format!("{position:>6}"), &format!("{who}, for {}{label}", rough(*waited)));
    }
    lines
}
