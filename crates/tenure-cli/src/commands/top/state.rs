//! What the screen shows, and where the user is in it. Pure: answers and keys go in, effects come out.
//!
//! The selection is a name, not a line: rows change places four times a second, and `b` must not hit another name than the one that the user saw. If the
//! selected name disappears, its neighbour is selected.

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use tenure::{Holder, Status};

use super::filter::Filter;
use super::row::{Row, RowHolder};

/// How long the store may take to answer before the rows count as stale.
const PATIENCE: Duration = Duration::from_secs(2);

/// One poll of the store.
#[derive(Debug)]
pub(super) struct Poll {
    pub(super) at: SystemTime,
    pub(super) answer: Result<Answer, tenure::Error>,
}

/// What the store showed.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) statuses: Vec<Status>,
    pub(super) round_trip: Duration,
}

/// What the screen has room for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// How many rows.
    pub(super) rows: usize,
    /// How many lines of the details there is no room for.
    pub(super) details: usize,
}

/// What the rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Name,
    HeldFor,
    LeaseLeft,
    Queue,
}

/// What the keys mean at the moment.
#[derive(Clone, Debug)]
pub(super) enum Mode {
    /// They move and ask.
    Browsing,
    /// They are typed into the filter.
    Filtering,
    /// They are typed as the name to break.
    Breaking(Box<Breaking>),
    /// Any key closes the help.
    Helping,
}

/// A lease that the user wants to break, as it was shown at that time.
#[derive(Clone, Debug)]
pub(super) struct Breaking {
    pub(super) name: String,
    pub(super) shown: String,
    pub(super) who: String,
    pub(super) fence: u64,
    /// When the screen last saw a renewal.
    pub(super) renewed: Option<SystemTime>,
    /// Its process is on this machine.
    pub(super) is_here: bool,
    pub(super) holder: Holder,
    pub(super) typed: String,
}

/// Since when the store does not answer, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Away {
    pub(super) since: SystemTime,
    pub(super) error: String,
}

#[derive(Debug)]
pub(super) struct State {
    /// Where names live, without password.
    pub(super) address: String,
    pub(super) now: SystemTime,
    interval: Duration,
    /// All names, in order.
    rows: Vec<Row>,
    /// Which rows pass the filter, in order.
    shown: Vec<usize>,
    selected: Option<String>,
    /// Where the selected name is, or was, among those shown.
    line: usize,
    /// Of the screen as it was drawn last.
    pub(super) room: Room,
    /// How many lines of the details are above what is shown.
    pub(super) scroll: usize,
    pub(super) sort: Column,
    pub(super) is_reversed: bool,
    pub(super) filter: Filter,
    pub(super) mode: Mode,
    pub(super) has_details: bool,
    /// The result of the last command.
    pub(super) message: Option<String>,
    pub(super) away: Option<Away>,
    answered: Option<(SystemTime, Duration)>,
}

impl State {
    pub(super) fn new(address: String, interval: Duration, now: SystemTime) -> Self {
        State {
            address,
            now,
            interval,
            rows: Vec::new(),
            shown: Vec::new(),
            selected: None,
            line: 0,
            room: Room { rows: 1, details: 0 },
            scroll: 0,
            sort: Column::Name,
            is_reversed: false,
            filter: Filter::default(),
            mode: Mode::Browsing,
            has_details: false,
            message: None,
            away: None,
            answered: None,
        }
    }

    /// Takes in a poll. If it failed, the rows stay.
    pub(super) fn look(&mut self, look: Poll) {
        match look.answer {
            Ok(answer) => {
                self.away = None;
                self.answered = Some((look.at, answer.round_trip));
                let mut before: HashMap<String, RowHolder> =
                    self.rows.drain(..).filter_map(|row| Some((row.name, row.holding?))).collect();
                let mut row = |status: Status| {
                    let before = before.remove(&status.name);
                    Row::new(status, look.at, before.as_ref())
                };
                self.show(answer.statuses.into_iter().map(&mut row).collect());
            }
            Err(error) => {
                let since = self.away.as_ref().map_or(look.at, |away| away.since);
                self.away = Some(Away { since, error: crate::text::escaped(&error.to_string()) });
            }
        }
    }

    /// Shows these rows instead of those before.
    pub(super) fn show(&mut self, rows: Vec<Row>) {
        self.rows = rows;
        self.arrange();
    }

    /// Sorts and filters again, and finds the selected name where it is now.
    pub(super) fn arrange(&mut self) {
        let (sort, is_reversed) = (self.sort, self.is_reversed);
        self.rows.sort_by(|a, b| {
            let order = sort.compare(a, b);
            // Names decide between equal rows, so that they do not change places.
            if is_reversed { order.reverse() } else { order }.then_with(|| a.name.cmp(&b.name))
        });
        self.shown = (0..self.rows.len()).filter(|row| self.filter.shows(&self.rows[*row])).collect();
        let found = self.shown.iter().position(|row| Some(&self.rows[*row].name) == self.selected.as_ref());
        self.select(found.unwrap_or(self.line));
    }

    /// Selects a line, or the last one if there are fewer.
    pub(super) fn select(&mut self, line: usize) {
        self.line = line.min(self.shown.len().saturating_sub(1));
        let name = self.shown.get(self.line).map(|row| self.rows[*row].name.clone());
        if name != self.selected {
            self.scroll = 0;
        }
        self.selected = name;
    }

    /// The screen has this room now.
    pub(super) fn fit(&mut self, room: Room) {
        self.room = room;
        self.scroll = self.scroll.min(room.details);
    }

    pub(super) fn line(&self) -> usize {
        self.line
    }

    /// The selected row.
    pub(super) fn selected(&self) -> Option<&Row> {
        self.shown.get(self.line).map(|row| &self.rows[*row])
    }

    /// The rows that pass the filter, in order.
    pub(super) fn shown(&self) -> impl ExactSizeIterator<Item = &Row> {
        self.shown.iter().map(|row| &self.rows[*row])
    }

    /// All rows, including those that the filter hides.
    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// How long the store took for one answer; `None` before the first.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.answered.map(|(_, round_trip)| round_trip)
    }

    /// For how long the store has not answered, if that is long.
    pub(super) fn silence(&self) -> Option<Duration> {
        let silence = self.now.duration_since(self.answered?.0).unwrap_or_default();
        Some(silence).filter(|silence| *silence > self.interval + PATIENCE)
    }

    /// Whether the rows may be out of date.
    pub(super) fn is_stale(&self) -> bool {
        self.away.is_some() || self.silence().is_some()
    }
}

impl Column {
    pub(super) fn next(self) -> Self {
        match self {
            Column::Name => Column::HeldFor,
            Column::HeldFor => Column::LeaseLeft,
            Column::LeaseLeft => Column::Queue,
            Column::Queue => Column::Name,
        }
    }

    /// Whether the largest comes first, without `r`.
    pub(super) fn is_descending(self) -> bool {
        matches!(self, Column::HeldFor | Column::Queue)
    }

    /// Unusual rows come first: held for long, about to end, with a long queue.
    fn compare(self, a: &Row, b: &Row) -> Ordering {
        match self {
            Column::Name => a.name.cmp(&b.name),
            Column::HeldFor => Reverse(a.held_for()).cmp(&Reverse(b.held_for())),
            Column::LeaseLeft => a.left().cmp(&b.left()),
            Column::Queue => Reverse(a.queue.len()).cmp(&Reverse(b.queue.len())),
        }
    }
}
