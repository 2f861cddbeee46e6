//! Draws the state. Pure, so that tests can draw screens of any size without a terminal.
//!
//! No fact is shown by colour alone: the selected row has a mark, stale rows are named in words, the bar of a lease has its time beside it. On a narrow
//! screen, columns are left out before names become unreadable; the details have the rest.

mod details;
mod fit;
mod palette;
mod table;
#[cfg(test)]
mod tests;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use self::fit::{cut, cut_left, width, wrapped};
pub(super) use self::palette::Palette;
use super::state::{Breaking, Mode, Room, State};
use crate::text::{escaped, fine, rough, utc};

/// Below this height, the details replace the table instead of sharing the screen.
const BOTH: u16 = 12;
/// For a message or an error. Longer ones are cut.
const MOST_LINES: u16 = 3;
/// For a question, which begins with a warning that must be visible.
const MOST_LINES_OF_QUESTION: u16 = 6;

/// As many as fit on the smallest screen.
const HELP: [(&str, &str); 7] = [
    ("↑ ↓ j k", "select; PgUp PgDn Home End"),
    ("Enter", "details, or back"),
    ("s  r", "next sort column; reverse"),
    ("/", "text or glob; Esc shows all"),
    ("b", "break: asks for the name"),
    ("^L  ^Z", "draw again; suspend"),
    ("q  ^C", "quit"),
];

/// Where everything is.
struct Regions {
    header: Rect,
    trouble: Rect,
    table: Rect,
    details: Rect,
    footer: Rect,
}

impl Regions {
    fn new(area: Rect, state: &State) -> Self {
        let footer = Footer::new(state).lines(area.width);
        let trouble = trouble(state).map_or(0, |text| lines(&text, area.width, MOST_LINES));
        // A question is more important.
        let trouble = trouble.min(area.height.saturating_sub(2 + footer));
        let [header, trouble, body, footer] = Layout::vertical([
            Constraint::Length(2),
            Constraint::Length(trouble),
            Constraint::Min(0),
            Constraint::Length(footer),
        ])
        .areas(area);
        let nothing = Rect { height: 0, ..body };
        let (table, details) = match (state.has_details, body.height >= BOTH) {
            (false, _) => (body, nothing),
            (true, false) => (nothing, body),
            (true, true) => {
                let [table, details] = Layout::vertical(halves(body, state)).areas(body);
                (table, details)
            }
        };
        Regions { header, trouble, table, details, footer }
    }
}

/// Table and details get half of the body each. Space that one does not need goes to the other, if it needs more.
fn halves(body: Rect, state: &State) -> [Constraint; 2] {
    let half = usize::from(body.height / 2);
    let (table, details) = (state.shown().len().max(1) + 1, details::needed(body.width, state));
    let length = |lines| Constraint::Length(u16::try_from(lines).unwrap_or(body.height));
    match (table <= half, details <= half) {
        (true, false) => [length(table), Constraint::Fill(1)],
        (false, true) => [Constraint::Fill(1), length(details)],
        _ => [Constraint::Fill(1), Constraint::Fill(1)],
    }
}

/// How many lines a text gets.
fn lines(text: &str, width: u16, most: u16) -> u16 {
    u16::try_from(wrapped(text, width).len()).unwrap_or(most).min(most)
}

/// What there is room for.
pub(super) fn room(area: Rect, state: &State) -> Room {
    let regions = Regions::new(area, state);
    Room {
        rows: usize::from(regions.table.height.saturating_sub(1)).max(1),
        details: details::hidden(regions.details, state),
    }
}

/// Draws the screen.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State, palette: Palette) {
    let regions = Regions::new(frame.area(), state);
    draw_header(frame, regions.header, state, palette);
    if let Some(trouble) = trouble(state) {
        draw_text(frame, regions.trouble, &trouble, palette.trouble());
    }
    if let Mode::Helping = state.mode {
        draw_help(frame, regions.table.union(regions.details));
    } else {
        table::draw(frame, regions.table, state, palette);
        details::draw(frame, regions.details, state, palette);
    }
    Footer::new(state).draw(frame, regions.footer);
    if !palette.is_unicode {
        frame.buffer_mut().content.iter_mut().for_each(palette::to_ascii);
    }
}

fn draw_text(frame: &mut Frame<'_>, area: Rect, text: &str, style: Style) {
    let lines: Vec<Line<'_>> = wrapped(text, area.width).into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines).style(style), area);
}

fn draw_header(frame: &mut Frame<'_>, area: Rect, state: &State, palette: Palette) {
    let [first, second] = Layout::vertical([Constraint::Length(1), Constraint::Length(1)]).areas(area);
    let now = utc(state.now);
    // A narrow screen has no room for the date.
    let now = if area.width < 70 { now.split_once(' ').map_or("", |(_, time)| time) } else { &now };
    let title = "tenure top  ";
    let [left, right] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(width(now) + 1)]).areas(first);
    let address = cut_left(&state.address, left.width.saturating_sub(width(title)));
    let title = Line::from(vec![Span::styled(title, palette.title()), Span::raw(address)]);
    frame.render_widget(title, left);
    frame.render_widget(Line::from(now).right_aligned(), right);
    frame.render_widget(Line::from(cut(&facts(state), second.width)), second);
}

/// The line of numbers.
fn facts(state: &State) -> String {
    let Some(round_trip) = state.round_trip() else {
        return "asking the store …".to_owned();
    };
    let held = state.rows().iter().filter(|row| row.holding.is_some()).count();
    let waiting: usize = state.rows().iter().map(|row| row.queue.len()).sum();
    let mut facts = format!("{held} held, {waiting} waiting, round trip {}", fine(round_trip));
    if !state.filter.text().is_empty() {
        let shown = state.shown().len();
        facts.push_str(&format!(", {shown} of {} match `{}`", state.rows().len(), state.filter.shown()));
    }
    facts
}

/// Why the rows are out of date, if they are.
fn trouble(state: &State) -> Option<String> {
    let stale = if state.rows().is_empty() { "" } else { "; rows are stale" };
    if let Some(away) = &state.away {
        let since = utc(away.since);
        return Some(format!("store is away since {since}{stale}: {}", away.error));
    }
    state.silence().map(|silence| format!("store has not answered for {}{stale}", rough(silence)))
}

/// What the last lines are for.
enum Footer {
    /// Which keys there are, as many as fit.
    Keys(&'static str),
    Message(String),
    /// The user types at the end of `text`. The warning, with which it begins, is never hidden.
    Prompt {
        warning: String,
        text: String,
    },
}

/// The warning that the holder of a lease may be alive. The lease may be renewed while the user types the name.
fn signs_of_life(state: &State, breaking: &Breaking) -> String {
    let row = state.rows().iter().find(|row| row.name == breaking.name);
    let same = row.and_then(|row| row.holding.as_ref()).filter(|holding| holding.fence == breaking.fence);
    if let Some(renewed) = same.map_or(breaking.renewed, |holding| holding.renewed) {
        let ago = rough(state.now.duration_since(renewed).unwrap_or_default());
        return format!("ITS HOLDER IS ALIVE: it renewed the lease {ago} ago. Still ");
    }
    match breaking.is_here {
        true => "ITS HOLDER MAY BE ALIVE: its process is on this machine. Still ".to_owned(),
        false => String::new(),
    }
}

impl Footer {
    fn new(state: &State) -> Self {
        match &state.mode {
            Mode::Filtering => {
                Footer::Prompt { warning: String::new(), text: format!("/{}", state.filter.shown()) }
            }
            Mode::Breaking(breaking) => {
                let (name, who, fence) = (&breaking.shown, &breaking.who, breaking.fence);
                let (warning, typed) = (signs_of_life(state, breaking), escaped(&breaking.typed));
                let text =
                    format!("{warning}break the lease of {who}, fence {fence}? Type `{name}`: {typed}");
                Footer::Prompt { warning, text }
            }
            Mode::Helping => Footer::Keys("any key: back"),
            Mode::Browsing => match &state.message {
                Some(message) => Footer::Message(message.clone()),
                None if state.has_details => Footer::Keys("Enter back  PgDn more  b break  ? help  q quit"),
                None => Footer::Keys("? help  q quit  / filter  s sort  r reverse  Enter details  b break"),
            },
        }
    }

    fn lines(&self, width: u16) -> u16 {
        match self {
            Footer::Keys(_) => 1,
            Footer::Message(text) => lines(text, width, MOST_LINES),
            // One column is for the cursor.
            Footer::Prompt { text, .. } => lines(text, width.saturating_sub(1), MOST_LINES_OF_QUESTION),
        }
    }

    fn draw(&self, frame: &mut Frame<'_>, area: Rect) {
        let (warning, text) = match self {
            Footer::Keys(keys) => return frame.render_widget(Line::from(cut(keys, area.width)), area),
            Footer::Message(text) => return draw_text(frame, area, text, Style::new()),
            Footer::Prompt { warning, text } => (warning, text),
        };
        // If it is too long, the warning and the end are shown.
        let (columns, height) = (area.width.saturating_sub(1), usize::from(area.height));
        let mut lines = wrapped(text, columns);
        let of_warning = if warning.is_empty() { 0 } else { wrapped(warning.trim_end(), columns).len() };
        let first_hidden = of_warning.min(height.saturating_sub(1));
        lines.drain(first_hidden..first_hidden + lines.len().saturating_sub(height));
        let lines: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
        if let (Some(last), Ok(below)) = (lines.last(), u16::try_from(lines.len().saturating_sub(1))) {
            let x = area.x + u16::try_from(last.width()).unwrap_or_default();
            frame.set_cursor_position(Position { x, y: area.y + below });
        }
        frame.render_widget(Paragraph::new(lines), area);
    }
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let lines: Vec<Line<'_>> =
        HELP.iter().map(|(keys, meaning)| Line::from(format!("{keys:<10}{meaning}"))).collect();
    frame.render_widget(Paragraph::new(lines), area);
}
