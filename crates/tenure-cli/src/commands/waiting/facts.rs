//! What is known of a name that is waited for, as text. The store is asked once a second at most; between two answers the clock goes on.

use std::fmt::Write as _;
use std::time::{Duration, Instant, SystemTime};

use tenure::{Error, Owner, Status};
use unicode_width::UnicodeWidthChar;

use crate::text::{escaped, owner, rough, utc};

/// The frames of the spinner. ASCII, for every terminal has that.
const SPINNER: [char; 4] = ['|', '/', '-', '\\'];
/// How many columns a text of others gets where not all fits.
const SHORT: usize = 20;

/// What is known so far.
pub(super) struct Facts {
    name: String,
    seen: Option<Seen>,
    away: Option<Away>,
}

/// What the store showed.
struct Seen {
    at: Instant,
    holder: Option<Holder>,
    /// Where this process stands in the queue.
    position: Option<usize>,
    waiters: usize,
}

struct Holder {
    owner: Owner,
    since: SystemTime,
    remaining: Duration,
}

/// The store did not answer.
struct Away {
    at: Instant,
    since: SystemTime,
    why: String,
}

impl Facts {
    pub(super) fn new(name: &str) -> Self {
        Facts { name: escaped(name), seen: None, away: None }
    }

    /// Enters what the store answered to a question of that moment.
    pub(super) fn learn(&mut self, asked: Instant, answer: &Result<Status, Error>) {
        let at = Instant::now();
        match answer {
            Ok(status) => {
                let holder = status.holder.as_ref().map(|holder| Holder {
                    owner: holder.owner.clone(),
                    since: holder.since,
                    remaining: holder.remaining,
                });
                let (position, waiters) = (status.position, status.waiters.len());
                self.seen = Some(Seen { at, holder, position, waiters });
                self.away = None;
            }
            Err(error) => {
                let since =
                    self.away.as_ref().map_or_else(|| SystemTime::now() - asked.elapsed(), |away| away.since);
                self.away = Some(Away { at, since, why: escaped(&error.to_string()) });
            }
        }
    }

    /// As a line on a terminal, no wider than `width`.
    pub(super) fn drawn(&self, now: Instant, frame: usize, width: usize) -> String {
        let spinner = SPINNER[frame % SPINNER.len()];
        let full = format!("{spinner} {}", self.text(now, &str::to_owned));
        if columns(&full) <= width {
            return full;
        }
        // The name or the label may be long; the rest is what is looked at.
        let shorter = format!("{spinner} {}", self.text(now, &|text| cut(text, SHORT)));
        cut(&shorter, width)
    }

    /// As a line without a terminal; `None` when nothing was learnt after `due`, or nothing worth it.
    pub(super) fn said(&self, now: Instant, due: Instant) -> Option<String> {
        let is_new = |at: Instant| at >= due;
        let is_away = self.away.as_ref().is_some_and(|away| is_new(away.at));
        let is_held = self.seen.as_ref().is_some_and(|seen| is_new(seen.at) && seen.holder.is_some());
        (is_away || is_held).then(|| self.text(now, &str::to_owned))
    }

    /// `fit` shortens what others chose.
    fn text(&self, now: Instant, fit: &dyn Fn(&str) -> String) -> String {
        let mut text = format!("waiting for `{}`", fit(&self.name));
        if let Some(away) = &self.away {
            let _ = write!(text, "; store is away since {}: {}", utc(away.since), away.why);
            return text;
        }
        let Some(seen) = &self.seen else {
            text.push_str("; store is asked who holds it");
            return text;
        };
        if let Some(position) = seen.position {
            let _ = write!(text, "; {position} of {} in the queue", seen.waiters);
        }
        let Some(holder) = &seen.holder else {
            text.push_str("; free, and handed over now");
            return text;
        };
        let _ = write!(text, "; held by {}", fit(&owner(&holder.owner)));
        // A lock of another library does not say since when.
        if !holder.owner.is_foreign() {
            let held = SystemTime::now().duration_since(holder.since).unwrap_or_default();
            let _ = write!(text, " for {}", rough(held));
        }
        match holder.remaining {
            Duration::MAX => text.push_str("; lease without end"),
            remaining => {
                let left = remaining.saturating_sub(now.saturating_duration_since(seen.at));
                let _ = write!(text, "; lease left {}", rough(left));
            }
        }
        text
    }
}

/// How wide it is on a terminal.
fn columns(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// The beginning of a text that is too wide.
fn cut(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut used = 0;
    let mut beginning: String = text
        .chars()
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used < width
        })
        .collect();
    if width > 0 {
        beginning.push('…');
    }
    beginning
}
