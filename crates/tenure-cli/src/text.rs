//! Facts as text for people: who, when, how long.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use tenure::Owner;

/// Who holds or waits.
pub(crate) fn owner(owner: &Owner) -> String {
    let Some(pid) = owner.pid() else {
        return owner.to_string();
    };
    let mut text = format!("{}@{}, pid {pid}", escaped(owner.user()), escaped(owner.host()));
    if !owner.label().is_empty() {
        let _ = write!(text, ", label `{}`", escaped(owner.label()));
    }
    text
}

/// Text of others, safe on a terminal.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || turns_text(c) { safe.extend(c.escape_debug()) } else { safe.push(c) }
    }
    safe
}

/// Whether it reverses or breaks what stands around it: a name must not make a line read as another.
fn turns_text(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A duration in its two largest units.
pub(crate) fn rough(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) if seconds == 0 => format!("{}ms", duration.as_millis()),
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{}s", seconds % 60),
        (0, ..) => format!("{hours}h{minutes}m"),
        _ => format!("{days}d{hours}h"),
    }
}

/// A moment as `2026-11-15 13:34:40 UTC`.
pub(crate) fn utc(moment: SystemTime) -> String {
    let seconds = moment.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let (mut days, time) = (seconds / 86_400, seconds % 86_400);
    // The Gregorian calendar repeats every 400 years, which have 146,097 days. Counted from March, a leap day is the last of its year.
    days += 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (time / 3_600, time / 60 % 60, time % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_800, "2000-03-01 00:00:00 UTC"),
            (1_735_689_599, "2024-12-31 23:59:59 UTC"),
            (1_794_749_680, "2026-11-15 13:34:40 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn durations_in_two_units() {
        for (millis, text) in
            [(40, "40ms"), (59_999, "59s"), (150_000, "2m30s"), (3_600_000, "1h0m"), (100_000_000, "1d3h")]
        {
            assert_eq!(rough(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn text_of_others_is_safe_on_a_terminal() {
        assert_eq!(escaped("a\u{1b}[31m\nü"), "a\\u{1b}[31m\\nü");
        assert_eq!(escaped("a\u{202e}b\u{2028}👩\u{200d}👧"), "a\\u{202e}b\\u{2028}👩\u{200d}👧");
    }
}
