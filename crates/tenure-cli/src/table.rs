//! Aligned columns, as wide as their content.
//!
//! On a terminal a line that is too wide is worse than a cut one. Names matter most: other texts are cut first, the widest first, and spare columns
//! are left out before a name is cut. In a pipe nothing is cut.

use std::os::fd::AsFd;

use rustix::termios::{isatty, tcgetwinsize};
use unicode_width::UnicodeWidthStr as _;

use crate::text::cut;

/// Between two columns.
const GAP: usize = 2;
/// No text is cut to less than this.
const LEAST: usize = 8;
/// No name is cut to less than this while there is another column to leave out.
const LEAST_NAME: usize = 20;

/// How a column is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// What a row is about. It is cut in its middle, because names often differ at their ends.
    Name,
    /// Text that is cut when the line is too wide.
    Cut,
    /// Right-aligned numbers.
    Number,
}

/// The width of the terminal of a stream; `None` if it is not a terminal, or has no width.
pub(crate) fn terminal_width(stream: impl AsFd) -> Option<usize> {
    let size = tcgetwinsize(&stream).ok().filter(|_| isatty(stream))?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// The rows as lines, no wider than `width` if possible. `spare` columns are left out one by one: the first before a name is cut, the others if the
/// name would become unreadable.
pub(crate) fn lines<const N: usize>(
    columns: [Column; N],
    spare: &[usize],
    rows: &[[String; N]],
    width: Option<usize>,
) -> Vec<String> {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.width().max(*width);
        }
    }
    let all: Vec<(usize, usize)> = widths.into_iter().enumerate().collect();
    let shown = width.map_or(all.clone(), |width| narrowed(&columns, spare, &all, width));
    let line = |row: &[String; N]| {
        let mut line = String::new();
        for (index, width) in &shown {
            let (column, cell) = (columns[*index], &row[*index]);
            let cell = if column == Column::Name { cut_middle(cell, *width) } else { cut(cell, *width) };
            let padding = " ".repeat(width.saturating_sub(cell.width()));
            let (before, after) = if column == Column::Number { (&*padding, "") } else { ("", &*padding) };
            line.extend([before, &cell, after, &" ".repeat(GAP)]);
        }
        line.truncate(line.trim_end_matches(' ').len());
        line
    };
    rows.iter().map(line).collect()
}

/// The columns that are shown, each with its number and its width.
fn narrowed(
    columns: &[Column],
    spare: &[usize],
    all: &[(usize, usize)],
    width: usize,
) -> Vec<(usize, usize)> {
    let mut shown = all.to_vec();
    for left_out in 0..=spare.len() {
        shown = all.iter().copied().filter(|(index, _)| !spare[..left_out].contains(index)).collect();
        let room = width.saturating_sub(GAP * (shown.len() - 1));
        narrow(&mut shown, room, |index| if columns[index] == Column::Cut { LEAST } else { usize::MAX });
        if left_out > 0 || spare.is_empty() {
            let least = if left_out < spare.len() { LEAST_NAME } else { LEAST };
            narrow(&mut shown, room, |index| if columns[index] == Column::Name { least } else { usize::MAX });
        }
        if shown.iter().map(|(_, width)| width).sum::<usize>() <= room {
            break;
        }
    }
    shown
}

/// Takes from the widest column that is wider than its `least` until the sum fits.
fn narrow(shown: &mut [(usize, usize)], room: usize, least: impl Fn(usize) -> usize) {
    while shown.iter().map(|(_, width)| width).sum::<usize>() > room {
        let may_be_cut = shown.iter_mut().filter(|(index, width)| *width > least(*index));
        let Some((_, widest)) = may_be_cut.max_by_key(|(_, width)| *width) else { return };
        *widest -= 1;
    }
}

/// As much of the beginning and of the end as fits, with a mark between them.
fn cut_middle(text: &str, most: usize) -> String {
    if text.width() <= most {
        return text.to_owned();
    }
    let end = most.saturating_sub(1) / 2;
    let end = text.char_indices().map(|(at, _)| &text[at..]).find(|rest| rest.width() <= end).unwrap_or("");
    cut(text, most - end.width()) + end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> [[String; 3]; 3] {
        [["NAME", "QUEUE", "LABEL"], ["orders/漢字", "1", ""], ["a long name that goes on", "12", "by hand"]]
            .map(|row| row.map(str::to_owned))
    }

    const COLUMNS: [Column; 3] = [Column::Name, Column::Number, Column::Cut];

    #[test]
    fn columns_stand_below_each_other() {
        assert_eq!(
            lines(COLUMNS, &[2], &rows(), None),
            [
                "NAME                      QUEUE  LABEL",
                "orders/漢字                   1",
                "a long name that goes on     12  by hand",
            ]
        );
    }

    #[test]
    fn texts_give_way_before_names_and_wide_characters_count_twice() {
        let mut rows = rows();
        rows[1][2] = "a label that goes on".to_owned();
        let cut = lines(COLUMNS, &[2, 1], &rows, Some(42));
        assert_eq!(cut[1], "orders/漢字                   1  a label …");
        let left_out = lines(COLUMNS, &[2, 1], &rows, Some(40));
        assert_eq!(left_out[2], "a long name that goes on     12");
        let name_is_cut = lines(COLUMNS, &[2, 1], &rows, Some(27));
        assert_eq!(name_is_cut[2], "a long nam…t goes on     12");
        let alone = lines(COLUMNS, &[2, 1], &rows, Some(11));
        assert_eq!(alone, ["NAME", "orders/漢字", "a lon…es on"]);
        for width in 10..50 {
            let lines = lines(COLUMNS, &[2, 1], &rows, Some(width));
            assert!(lines.iter().all(|line| line.width() <= width), "{width}: {lines:?}");
        }
    }

    #[test]
    fn the_end_of_a_name_is_kept() {
        assert_eq!(cut_middle("orders/2026/11/16", 9), "orde…1/16");
        assert_eq!(cut_middle("漢字漢字漢字", 6), "漢…字");
        assert_eq!((cut_middle("abc", 1), cut_middle("abc", 0)), ("…".to_owned(), String::new()));
    }
}
