//! The names as a table, one page of it at a time.
//!
//! It turns pages instead of scrolling: moving the selection then redraws two rows instead of all, which matters over a slow connection.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::super::row::{self, RowHolder};
use super::super::state::{Column, State};
use super::Palette;
use super::fit::{self, cut};
use crate::text::rough;

/// Of the bar of a lease.
const BAR: usize = 8;
/// Of a duration, or `no end`.
const TIME: u16 = 7;
const QUEUE: u16 = 6;
const MARK: u16 = 1;

/// Which columns there are room for, and how wide they are.
struct Columns {
    name: u16,
    holder: Option<u16>,
    label: Option<u16>,
    has_bar: bool,
    has_wait: bool,
}

/// The widths of columns. Each has a share, and gives what it does not need to columns that need more. As long as the shares suffice, columns do not
/// move when rows come and go.
fn balanced(shares: [u16; 3], needs: [u16; 3]) -> [u16; 3] {
    let mut widths = shares;
    for (taker, need) in needs.into_iter().enumerate() {
        for giver in (0..widths.len()).rev() {
            let wanted = need.saturating_sub(widths[taker]);
            let given = widths[giver].saturating_sub(needs[giver]).min(wanted);
            widths[giver] -= given;
            widths[taker] += given;
        }
    }
    widths
}

impl Columns {
    /// `needs` is the widest text of each of the three columns of text.
    fn new(width: u16, needs: [u16; 3]) -> Self {
        let (has_holder, has_wait, has_bar, has_label) =
            (width >= 60, width >= 72, width >= 90, width >= 100);
        let lease = if has_bar { TIME + BAR as u16 + 1 } else { TIME };
        let mut fixed = vec![MARK, TIME, lease, QUEUE];
        fixed.extend(has_wait.then_some(TIME));
        let texts = 1 + u16::from(has_holder) + u16::from(has_label);
        let gaps = fixed.len() as u16 + texts - 1;
        let rest = width.saturating_sub(fixed.iter().sum::<u16>() + gaps);
        let holder = has_holder.then_some(if has_label { rest * 35 / 100 } else { rest * 45 / 100 });
        let label = has_label.then_some(rest * 20 / 100);
        let shares =
            [rest - holder.unwrap_or(0) - label.unwrap_or(0), holder.unwrap_or(0), label.unwrap_or(0)];
        let present = [true, has_holder, has_label];
        let needs = std::array::from_fn(|column| if present[column] { needs[column] } else { 0 });
        let [name, holder, label] = balanced(shares, needs);
        let (holder, label) = (has_holder.then_some(holder), has_label.then_some(label));
        Columns { name, holder, label, has_bar, has_wait }
    }

    /// For the rows that are shown.
    fn fitting(width: u16, state: &State) -> Self {
        let mut needs = ["NAME", "HOLDER", "LABEL"].map(|title| fit::width(title) + 1);
        for row in state.shown() {
            let holding = row.holding.as_ref();
            let texts = [
                row.shown.as_str(),
                holding.map_or("", |holding| &holding.who),
                holding.map_or("", |holding| &holding.label),
            ];
            for (need, text) in needs.iter_mut().zip(texts) {
                *need = (*need).max(fit::width(text));
            }
        }
        Columns::new(width, needs)
    }

    fn constraints(&self) -> Vec<Constraint> {
        let lease = if self.has_bar { TIME + BAR as u16 + 1 } else { TIME };
        let columns =
            [Some(MARK), Some(self.name), self.holder, self.label, Some(TIME), Some(lease), Some(QUEUE)];
        let wait = self.has_wait.then_some(TIME);
        columns.into_iter().chain([wait]).flatten().map(Constraint::Length).collect()
    }

    fn headings(&self, state: &State) -> Row<'static> {
        let arrow = if state.sort.is_descending() == state.is_reversed { "▲" } else { "▼" };
        let heading = |title: &str, column| {
            let is_sorted = Some(state.sort) == column;
            Some(format!("{title}{}", if is_sorted { arrow } else { "" }))
        };
        let cells = [
            heading("", None),
            heading("NAME", Some(Column::Name)),
            self.holder.and_then(|_| heading("HOLDER", None)),
            self.label.and_then(|_| heading("LABEL", None)),
            heading("HELD", Some(Column::HeldFor)),
            heading("LEASE", Some(Column::LeaseLeft)),
            heading("QUEUE", Some(Column::Queue)),
            if self.has_wait { heading("WAIT", None) } else { None },
        ];
        Row::new(cells.into_iter().flatten())
    }

    fn row(&self, row: &row::Row, is_selected: bool, palette: Palette) -> Row<'static> {
        let holding = row.holding.as_ref();
        let mark = if is_selected { ">" } else { " " };
        let mut cells = vec![Cell::from(mark), Cell::from(cut(&row.shown, self.name))];
        if let Some(width) = self.holder {
            cells.push(cut(holding.map_or("nobody", |holding| &holding.who), width).into());
        }
        if let Some(width) = self.label {
            cells.push(cut(holding.map_or("", |holding| &holding.label), width).into());
        }
        cells.push(row.held_for().map_or_else(|| "-".to_owned(), rough).into());
        cells.push(self.lease(holding, palette).into());
        cells.push(format!("{:>5}", row.queue.len()).into());
        if self.has_wait {
            cells.push(row.longest_wait().map_or_else(|| "-".to_owned(), rough).into());
        }
        Row::new(cells)
    }

    fn lease(&self, holding: Option<&RowHolder>, palette: Palette) -> Line<'static> {
        let Some(holding) = holding else {
            return Line::from("-");
        };
        let left = holding.left.map_or_else(|| "no end".to_owned(), fit::left);
        if !self.has_bar {
            return Line::from(left);
        }
        let share = holding.share(BAR);
        let bar = "█".repeat(share) + &"░".repeat(BAR - share);
        Line::from(vec![Span::styled(bar, palette.bar(share)), Span::raw(format!(" {left}"))])
    }
}

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, state: &State, palette: Palette) {
    let nothing = match (state.round_trip(), state.rows().is_empty()) {
        // Other lines say what is unknown.
        (None, _) => Some(""),
        (_, true) => Some("no name is held or waited for"),
        _ if state.shown().len() == 0 => Some("no name matches the filter; Esc shows all"),
        _ => None,
    };
    if let Some(nothing) = nothing {
        return frame.render_widget(Paragraph::new(nothing), area);
    }
    let columns = Columns::fitting(area.width, state);
    let is_stale = state.is_stale();
    let page = state.room.rows;
    let first = state.line() / page * page;
    let rows = state.shown().enumerate().skip(first).take(page).map(|(line, row)| {
        let is_selected = line == state.line();
        columns.row(row, is_selected, palette).style(palette.row(is_selected, is_stale))
    });
    let table = Table::new(rows, columns.constraints())
        .header(columns.headings(state).style(palette.heading()))
        .column_spacing(1);
    frame.render_widget(table, area);
}
