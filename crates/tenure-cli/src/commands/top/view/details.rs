//! All that is known of the selected name.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Paragraph};

use super::super::row::{Row, Waiting};
use super::super::state::State;
use super::Palette;
use super::fit::{self, broken};
use crate::text::{rough, utc};

/// Of what stands before a fact.
const KEY: u16 = 8;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, state: &State, palette: Palette) {
    if area.height == 0 {
        return;
    }
    let block = Block::new().borders(Borders::TOP).title(" details ");
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let lines = match state.selected() {
        Some(row) => facts(row, inside),
        None => vec!["no name is selected".to_owned()],
    };
    let lines: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines).style(palette.row(false, state.is_stale())), inside);
}

/// The facts, no more lines than fit.
fn facts(row: &Row, area: Rect) -> Vec<String> {
    let mut lines = Vec::new();
    let mut fact = |key: &str, value: &str| {
        let value = broken(value, area.width.saturating_sub(KEY));
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
        }
    }
    match row.queue.len() {
        0 => fact("queue", "nobody waits"),
        waiting => fact("queue", &format!("{waiting} waiting")),
    }
    let room = usize::from(area.height).saturating_sub(lines.len());
    lines.extend(queue(&row.queue, room));
    lines
}

/// Those who wait, with their positions; the last line tells how many there was no room for.
fn queue(queue: &[Waiting], room: usize) -> Vec<String> {
    let shown = if queue.len() <= room { queue.len() } else { room.saturating_sub(1) };
    let mut lines: Vec<String> = (1..)
        .zip(&queue[..shown])
        .map(|(position, Waiting { who, label, waited })| {
            let label = if label.is_empty() { String::new() } else { format!(", label `{label}`") };
            format!("{position:>6}  {who}, for {}{label}", rough(*waited))
        })
        .collect();
    if shown < queue.len() && room > 0 {
        lines.push(format!("        and {} more; `tenure status` shows all", queue.len() - shown));
    }
    lines
}
