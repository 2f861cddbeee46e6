//! Columns that stand below each other, as wide as what is in them.
//!
//! On a terminal a line that is too wide is worse than one that is cut: so the widest of the columns that may be cut gives way first, until all fits.
//! In a pipe nothing is cut.

use std::os::fd::AsFd;

use rustix::termios::{isatty, tcgetwinsize};
use unicode_width::UnicodeWidthStr as _;

use crate::text::cut;

/// Between two columns.
const GAP: usize = 2;
/// No column is cut to less than this.
const LEAST: usize = 8;

/// How a column is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// Text that is cut when the line is too wide.
    Cut,
    /// Numbers, below each other's last digits.
    Number,
}

/// The width of the terminal that a stream leads to; `None` when that is none, or does not say.
pub(crate) fn terminal_width(stream: impl AsFd) -> Option<usize> {
    let size = tcgetwinsize(&stream).ok().filter(|_| isatty(stream))?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// The rows as lines, no wider than `width` where that can be.
pub(crate) fn lines<const N: usize>(
    columns: [Column; N],
    rows: &[[String; N]],
    width: Option<usize>,
) -> Vec<String> {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.width().max(*width);
        }
    }
    if let Some(width) = width {
        narrow(&columns, &mut widths, width.saturating_sub(GAP * (N - 1)));
    }
    let line = |row: &[String; N]| {
        let mut line = String::new();
        for ((column, width), cell) in columns.iter().zip(widths).zip(row) {
            let cell = cut(cell, width);
            let padding = " ".repeat(width.saturating_sub(cell.width()));
            let (before, after) = if *column == Column::Number { (&*padding, "") } else { ("", &*padding) };
            line.extend([before, &cell, after, &" ".repeat(GAP)]);
        }
        line.truncate(line.trim_end_matches(' ').len());
        line
    };
    rows.iter().map(line).collect()
}

/// Takes from the widest column that may be cut until the sum fits.
fn narrow(columns: &[Column], widths: &mut [usize], room: usize) {
    while widths.iter().sum::<usize>() > room {
        let cut = (0..columns.len()).filter(|index| columns[*index] == Column::Cut && widths[*index] > LEAST);
        let Some(widest) = cut.max_by_key(|index| widths[*index]) else { return };
        widths[widest] -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> [[String; 3]; 3] {
        [["NAME", "QUEUE", "LABEL"], ["orders/漢字", "1", ""], ["a long name that goes on", "12", "by hand"]]
            .map(|row| row.map(str::to_owned))
    }

    #[test]
    fn columns_stand_below_each_other() {
        let lines = lines([Column::Cut, Column::Number, Column::Cut], &rows(), None);
        assert_eq!(
            lines,
            [
                "NAME                      QUEUE  LABEL",
                "orders/漢字                   1",
                "a long name that goes on     12  by hand",
            ]
        );
    }

    #[test]
    fn the_widest_gives_way_and_wide_characters_count_twice() {
        let lines = lines([Column::Cut, Column::Number, Column::Cut], &rows(), Some(26));
        assert_eq!(lines, ["NAME        QUEUE  LABEL", "orders/漢…      1", "a long na…     12  by hand"]);
        assert!(lines.iter().all(|line| line.width() <= 26));
    }

    #[test]
    fn where_nothing_more_can_be_cut_the_line_is_wider() {
        let lines = lines([Column::Cut, Column::Number, Column::Number], &rows(), Some(5));
        assert_eq!(lines[2], "a long …     12  by hand");
    }
}
