//! A progress bar on stderr, if that is a terminal. It is drawn a few times a second, between two measurements, and erased at the end.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use crate::table::terminal_width;
use crate::text::{is_dumb, is_unicode};

const EVERY: Duration = Duration::from_millis(100);
/// Of the bar, where there is room for it and for what stands beside it.
const WIDTH: usize = 30;
const BESIDE: usize = 32;
const ERASE: &str = "\r\x1b[K";

/// How far a measurement is.
pub(super) struct Progress {
    what: &'static str,
    length: Duration,
    /// When it is to be drawn; `None` when nobody watches.
    next: Option<Duration>,
    is_unicode: bool,
    width: usize,
}

impl Progress {
    pub(super) fn new(what: &'static str, length: Duration) -> Self {
        let next = (std::io::stderr().is_terminal() && !is_dumb()).then_some(EVERY);
        let width = terminal_width(std::io::stderr())
            .map_or(WIDTH, |columns| columns.saturating_sub(BESIDE).clamp(1, WIDTH));
        Progress { what, length, next, is_unicode: is_unicode(), width }
    }

    /// Whether it has taken as long as it is to take; draws how far it is.
    pub(super) fn is_over(&mut self, elapsed: Duration) -> bool {
        if self.next.is_some_and(|next| elapsed >= next) {
            self.next = Some(elapsed + EVERY);
            let _ = std::io::stderr().write_all(self.bar(elapsed).as_bytes());
        }
        elapsed >= self.length
    }

    fn bar(&self, elapsed: Duration) -> String {
        let share = elapsed.as_secs_f64() / self.length.as_secs_f64();
        let filled = ((share * self.width as f64) as usize).min(self.width);
        let (full, empty) = if self.is_unicode { ("█", "░") } else { ("#", "-") };
        let (full, empty) = (full.repeat(filled), empty.repeat(self.width - filled));
        let (elapsed, length) = (elapsed.min(self.length).as_secs_f64(), self.length.as_secs_f64());
        format!("{ERASE}{:9} [{full}{empty}] {elapsed:.1} of {length:.1} s", self.what)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.next.is_some_and(|next| next > EVERY) {
            let _ = std::io::stderr().write_all(ERASE.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_in_ascii() {
        let length = Duration::from_secs(10);
        let progress = Progress { what: "acquire", length, next: None, is_unicode: false, width: WIDTH };
        assert_eq!(
            progress.bar(Duration::from_secs(5)),
            "\r\u{1b}[Kacquire   [###############---------------] 5.0 of 10.0 s"
        );
        assert!(progress.bar(Duration::from_secs(20)).ends_with("] 10.0 of 10.0 s"), "never beyond its end");
    }
}
