//! Which names are shown: those that contain a text, or those that a glob matches as a whole.

use super::row::Row;
use crate::glob::Glob;
use crate::text::escaped;

/// What was typed after `/`.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    text: String,
    /// `None` for plain text, and while a `[` has no end yet.
    glob: Option<Glob>,
}

impl Filter {
    pub(super) fn new(text: String) -> Self {
        let glob = if text.contains(['*', '?', '[']) { Glob::parse(&text).ok() } else { None };
        Filter { text, glob }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// As it is shown.
    pub(super) fn shown(&self) -> String {
        escaped(&self.text)
    }

    /// A name with a control character also matches in its escaped form, so that it can be typed.
    pub(super) fn shows(&self, row: &Row) -> bool {
        [&row.name, &row.shown].into_iter().any(|name| match &self.glob {
            Some(glob) => glob.matches(name),
            None => name.contains(&self.text),
        })
    }
}
