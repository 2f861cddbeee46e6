//! Patterns for names, as in a shell. A pattern matches the whole name.
//!
//! A name is not a path, so `*` matches slashes. Matching takes at most the length of the pattern times that of the name: only the last `*` is ever
//! retried, because a longer match of an earlier one can't help.
//!
//! The store gets the text before the first special character, and lists only names with that prefix.

use std::ops::RangeInclusive;

/// A parsed pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Glob(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// This character.
    Literal(char),
    /// `?`
    One,
    /// `*`
    Any,
    /// `[…]`; `[!…]` and `[^…]` are negated.
    Set { ranges: Vec<RangeInclusive<char>>, is_negated: bool },
}

impl Glob {
    /// Every name.
    pub(crate) fn all() -> Self {
        Glob(vec![Part::Any])
    }

    /// Reads a pattern.
    ///
    /// # Errors
    /// Says what is wrong with it, and what to write instead.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("pattern is empty; leave it out to see all names".to_owned());
        }
        let (mut parts, mut rest) = (Vec::new(), text.chars());
        while let Some(c) = rest.next() {
            parts.push(match c {
                '*' => Part::Any,
                '?' => Part::One,
                '[' => set(&mut rest)?,
                '\\' => Part::Literal(
                    rest.next().ok_or("pattern ends with `\\`; write `\\\\` for the character")?,
                ),
                c => Part::Literal(c),
            });
        }
        Ok(Glob(parts))
    }

    /// The prefix of every name that matches.
    pub(crate) fn prefix(&self) -> String {
        self.0.iter().map_while(Part::literal).collect()
    }

    /// The only name that matches, if the pattern has no special characters.
    pub(crate) fn exact(&self) -> Option<String> {
        self.0.iter().map(Part::literal).collect()
    }

    /// Whether the whole name matches.
    pub(crate) fn matches(&self, name: &str) -> bool {
        let (parts, name) = (&self.0, name.chars().collect::<Vec<_>>());
        let (mut part, mut at) = (0, 0);
        // The part after the last `*`, and how much that `*` matches.
        let mut retry = None;
        loop {
            match parts.get(part) {
                Some(Part::Any) => {
                    retry = Some((part + 1, at));
                    part += 1;
                    continue;
                }
                Some(wanted) if name.get(at).is_some_and(|c| wanted.takes(*c)) => {
                    (part, at) = (part + 1, at + 1);
                    continue;
                }
                None if at == name.len() => return true,
                _ => {}
            }
            match &mut retry {
                Some((after, reach)) if *reach < name.len() => {
                    *reach += 1;
                    (part, at) = (*after, *reach);
                }
                _ => return false,
            }
        }
    }
}

impl Part {
    fn literal(&self) -> Option<char> {
        match self {
            Part::Literal(c) => Some(*c),
            _ => None,
        }
    }

    /// Whether it matches this character. `*` is handled elsewhere.
    fn takes(&self, c: char) -> bool {
        match self {
            Part::Literal(literal) => *literal == c,
            Part::One => true,
            Part::Any => false,
            Part::Set { ranges, is_negated } => ranges.iter().any(|range| range.contains(&c)) != *is_negated,
        }
    }
}

/// The set after a `[`. A `]` that comes first is a member.
fn set(rest: &mut std::str::Chars<'_>) -> Result<Part, String> {
    const OPEN: &str = "pattern has a `[` without its `]`; write `\\[` for the character";
    let is_negated = rest.as_str().starts_with(['!', '^']);
    if is_negated {
        rest.next();
    }
    let mut ranges = Vec::new();
    loop {
        let first = match rest.next().ok_or(OPEN)? {
            ']' if !ranges.is_empty() => return Ok(Part::Set { ranges, is_negated }),
            '\\' => rest.next().ok_or(OPEN)?,
            c => c,
        };
        let mut ahead = rest.clone();
        // A dash that comes last is a member.
        let last = match (ahead.next(), ahead.next()) {
            (Some('-'), Some(last)) if last != ']' => {
                *rest = ahead;
                if last == '\\' { rest.next().ok_or(OPEN)? } else { last }
            }
            _ => first,
        };
        if last < first {
            return Err(format!(
                "pattern has the range `{first}-{last}`, which is empty; write `{last}-{first}`"
            ));
        }
        ranges.push(first..=last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_as_in_a_shell() {
        for (pattern, yes, no) in [
            ("nightly", &["nightly"][..], &["nightl", "nightly2", "Nightly", ""][..]),
            ("orders/*", &["orders/", "orders/42", "orders/a/b"], &["orders", "an orders/42"]),
            ("*", &["", "a", "ü/ \n"], &[]),
            ("a?c", &["abc", "aüc", "a?c"], &["ac", "abbc"]),
            ("*.log", &[".log", "a.log", "a.log.log"], &["a.log2"]),
            ("a*b*c", &["abc", "aXbYc", "abcbc"], &["ab", "acb", "abcd"]),
            ("job-[0-9]", &["job-7"], &["job-", "job-a", "job-77"]),
            ("[!a-c]*", &["d", "z9"], &["a", "c9", ""]),
            ("[^a]", &["b"], &["a"]),
            ("[]x]", &["]", "x"], &["[", "a"]),
            ("[a-]", &["a", "-"], &["b"]),
            ("[\\]a-\\d]", &["]", "b", "d"], &["e", "\\"]),
            ("\\*\\[\\\\", &["*[\\"], &["x[\\", "*["]),
        ] {
            let glob = Glob::parse(pattern).unwrap();
            for name in yes {
                assert!(glob.matches(name), "{pattern} is to match {name:?}");
            }
            for name in no {
                assert!(!glob.matches(name), "{pattern} is not to match {name:?}");
            }
        }
    }

    #[test]
    fn the_prefix_for_the_store() {
        for (pattern, prefix, exact) in [
            ("orders/*", "orders/", None),
            ("a\\*b", "a*b", Some("a*b")),
            ("*a", "", None),
            ("ab?", "ab", None),
            ("ü[x]", "ü", None),
        ] {
            let glob = Glob::parse(pattern).unwrap();
            assert_eq!((&*glob.prefix(), glob.exact().as_deref()), (prefix, exact), "{pattern}");
        }
        assert_eq!(Glob::all().prefix(), "");
    }

    #[test]
    fn wrong_patterns_are_errors() {
        for pattern in ["", "a[", "a[]", "a[!", "a[b", "a\\", "[a\\", "[z-a]"] {
            assert!(Glob::parse(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn a_long_name_and_many_stars_take_no_time() {
        let glob = Glob::parse(&"*a".repeat(300)).unwrap();
        assert!(!glob.matches(&("a".repeat(999) + "b")));
    }
}
