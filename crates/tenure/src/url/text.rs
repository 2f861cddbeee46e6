//! Pieces of a URL: what may be quoted in an error, percent escapes, and the nearest known word.

use std::path::PathBuf;

use percent_encoding::percent_decode_str;

use crate::types::error::Error;

/// What stands for a password in print.
pub(super) const REDACTED: &str = "***";
/// Longer pieces are not quoted: they help nobody, and no valid one is that long.
const LONGEST_QUOTE: usize = 24;

/// Whether pieces of the input may be quoted in an error.
///
/// A piece may not when something suggests that a password slipped out of its place: an `@` (also an escaped one) anywhere but at
/// the end of user and password, or an option that looks like a password, whose value an unescaped `&` would cut in two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Echo {
    Allowed,
    Forbidden,
}

impl Echo {
    /// Judges a URL, or all of it but user and password.
    pub(super) fn judge(self, text: &str) -> Echo {
        let lower = text.to_ascii_lowercase();
        let suspicious = ["@", "%40", "pass", "pwd", "auth", "secret", "sentinel_", "%5f"];
        if suspicious.iter().any(|sign| lower.contains(sign)) { Echo::Forbidden } else { self }
    }

    /// The piece in backticks with a blank before it, or nothing.
    pub(super) fn quote(self, piece: &str) -> String {
        let is_quotable =
            !piece.is_empty() && piece.len() <= LONGEST_QUOTE && piece.bytes().all(|b| b.is_ascii_graphic());
        if self == Echo::Allowed && is_quotable { format!(" `{piece}`") } else { String::new() }
    }

    /// As `quote`, for a piece that stands where an unescaped password may: only what looks like a number is quoted.
    pub(super) fn quote_number(self, piece: &str) -> String {
        let digits = piece.strip_prefix('-').unwrap_or(piece);
        if digits.len() <= 5 && digits.bytes().all(|b| b.is_ascii_digit()) {
            self.quote(piece)
        } else {
            String::new()
        }
    }
}

/// An `@` that does not end user and password: most likely a piece of a password that was not escaped.
pub(super) fn stray_at() -> Error {
    Error::invalid("unexpected `@` in domain URL").fix(
        "user and password stand once, before the first host, and elsewhere `@` is written `%40` \
         (inside a password also `%23` for `#`, `%2F` for `/`, `%3F` for `?`)",
    )
}

/// Decodes percent escapes once, strictly. `part` names the piece in errors, which do not quote it.
pub(super) fn decode(raw: &str, part: &str) -> Result<String, Error> {
    let mut after_percent = raw.split('%').skip(1);
    let is_escape = |tail: &str| tail.len() >= 2 && tail.bytes().take(2).all(|b| b.is_ascii_hexdigit());
    if !after_percent.all(is_escape) {
        return Err(Error::invalid(format!("invalid percent escape in {part} of domain URL"))
            .fix("write two hexadecimal digits after `%`, and `%25` for a `%` itself"));
    }
    let decoded = percent_decode_str(raw).decode_utf8().map_err(|_| {
        Error::invalid(format!("{part} of domain URL is not UTF-8 once its percent escapes are decoded"))
    })?;
    Ok(decoded.into_owned())
}

/// As `decode`, for what is shown to people or given to the system: control characters are refused also when escaped.
pub(super) fn decode_printable(raw: &str, part: &str) -> Result<String, Error> {
    let decoded = decode(raw, part)?;
    if decoded.chars().any(char::is_control) {
        return Err(
            Error::invalid(format!("escaped control character in {part} of domain URL")).fix("leave it out")
        );
    }
    Ok(decoded)
}

/// As `decode_printable`, in the one form that equal paths have: no doubled or trailing slashes, no `.` segments.
pub(super) fn decode_path(raw: &str, part: &str) -> Result<PathBuf, Error> {
    let path = PathBuf::from(decode_printable(raw, part)?);
    Ok(path.components().collect())
}

/// The known word that was probably meant, if one is near.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_ascii_lowercase();
    if word.len() > LONGEST_QUOTE {
        return None;
    }
    let allowed = |candidate: &str| (candidate.len() / 3).clamp(1, 3);
    known
        .into_iter()
        .map(|candidate| (edit_distance(&word, candidate), candidate))
        .filter(|&(distance, candidate)| distance <= allowed(candidate))
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions, replacements and swaps of neighbours, in bytes.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before_last[j - 2] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}
