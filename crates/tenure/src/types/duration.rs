//! Durations as people write them: `500ms`, `10s`, `2m30s`, `1h`, or a number of seconds.
//!
//! Strict where a guess could be wrong by a factor: no unit may be missing next to another (`1m30`), units come in falling order
//! and once, and what is finer than a nanosecond is refused rather than rounded.

use std::time::Duration;

use crate::types::error::Error;

/// The forms, for the end of an error message.
pub(crate) const FORMS: &str = "write it like 500ms, 10s, 1.5s, 2m30s, 1h, or as a number of seconds";
/// A hundred years: longer ones overflow clocks when they are added to now.
const MAX_NANOS: u128 = 100 * 365 * 24 * 3_600 * SECOND;
const SECOND: u128 = 1_000_000_000;

/// Parses a duration as the options of a [`DomainUrl`](crate::DomainUrl) and of the command line write it: `500ms`, `10s`, `2m30s`, `1h`, or a number of
/// seconds. Zero is one.
///
/// # Errors
/// [`Invalid`](crate::ErrorKind::Invalid), with what is wrong and how to write it.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// assert_eq!(tenure::parse_duration("2m30s")?, Duration::from_secs(150));
/// assert_eq!(tenure::parse_duration(".5")?, Duration::from_millis(500));
/// assert!(tenure::parse_duration("1m30").is_err(), "30 of what?");
/// # Ok::<(), tenure::Error>(())
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, Error> {
    parse(text).map_err(|why| {
        let shown: String = text.chars().take(24).flat_map(char::escape_debug).collect();
        Error::invalid(format!("duration `{shown}` {why}")).fix(FORMS)
    })
}

/// As `parse_duration`, but the error does not quote the text.
pub(crate) fn parse(text: &str) -> Result<Duration, &'static str> {
    if text.is_empty() {
        return Err("is empty");
    }
    if text.starts_with('-') {
        return Err("is negative");
    }
    let mut rest = text;
    let mut nanos = 0_u128;
    let mut last_unit = u128::MAX;
    while !rest.is_empty() {
        let whole = take_while(&mut rest, |c| c.is_ascii_digit());
        let fraction = match rest.strip_prefix('.') {
            Some(after) => {
                rest = after;
                take_while(&mut rest, |c| c.is_ascii_digit())
            }
            None if whole.is_empty() => return Err("is not a number with a unit"),
            None => "0",
        };
        if fraction.is_empty() {
            return Err("has no digits after its point");
        }
        let unit = match take_while(&mut rest, |c| !c.is_ascii_digit() && c != '.') {
            "h" => 3_600 * SECOND,
            "m" => 60 * SECOND,
            "s" => SECOND,
            "ms" => SECOND / 1_000,
            "" if last_unit == u128::MAX && rest.is_empty() => SECOND,
            "" => return Err("has a number without a unit"),
            _ => return Err("has a unit other than h, m, s, ms"),
        };
        if unit >= last_unit {
            return Err("has its units not in falling order, or one twice");
        }
        let fraction = fraction.trim_end_matches('0');
        if !fraction.is_empty() && !rest.is_empty() {
            return Err("has a fraction before its last unit");
        }
        last_unit = unit;
        nanos += whole_nanos(whole, unit)? + fraction_nanos(fraction, unit)?;
        if nanos > MAX_NANOS {
            return Err("is longer than a hundred years");
        }
    }
    let seconds = u64::try_from(nanos / SECOND).expect("a hundred years of seconds fit");
    let below = u32::try_from(nanos % SECOND).expect("less than a second of nanoseconds fits");
    Ok(Duration::new(seconds, below))
}

fn take_while<'a>(rest: &mut &'a str, is_part: impl Fn(char) -> bool) -> &'a str {
    let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
    let (part, after) = rest.split_at(end);
    *rest = after;
    part
}

fn whole_nanos(digits: &str, unit: u128) -> Result<u128, &'static str> {
    if digits.is_empty() {
        return Ok(0);
    }
    let number: u64 = digits.parse().map_err(|_| "is longer than a hundred years")?;
    Ok(u128::from(number) * unit)
}

fn fraction_nanos(digits: &str, unit: u128) -> Result<u128, &'static str> {
    if digits.is_empty() {
        return Ok(0);
    }
    let too_fine = "is finer than a nanosecond";
    let places = u32::try_from(digits.len()).map_err(|_| too_fine)?;
    // No unit has more than 15 decimal places before it gets finer than a nanosecond.
    let scale = 10_u128.checked_pow(places).filter(|_| places <= 15).ok_or(too_fine)?;
    let nanos = digits.parse::<u128>().map_err(|_| too_fine)? * unit;
    if nanos.is_multiple_of(scale) { Ok(nanos / scale) } else { Err(too_fine) }
}

/// The canonical form: whole seconds, else whole milliseconds, else a fraction of seconds.
pub(crate) fn show(duration: Duration) -> String {
    let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    if nanos == 0 {
        format!("{seconds}s")
    } else if nanos.is_multiple_of(1_000_000) {
        format!("{}ms", duration.as_millis())
    } else {
        let fraction = format!("{nanos:09}");
        format!("{seconds}.{}s", fraction.trim_end_matches('0'))
    }
}

/// A duration for people, rounded: `180 µs`, `1.2 ms`, `250 ms`, `2 s`, `1 h 30 min`.
pub(crate) fn shown(duration: Duration) -> String {
    let micros = duration.as_micros();
    let tenths = |unit: u128| {
        let tenths = (micros * 10 + unit / 2) / unit;
        if tenths.is_multiple_of(10) {
            (tenths / 10).to_string()
        } else {
            format!("{}.{}", tenths / 10, tenths % 10)
        }
    };
    match micros {
        0 => return "0 s".to_owned(),
        1..1_000 => return format!("{micros} µs"),
        1_000..99_950 => return format!("{} ms", tenths(1_000)),
        99_950..999_500 => return format!("{} ms", (micros + 500) / 1_000),
        999_500..59_950_000 => return format!("{} s", tenths(1_000_000)),
        _ => {}
    }
    let seconds = (micros + 500_000) / 1_000_000;
    let parts = [(seconds / 3_600, "h"), (seconds / 60 % 60, "min"), (seconds % 60, "s")];
    let parts = parts.into_iter().filter(|(number, _)| *number > 0);
    parts.map(|(number, unit)| format!("{number} {unit}")).collect::<Vec<_>>().join(" ")
}

/// Whole milliseconds, rounded up: a store never ends a lease before its client's deadline (I2).
pub(crate) fn millis(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_that_people_write() {
        for (text, millis) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("1m", 60_000),
            ("2m30s", 150_000),
            ("1h", 3_600_000),
            ("1h2m3s4ms", 3_723_004),
            ("1h1ms", 3_600_001),
            ("30", 30_000),
            ("0", 0),
            ("0ms", 0),
            (".5", 500),
            ("0.25", 250),
            ("1.5s", 1_500),
            ("1.50s", 1_500),
            ("1m.5s", 60_500),
            ("1.5h", 5_400_000),
            ("007s", 7_000),
            ("876000h", 876_000 * 3_600_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(parse("0.000000001"), Ok(Duration::from_nanos(1)));
        assert_eq!(parse("1.000001ms"), Ok(Duration::from_nanos(1_000_001)));
    }

    #[test]
    fn all_else_is_named() {
        for (text, why) in [
            ("", "is empty"),
            ("-1s", "negative"),
            ("+1s", "not a number"),
            ("s", "not a number"),
            ("soon", "not a number"),
            (" 1s", "not a number"),
            ("1 s", "unit other than"),
            ("10x", "unit other than"),
            ("10S", "unit other than"),
            ("10sec", "unit other than"),
            ("1e3", "unit other than"),
            ("1_000", "unit other than"),
            ("1d", "unit other than"),
            ("５s", "not a number"),
            ("1m30", "without a unit"),
            ("1.2.3", "without a unit"),
            ("30s2m", "falling order"),
            ("1s1s", "one twice"),
            ("1.5m3s", "fraction before its last unit"),
            ("5.", "no digits after"),
            (".", "no digits after"),
            (".s", "no digits after"),
            ("0.0000000001", "finer than a nanosecond"),
            ("0.0000000000000000000000000000000000000000001", "finer"),
            ("0.99999999999999999999999999999999999h", "finer"),
            ("876001h", "hundred years"),
            ("18446744073709551615h", "hundred years"),
            ("99999999999999999999", "hundred years"),
        ] {
            let error = parse_duration(text).expect_err(text).to_string();
            assert!(error.contains(why), "{text}: {error}");
            assert!(error.contains("500ms"), "says how to write it: {error}");
        }
        let long = parse_duration(&"\u{1b}x".repeat(1_000)).unwrap_err().to_string();
        assert!(long.len() < 300 && !long.contains('\u{1b}'), "{long}");
    }

    proptest::proptest! {
        #[test]
        fn what_is_shown_parses_back(seconds in 0_u64..3_000_000_000, nanos in 0_u32..1_000_000_000, cut in 0_u32..10) {
            let nanos = nanos / 10_u32.pow(cut.min(9)) * 10_u32.pow(cut.min(9));
            let duration = Duration::new(seconds, nanos);
            proptest::prop_assert_eq!(parse(&show(duration)), Ok(duration));
        }

        #[test]
        fn no_text_panics(text in "([0-9]{0,45}(\\.[0-9]{0,45})?(h|m|s|ms|)){1,3}|.*") {
            let _ = parse(&text);
        }
    }

    #[test]
    fn for_people() {
        for (micros, text) in [
            (0, "0 s"),
            (999, "999 µs"),
            (1_250, "1.3 ms"),
            (10_000, "10 ms"),
            (99_999, "100 ms"),
            (249_999, "250 ms"),
            (999_999, "1 s"),
            (1_500_000, "1.5 s"),
            (1_999_980, "2 s"),
            (59_999_999, "1 min"),
            (90_000_000, "1 min 30 s"),
            (90_000_000_000, "25 h"),
            (86_401_000_000, "24 h 1 s"),
        ] {
            assert_eq!(shown(Duration::from_micros(micros)), text);
        }
    }
}
