//! A histogram as lines of text.

use std::fmt::Write as _;

use crate::sample::Class;
use crate::text::fine;

/// The longest bar, and what stands beside it.
const WIDTH: usize = 40;
const BESIDE: usize = 24;
/// Blocks of one to seven eighths.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// One line a class: where it begins, a bar, how many.
pub(super) fn bars(classes: &[Class], is_unicode: bool, columns: Option<usize>) -> String {
    let width = columns.map_or(WIDTH, |columns| columns.saturating_sub(BESIDE).clamp(1, WIDTH));
    let most = classes.iter().map(|class| class.count).max().unwrap_or(0).max(1);
    let mut text = String::new();
    for class in classes {
        // What is there is seen.
        let eighths = (class.count * width * 8).div_ceil(most);
        let bar = match is_unicode {
            true => format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8]),
            false => "#".repeat(eighths.div_ceil(8)),
        };
        let _ = writeln!(text, "  from {:>8} {bar:width$} {}", fine(class.from), class.count);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_longest_bar_is_the_most_and_a_single_one_is_seen() {
        let class = |from, count| Class {
            from: Duration::from_micros(from),
            to: Duration::from_micros(from * 2),
            count,
        };
        let text = bars(&[class(50, 1_000), class(100, 500), class(200, 1), class(500, 0)], false, None);
        let lengths: Vec<usize> = text.lines().map(|line| line.matches('#').count()).collect();
        assert_eq!(lengths, [40, 20, 1, 0]);
        for columns in [40, 60, 80, 200] {
            let text = bars(&[class(50, 1_000), class(200, 1)], false, Some(columns));
            assert!(text.lines().all(|line| line.len() < columns), "{text}");
        }
        let text = bars(&[class(50, 1_000), class(200, 1)], true, None);
        assert!(text.contains(&"█".repeat(40)) && text.contains("▏"), "{text}");
    }
}
