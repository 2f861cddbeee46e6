//! Text that people write around a URL. The parser would take it for a part of the URL, and its error would not help.

/// What is wrong, to follow the name of the place. It repeats nothing of the text, which may contain a password.
pub(super) fn of(text: &str) -> Option<&'static str> {
    let text = text.trim();
    if text.starts_with(['"', '\'', '`', '<', '“', '‘', '„', '«']) {
        return Some("has quotes around the URL; leave them out");
    }
    if has_name_before(text) {
        return Some("has a name before the URL, as `TENURE_URL=`; write the URL alone");
    }
    let (_, rest) = text.split_once(char::is_whitespace)?;
    if rest.trim_start().starts_with(['#', ';']) || rest.trim_start().starts_with("//") {
        return Some("goes on after the URL; write a comment on a line of its own that begins with #");
    }
    let is_url = |word: &str| word.contains("://") || word.starts_with("file:");
    rest.split_whitespace().any(is_url).then_some("has more than one URL; keep one")
}

/// Whether it is `NAME=…` or `NAME: …`, as in a script or in a file of settings.
fn has_name_before(text: &str) -> bool {
    let text = text.strip_prefix("export ").unwrap_or(text).trim_start();
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let is_scheme = ["file", "memory"].contains(&name);
    let is_setting =
        !is_scheme && rest.strip_prefix(':').is_some_and(|value| value.starts_with(char::is_whitespace));
    !name.is_empty() && (rest.trim_start().starts_with('=') || is_setting)
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn what_stands_around_a_url_is_told_from_it() {
        for (text, part) in [
            ("\"redis://h\"", "quotes"),
            ("'redis://h'", "quotes"),
            ("“redis://h”", "quotes"),
            ("<redis://h>", "quotes"),
            ("TENURE_URL=redis://h", "name before"),
            ("TENURE_URL = redis://h", "name before"),
            ("export TENURE_URL='redis://h'", "name before"),
            ("url: redis://h", "name before"),
            ("redis://h # production", "goes on"),
            ("redis://h ; production", "goes on"),
            ("redis://h redis://g", "more than one"),
            ("file: file:///a", "more than one"),
        ] {
            assert!(of(text).is_some_and(|why| why.contains(part)), "{text}: {:?}", of(text));
        }
        for text in [
            "redis://h",
            "redis://u:p=x@h?ttl=3s",
            "file:",
            "host:6379",
            "redis://h and more",
            "",
            "rediss://h?prefix=a=b",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
