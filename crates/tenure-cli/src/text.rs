//! Facts as text for people: who, when, how long.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use tenure::Owner;
use unicode_width::UnicodeWidthStr as _;

/// Marks where a text was cut.
pub(crate) const CUT: char = '…';

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

/// Text of other users, safe on a terminal.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if disturbs(c) { safe.extend(c.escape_debug()) } else { safe.push(c) }
    }
    safe
}

/// Whether a terminal would act on it, or show the text around it in another order: a name must not change how a line reads.
pub(crate) fn disturbs(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// As much of the beginning of a text as fits, with a mark if it was cut.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.width() <= most {
        return text.to_owned();
    }
    let mut kept = String::new();
    for c in text.chars() {
        kept.push(c);
        // Not a sum: the width of a character depends on the one before it.
        if kept.width() >= most {
            kept.pop();
            break;
        }
    }
    if most > 0 {
        kept.push(CUT);
    }
    kept
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

/// A short duration with three digits or so, as `81 µs` or `1.2 ms`.
pub(crate) fn fine(duration: Duration) -> String {
    let micros = duration.as_micros();
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..100_000 => format!("{}.{} ms", micros / 1_000, micros / 100 % 10),
        100_000..10_000_000 => format!("{} ms", micros / 1_000),
        _ => format!("{} s", duration.as_secs()),
    }
}

/// Whether the locale has more than ASCII.
pub(crate) fn is_unicode() -> bool {
    let variables = ["LC_ALL", "LC_CTYPE", "LANG"].map(|name| std::env::var(name).unwrap_or_default());
    let locale = variables.into_iter().find(|value| !value.is_empty()).unwrap_or_default().to_lowercase();
    locale.ends_with("utf-8") || locale.ends_with("utf8") || locale.contains("utf-8@")
}

/// Whether `TERM` says that the terminal can't draw.
pub(crate) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|terminal| terminal.is_empty() || terminal == "dumb")
}

/// The same in ASCII, with question marks for other characters.
pub(crate) fn in_ascii(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            'µ' => plain.push('u'),
            '±' => plain.push_str("+/-"),
            _ if c.is_ascii() => plain.push(c),
            _ => plain.push('?'),
        }
    }
    plain
}

/// Folds a text at spaces into lines of so many columns. All lines but the first are indented, and `joint` comes before each break. A long word is not
/// broken, nor is text in single quotes: it belongs to a shell command.
pub(crate) fn folded(text: &str, columns: usize, first: usize, indent: usize, joint: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut is_quoted = false;
    for word in text.split(' ') {
        match words.last_mut().filter(|_| is_quoted) {
            Some(quoted) => *quoted += &format!(" {word}"),
            None => words.push(word.to_owned()),
        }
        is_quoted = is_quoted_after(word, is_quoted);
    }
    let (mut folded, mut used) = (String::new(), first);
    for (number, word) in words.iter().enumerate() {
        let end = used + usize::from(number > 0) + word.width();
        if number == 0 || end + joint.width() <= columns {
            folded.push_str(if number == 0 { "" } else { " " });
            used = end;
        } else {
            let _ = write!(folded, "{joint}\n{:indent$}", "");
            used = indent + word.width();
        }
        folded.push_str(word);
    }
    folded
}

/// Whether what follows `word` is inside of single quotes. An apostrophe, as in `can't`, opens none, nor does `\'`.
fn is_quoted_after(word: &str, mut is_quoted: bool) -> bool {
    let mut before = ' ';
    for c in word.chars() {
        if c == '\'' {
            is_quoted = !is_quoted && !before.is_alphanumeric() && before != '\\';
        }
        before = c;
    }
    is_quoted
}

/// A moment as `2026-11-15 13:34:40 UTC`.
pub(crate) fn utc(moment: SystemTime) -> String {
    let (day, time) = day_and_time(moment);
    format!("{day} {time} UTC")
}

/// A moment as `2026-11-15T13:34:40.250Z`: one word, in the order of time.
pub(crate) fn stamp(moment: SystemTime) -> String {
    let (day, time) = day_and_time(moment);
    let millis = since_1970(moment).subsec_millis();
    format!("{day}T{time}.{millis:03}Z")
}

fn since_1970(moment: SystemTime) -> Duration {
    moment.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn day_and_time(moment: SystemTime) -> (String, String) {
    let seconds = since_1970(moment).as_secs();
    let (mut days, time) = (seconds / 86_400, seconds % 86_400);
    // The Gregorian calendar repeats every 400 years (146,097 days). With March as the first month, a leap day is the last day of its year.
    days += 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (time / 3_600, time / 60 % 60, time % 60);
    (format!("{year}-{month:02}-{day:02}"), format!("{hour:02}:{minute:02}:{second:02}"))
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
    fn a_moment_as_one_word() {
        let moment = SystemTime::UNIX_EPOCH + Duration::from_millis(1_794_749_680_007);
        assert_eq!(stamp(moment), "2026-11-15T13:34:40.007Z");
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
    fn short_durations_keep_their_digits() {
        for (micros, text) in [
            (0, "0 µs"),
            (999, "999 µs"),
            (1_250, "1.2 ms"),
            (99_999, "99.9 ms"),
            (250_000, "250 ms"),
            (12_000_000, "12 s"),
        ] {
            assert_eq!(fine(Duration::from_micros(micros)), text);
        }
        assert_eq!(in_ascii("81 µs, ±2 ▌ ü"), "81 us, +/-2 ? ?");
    }

    #[test]
    fn a_cut_text_fits() {
        for (most, text) in [(0, ""), (1, "…"), (2, "a…"), (3, "a…"), (4, "a漢…"), (5, "a漢…"), (6, "a漢字b")]
        {
            assert_eq!(cut("a漢字b", most), text, "{most}");
        }
        // A heart is narrow; with a variation selector it is wide.
        let hearts = "\u{2764}\u{fe0f}".repeat(9);
        assert!((0..20).all(|most| cut(&hearts, most).width() <= most));
    }

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(folded("one two three four", 9, 0, 2, ""), "one two\n  three\n  four");
        assert_eq!(folded("one two three", 9, 4, 4, ""), "one\n    two\n    three");
        assert_eq!(folded("a-word-that-is-too-long b", 9, 0, 2, ""), "a-word-that-is-too-long\n  b");
        assert_eq!(folded("one two", 80, 0, 2, ""), "one two");
        assert_eq!(
            folded("it can't be read, and isn't there", 12, 0, 2, ""),
            "it can't be\n  read, and\n  isn't\n  there"
        );
        assert_eq!(folded("say 'it'\\''s a word' now", 6, 0, 0, ""), "say\n'it'\\''s a word'\nnow");
        let command = "printf %s. one 'two  three' \"it\" 'four' five";
        for columns in 0..50 {
            let script = folded(command, columns, 0, 4, " \\");
            let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), "one.two  three.it.four.five.", "{script}");
            let longest = script.lines().map(|line| line.trim_end_matches(" \\").width()).max().unwrap();
            assert!(longest <= columns.max("    'two  three'".len()), "{script}");
        }
    }

    #[test]
    fn text_of_others_is_safe_on_a_terminal() {
        assert_eq!(escaped("a\u{1b}[31m\nü"), "a\\u{1b}[31m\\nü");
        assert_eq!(escaped("a\u{202e}b\u{2028}👩\u{200d}👧"), "a\\u{202e}b\\u{2028}👩\u{200d}👧");
    }
}
