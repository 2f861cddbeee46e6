//! The waiting line. The store answers once a second at most; between two answers the clock runs on.

use std::fmt::Write as _;
use std::time::{Duration, Instant, SystemTime};

use tenure::{Error, Owner, Status};
use unicode_width::UnicodeWidthStr as _;

use crate::output;
use crate::text::{cut, escaped, owner, rough, utc};

/// The frames of the spinner, in ASCII for every terminal.
const SPINNER: [char; 4] = ['|', '/', '-', '\\'];

/// What is known so far.
pub(super) struct Facts {
    name: String,
    seen: Option<LastStatus>,
    away: Option<Away>,
}

/// What the store showed.
struct LastStatus {
    at: Instant,
    holder: Option<LastHolder>,
    /// The position of this process in the queue.
    position: Option<usize>,
    waiters: usize,
}

struct LastHolder {
    owner: Owner,
    since: SystemTime,
    remaining: Duration,
}

/// The store did not answer.
struct Away {
    at: Instant,
    since: SystemTime,
    /// The error, then without its remedy, then only its reason.
    why: [String; 3],
}

impl Facts {
    pub(super) fn new(name: &str) -> Self {
        Facts { name: escaped(name), seen: None, away: None }
    }

    /// Takes in an answer to a question that was asked at `asked`.
    pub(super) fn learn(&mut self, asked: Instant, answer: &Result<Status, Error>) {
        self.learn_at(Instant::now(), asked, answer);
    }

    pub(super) fn learn_at(&mut self, at: Instant, asked: Instant, answer: &Result<Status, Error>) {
        match answer {
            Ok(status) => {
                let holder = status.holder.as_ref().map(|holder| LastHolder {
                    owner: holder.owner.clone(),
                    since: holder.since,
                    remaining: holder.remaining,
                });
                let (position, waiters) = (status.position, status.waiters.len());
                self.seen = Some(LastStatus { at, holder, position, waiters });
                self.away = None;
            }
            Err(error) => {
                let since =
                    self.away.as_ref().map_or_else(|| SystemTime::now() - asked.elapsed(), |away| away.since);
                let reason = error.reason().unwrap_or(error.what()).to_owned();
                let why = [error.to_string(), output::without_remedy(error), reason];
                self.away = Some(Away { at, since, why: why.map(|why| escaped(&why)) });
            }
        }
    }

    /// Whether a first answer or error came.
    pub(super) fn is_known(&self) -> bool {
        self.seen.is_some() || self.away.is_some()
    }

    /// Whether the last question failed.
    pub(super) fn is_away(&self) -> bool {
        self.away.is_some()
    }

    /// The line for a terminal, no wider than `width`. The least important facts are left out first; a number always keeps its words.
    pub(super) fn drawn(&self, now: Instant, frame: usize, width: usize) -> String {
        let spinner = SPINNER[frame % SPINNER.len()];
        let line = |style: Style| format!("{spinner} {}", self.text(now, style));
        let fits = |style: &Style| line(*style).width() <= width;
        if self.is_away() {
            let styles = [Outage::All, Outage::NoDate, Outage::NoRemedy, Outage::Reason];
            let styles = styles.map(|outage| Style { outage, ..Style::FULL });
            let shortest =
                Style { outage: Outage::Reason, longest: LENGTHS[LENGTHS.len() - 1], ..Style::FULL };
            return cut(&line(styles.into_iter().find(fits).unwrap_or(shortest)), width);
        }
        let whole = LENGTHS.map(|longest| Style { longest, ..Style::FULL });
        if let Some(style) = whole[..LENGTHS.len() - 1].iter().find(|style| fits(style)) {
            return line(*style);
        }
        let bare = LENGTHS.map(|longest| Style { facts: Fact::NONE, longest, ..Style::FULL });
        let mut style = bare.into_iter().find(fits).unwrap_or(bare[LENGTHS.len() - 1]);
        for fact in Fact::BY_IMPORTANCE {
            let more = Style { facts: style.facts | fact as u8, ..style };
            style = if fits(&more) { more } else { style };
        }
        cut(&line(style), width)
    }

    /// The line without a terminal; `None` without news since `due`.
    pub(super) fn said(&self, now: Instant, due: Instant) -> Option<String> {
        let is_away = self.away.as_ref().is_some_and(|away| away.at >= due);
        let is_held = self.seen.as_ref().is_some_and(|seen| seen.at >= due && seen.holder.is_some());
        (is_away || is_held).then(|| self.text(now, Style::FULL))
    }

    fn text(&self, now: Instant, style: Style) -> String {
        let mut text = format!("waiting for `{}`", cut(&self.name, style.longest));
        if let Some(away) = &self.away {
            let [all, no_remedy, reason] = &away.why;
            let _ = match style.outage {
                Outage::All => write!(text, "; store is away since {}: {all}", utc(away.since)),
                Outage::NoDate => write!(text, "; store is away: {all}"),
                Outage::NoRemedy => write!(text, "; store is away: {no_remedy}"),
                Outage::Reason => write!(text, "; store is away: {reason}"),
            };
            return text;
        }
        let Some(seen) = &self.seen else {
            text.push_str("; the store is asked who holds it");
            return text;
        };
        if let Some(position) = seen.position.filter(|_| style.has(Fact::Queue)) {
            let _ = write!(text, "; {position} of {} in the queue", seen.waiters);
        }
        match &seen.holder {
            Some(holder) => text.push_str(&holder.text(now.saturating_duration_since(seen.at), style)),
            None => text.push_str("; free, and handed over now"),
        }
        text
    }
}

impl LastHolder {
    /// As the store showed it that long ago.
    fn text(&self, ago: Duration, style: Style) -> String {
        let mut text = String::from("; held by ");
        let fit = |part: &str| cut(&escaped(part), style.longest);
        match self.owner.pid() {
            Some(pid) => {
                let _ = write!(text, "{}@{}", fit(self.owner.user()), fit(self.owner.host()));
                if style.has(Fact::Pid) {
                    let _ = write!(text, ", pid {pid}");
                }
                if style.has(Fact::Label) && !self.owner.label().is_empty() {
                    let _ = write!(text, ", label `{}`", fit(self.owner.label()));
                }
                if style.has(Fact::HeldFor) {
                    let held = SystemTime::now().duration_since(self.since).unwrap_or_default();
                    let _ = write!(text, ", for {}", rough(held));
                }
            }
            // A lock of another library says neither who holds it nor since when.
            None => text.push_str(&owner(&self.owner)),
        }
        match self.remaining {
            _ if !style.has(Fact::Lease) => {}
            Duration::MAX => text.push_str("; lease without end"),
            remaining => {
                let _ = write!(text, "; lease left {}", rough(remaining.saturating_sub(ago)));
            }
        }
        text
    }
}

/// A fact that can be left out.
#[derive(Clone, Copy)]
enum Fact {
    Queue = 1,
    HeldFor = 2,
    Pid = 4,
    Label = 8,
    Lease = 16,
}

impl Fact {
    const BY_IMPORTANCE: [Fact; 5] = [Fact::Queue, Fact::HeldFor, Fact::Pid, Fact::Label, Fact::Lease];
    const NONE: u8 = 0;
    const ALL: u8 = 31;
}

/// How much room there is.
#[derive(Clone, Copy)]
struct Style {
    /// The facts that are shown, as a bit set.
    facts: u8,
    /// The most columns for a name, label, user or host.
    longest: usize,
    outage: Outage,
}

/// How much of an outage is shown. The reason helps most, so it is kept longest.
#[derive(Clone, Copy)]
enum Outage {
    All,
    NoDate,
    NoRemedy,
    Reason,
}

/// The lengths that texts are cut to, in turn. Facts are left out before the last one is tried.
const LENGTHS: [usize; 4] = [usize::MAX, 64, 32, 16];

impl Style {
    const FULL: Style = Style { facts: Fact::ALL, longest: usize::MAX, outage: Outage::All };

    fn has(self, fact: Fact) -> bool {
        self.facts & fact as u8 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn facts(name: &str, label: &str) -> Facts {
        let domain = tenure::Domain::open("memory:").await.unwrap();
        let _guard = domain.lock(name).label(label).acquire().await.unwrap();
        let mut facts = Facts::new(name);
        facts.learn(Instant::now(), &domain.inspect(name).await);
        facts
    }

    #[tokio::test]
    async fn a_line_always_fits() {
        let now = Instant::now();
        for (name, label) in
            [("a", ""), ("a", "by hand"), (&"wide 語".repeat(60), "🔒"), ("e\u{301}\u{1b}[2J", "x")]
        {
            let facts = facts(name, label).await;
            for width in 0..200 {
                let line = facts.drawn(now, width, width);
                assert!(line.width() <= width, "{width}: {line}");
                assert!(!line.contains(char::is_control), "{line:?}");
            }
        }
    }

    #[tokio::test]
    async fn the_name_and_the_holder_are_kept_longest() {
        let mut facts = facts(&"n".repeat(100), &"l".repeat(100)).await;
        let seen = facts.seen.as_mut().unwrap();
        (seen.position, seen.waiters) = (Some(2), 3);
        let now = seen.at + Duration::from_secs(4);
        let pid = std::process::id();
        let cut = facts.drawn(now, 0, 180);
        assert!(
            cut.starts_with("| waiting for `nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn…`; 2 of 3 in the queue; "),
            "{cut}"
        );
        assert!(
            cut.contains(&format!(", pid {pid}, label `lllllllllllllllllllllllllllllll…`, for ")),
            "{cut}"
        );
        assert!(cut.ends_with("; lease left 5s") || cut.ends_with("; lease left 6s"), "{cut}");
        let full = facts.drawn(now, 1, 1_000);
        assert!(
            full.starts_with("/ waiting for `nnn") && full.contains("2 of 3 in the queue; held by "),
            "{full}"
        );
        let past = facts.drawn(now + Duration::from_secs(60), 0, 1_000);
        assert!(past.ends_with("; lease left 0ms"), "{past}");
    }

    #[tokio::test]
    async fn facts_are_left_out_with_their_words() {
        let mut facts = facts("nightly", "backup.sh").await;
        let seen = facts.seen.as_mut().unwrap();
        (seen.position, seen.waiters) = (Some(2), 3);
        let holder = seen.holder.as_mut().unwrap();
        holder.since = SystemTime::now() - Duration::from_secs(5);
        let (user, host, pid) = (holder.owner.user(), holder.owner.host(), std::process::id());
        let who = format!("held by {user}@{host}");
        let base = format!("| waiting for `nightly`; {who}").width();
        let now = seen.at + Duration::from_secs(4);
        for (more, end) in [
            (0, format!("; {who}")),
            (22, format!("; 2 of 3 in the queue; {who}")),
            (30, format!("; 2 of 3 in the queue; {who}, for 5s")),
            (48, format!("; 2 of 3 in the queue; {who}, pid {pid}, for 5s")),
            (100, format!("; 2 of 3 in the queue; {who}, pid {pid}, label `backup.sh`, for 5s; lease left ")),
        ] {
            let drawn = facts.drawn(now, 0, base + more);
            let line = format!("| waiting for `nightly`{end}");
            assert!(drawn == line || more == 100 && drawn.starts_with(&line), "{more}: {drawn}, not {line}");
        }
    }

    #[tokio::test]
    async fn in_an_outage_the_reason_is_kept_longest() {
        let mut facts = Facts::new("nightly");
        // Any error with a reason.
        let domain = tenure::Domain::open("memory:").await.unwrap();
        let ticket = domain.lock("a").acquire().await.unwrap().detach().await.unwrap();
        ticket.release(&domain).await.unwrap();
        let error = ticket.renew(&domain).await.unwrap_err();
        let reason = error.reason().expect("why it failed").to_owned();
        facts.learn(Instant::now(), &Err(error.clone()));
        let line = |width| facts.drawn(Instant::now(), 0, width);
        assert!(line(500).contains("; store is away since 2") && line(500).ends_with(&error.to_string()));
        let narrow = line("| waiting for `nightly`; store is away: ".len() + reason.len());
        assert!(
            !narrow.contains(" since ") && narrow.ends_with(&format!("; store is away: {reason}")),
            "{narrow}"
        );
        for width in 0..200 {
            assert!(line(width).width() <= width, "{width}: {}", line(width));
        }
    }

    #[tokio::test]
    async fn an_outage_is_shown_with_its_beginning() {
        let mut facts = facts("a", "").await;
        let begun = Instant::now();
        assert!(facts.said(begun, begun).is_none(), "nothing new");
        let refused = || tenure::Domain::lazy("nonsense").map(|_| unreachable!());
        facts.learn(begun, &refused());
        let since = facts.away.as_ref().unwrap().since;
        facts.learn(Instant::now(), &refused());
        assert_eq!(facts.away.as_ref().unwrap().since, since, "since the first question without an answer");
        let said = facts.said(Instant::now(), begun).unwrap();
        assert!(
            said.starts_with(&format!("waiting for `a`; store is away since {}: ", utc(since))),
            "{said}"
        );
    }
}
