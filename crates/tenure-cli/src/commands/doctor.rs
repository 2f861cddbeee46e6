//! `tenure doctor`: prints what the library examined, one finding a line, with what to type if something is wrong.
//!
//! A store that can't be opened is a finding, too, and its error gives the exit code. If a layered domain can't be opened, its two stores are examined
//! separately. Signals wait during the self-test, because an interrupted one would leave a key behind for some minutes.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use clap::Args;
use rustix::fs::{Access, access};
use rustix::io::Errno;
use serde::Serialize;
use tenure::{Domain as Store, Error, Finding, Verdict};

use super::blocked_signals::uninterrupted;
use super::{absence, on_domain_read_only};
use crate::address::{self, Located};
use crate::args::{Domain, Format};
use crate::exit_code;
use crate::json;
use crate::output;
use crate::sample::Sample;
use crate::table::terminal_width;
use crate::text::{escaped, fine, folded, in_ascii, is_unicode};

/// The least columns for a reason beside its title.
const NARROW: usize = 30;
/// How many requests are timed, and for how long.
const REQUESTS: usize = 200;
const LONGEST_TIMING: Duration = Duration::from_secs(2);
/// A lease that was handed over lasts a second, and is first renewed after a third of it.
const SLOW: Duration = Duration::from_millis(300);

/// Is this store fit to hold locks?
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    domain: Domain,

    #[command(flatten)]
    format: Format,
}

/// One finding.
#[derive(Serialize)]
struct Line {
    store: Option<&'static str>,
    check: &'static str,
    #[serde(serialize_with = "as_word")]
    verdict: Verdict,
    reason: String,
    remedy: Option<String>,
    #[serde(flatten)]
    trips: Option<Trips>,
}

/// How long requests took.
#[derive(Serialize)]
struct Trips {
    count: usize,
    p50_us: u64,
    p99_us: u64,
}

/// The conclusion from all findings.
#[derive(Serialize)]
struct Conclusion {
    #[serde(serialize_with = "as_word")]
    verdict: Verdict,
    doubts: usize,
    faults: usize,
}

fn as_word<S: serde::Serializer>(verdict: &Verdict, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(verdict)
}

impl Doctor {
    pub(crate) fn execute(&self) -> u8 {
        let absent =
            |directory: &Path| self.show(vec![Line::of_absence(directory)], Some(exit_code::UNAVAILABLE));
        on_domain_read_only(&self.domain, absent, async |domain| {
            let (lines, failed) = match uninterrupted(domain, async |_| domain.examine().await).await {
                Ok(Err(code)) => return Ok(code),
                Ok(Ok(findings)) => (timed(domain, findings).await, None),
                Err(error) => (self.one_by_one(&error).await, Some(exit_code::of_error(&error))),
            };
            Ok(match address::absent_inner(&self.domain) {
                None => self.show(lines, failed),
                Some(inner) => {
                    let outer = lines.into_iter().map(|line| Line { store: Some("outer"), ..line });
                    let inner = Line { store: Some("inner"), ..Line::of_absence(&inner) };
                    self.show([inner].into_iter().chain(outer).collect(), Some(exit_code::UNAVAILABLE))
                }
            })
        })
    }

    /// Prints the findings; returns the exit code, which is `failed` if the store can't be opened.
    fn show(&self, mut lines: Vec<Line>, failed: Option<u8>) -> u8 {
        lines.splice(0..0, address::locate(&self.domain).ok().map(Line::of_domain));
        let conclusion = Conclusion::of(&lines);
        let text = match self.format.json {
            true => objects(&lines, &conclusion),
            false => shown(&lines, &conclusion, terminal_width(std::io::stdout())),
        };
        let printed = output::show("findings", &text);
        match (failed, conclusion.verdict) {
            (Some(code), _) => code,
            // For a script, an unfit store is more important than a failed write.
            (None, Verdict::Unfit) => exit_code::UNFIT,
            _ => printed.err().unwrap_or(0),
        }
    }
}

impl Doctor {
    /// The findings for a domain that can't be opened.
    async fn one_by_one(&self, error: &Error) -> Vec<Line> {
        let layers = address::locate(&self.domain).ok().and_then(|located| located.url.layers());
        let layers = layers.filter(|_| address::absent_inner(&self.domain).is_none());
        let Some((outer, inner)) = layers else { return vec![Line::of_error(error)] };
        let mut lines = Vec::new();
        for (url, store) in [(inner, "inner"), (outer, "outer")] {
            let examined = match Store::lazy(url) {
                Ok(domain) => uninterrupted(&domain, async |_| domain.examine().await).await,
                Err(error) => Err(error),
            };
            let found = match examined {
                Ok(Ok(findings)) => findings.into_iter().map(Line::from).collect(),
                // A signal came: the findings so far are shown.
                Ok(Err(_)) => return lines,
                Err(error) => vec![Line::of_error(&error)],
            };
            lines.extend(found.into_iter().map(|line| Line { store: Some(store), ..line }));
        }
        lines
    }
}

async fn timed(domain: &Store, findings: Vec<Finding>) -> Vec<Line> {
    let mut lines: Vec<Line> = findings.into_iter().map(Line::from).collect();
    // If the store does not answer, the self-test has said so.
    lines.extend(round_trips(domain).await);
    lines
}

/// How long a request takes.
async fn round_trips(domain: &Store) -> Option<Line> {
    let (start, mut trips) = (Instant::now(), Vec::with_capacity(REQUESTS));
    while trips.len() < REQUESTS && start.elapsed() < LONGEST_TIMING {
        trips.push(domain.health().await.ok()?.round_trip);
    }
    let trips = Sample::new(trips);
    let (usual, slow) = (trips.quantile(50), trips.quantile(99));
    let reason = format!("p50 {}, p99 {} of {} requests", fine(usual), fine(slow), trips.len());
    let (store, check, count) = (None, "round trip", trips.len());
    let trips = Some(Trips { count, p50_us: json::micros(usual), p99_us: json::micros(slow) });
    Some(if slow < SLOW {
        Line { store, check, verdict: Verdict::Fit, reason, remedy: None, trips }
    } else {
        let reason = format!("{reason}: a lease that was handed over may end before it is renewed");
        let remedy = Some("use a store that is nearer or less busy".to_owned());
        Line { store, check, verdict: Verdict::Doubtful, reason, remedy, trips }
    })
}

impl From<Finding> for Line {
    fn from(finding: Finding) -> Self {
        let Finding { store, check, verdict, reason, remedy, .. } = finding;
        Line { store, check, verdict, reason, remedy, trips: None }
    }
}

impl Line {
    /// The domain.
    fn of_domain(located: &Located) -> Self {
        let reason = match located.absence() {
            Some(absence) => format!("{located}; {absence}"),
            None => located.to_string(),
        };
        let verdict = Verdict::Fit;
        Line { store: None, check: "domain", verdict, reason, remedy: None, trips: None }
    }

    /// A missing directory, which `doctor` does not create.
    fn of_absence(directory: &Path) -> Self {
        let (reason, word) = (absence(directory), output::word(&directory.to_string_lossy()));
        let parent = directory.parent().unwrap_or(directory);
        let remedy = Some(match access(parent, Access::WRITE_OK | Access::EXEC_OK) {
            Err(Errno::ACCESS) => {
                let user = rustix::process::geteuid().as_raw();
                format!("check the URL, or make it as root: install -d -m 700 -o {user} {word}")
            }
            _ => format!("check the URL, or make it: install -d -m 700 {word}"),
        });
        Line { store: None, check: "store", verdict: Verdict::Unfit, reason, remedy, trips: None }
    }

    fn of_error(error: &Error) -> Self {
        let reason = output::without_remedy(error);
        let remedy = error.remedy().map(str::to_owned);
        Line { store: None, check: "store", verdict: Verdict::Unfit, reason, remedy, trips: None }
    }

    /// The check, and the store of a layered domain.
    fn title(&self) -> String {
        self.store.map_or_else(|| self.check.to_owned(), |store| format!("{store} {}", self.check))
    }

    fn style(&self) -> Style {
        AnsiColor::on_default(match self.verdict {
            Verdict::Fit => AnsiColor::Green,
            Verdict::Doubtful => AnsiColor::Yellow,
            _ => AnsiColor::Red,
        })
    }

    fn mark(&self, is_unicode: bool) -> &'static str {
        match (self.verdict, is_unicode) {
            (Verdict::Fit, true) => "✔",
            (Verdict::Fit, false) => "ok",
            (Verdict::Doubtful, true) => "!",
            (Verdict::Doubtful, false) => "! ",
            (_, true) => "✘",
            (_, false) => "X ",
        }
    }
}

impl Conclusion {
    fn of(lines: &[Line]) -> Self {
        let count = |verdict| lines.iter().filter(|line| line.verdict == verdict).count();
        let verdict = lines.iter().map(|line| line.verdict).max().unwrap_or(Verdict::Fit);
        Conclusion { verdict, doubts: count(Verdict::Doubtful), faults: count(Verdict::Unfit) }
    }

    fn to_text(&self) -> String {
        match (self.verdict, self.doubts) {
            (Verdict::Fit, _) => "fit to hold locks".to_owned(),
            (Verdict::Doubtful, 1) => "fit to hold locks, with 1 doubt".to_owned(),
            (Verdict::Doubtful, doubts) => format!("fit to hold locks, with {doubts} doubts"),
            _ => "unfit to hold locks".to_owned(),
        }
    }
}

fn objects(lines: &[Line], conclusion: &Conclusion) -> String {
    let all = lines.iter().map(json::to_line).chain([json::to_line(conclusion)]);
    all.map(|line| line + "\n").collect()
}

/// For people. Without a width, as in a file, no line is folded.
fn shown(lines: &[Line], conclusion: &Conclusion, columns: Option<usize>) -> String {
    let is_unicode = is_unicode();
    let safe = |text: &str| if is_unicode { escaped(text) } else { in_ascii(&escaped(text)) };
    let width = lines.iter().map(|line| line.title().len()).max().unwrap_or(0);
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        let (style, mark) = (line.style(), line.mark(is_unicode));
        let indent = mark.chars().count() + 1 + width + 2;
        let fold = |text: &str, first, joint: &str| match columns {
            // A narrow terminal has the two columns below each other.
            Some(columns) if columns < indent + NARROW => folded(text, columns, first, 2, joint),
            Some(columns) => folded(text, columns, first, indent, joint),
            None => text.to_owned(),
        };
        let reason = fold(&safe(&line.reason), indent, "");
        let _ = writeln!(text, "{style}{mark}{style:#} {:width$}  {reason}", line.title());
        if let Some(remedy) = &line.remedy {
            // A remedy for several findings is long, and typed once.
            let is_repeated = lines[..index].iter().any(|before| before.remedy.as_ref() == Some(remedy));
            let remedy = if is_repeated { "the same as above".to_owned() } else { safe(remedy).to_string() };
            // A command can be typed as it is, even over several lines.
            let joint = if remedy.starts_with("redis-cli ") { " \\" } else { "" };
            let indent = if columns.is_some_and(|columns| columns < indent + NARROW) { 2 } else { indent };
            let _ = writeln!(text, "{:indent$}{}", "", fold(&remedy, indent, joint));
        }
    }
    text + &conclusion.to_text() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_semicolon_in_a_name_is_not_where_the_remedy_begins() {
        let domain = Store::open("memory:").await.unwrap();
        let ticket = domain.lock("a; b").acquire().await.unwrap().detach().await.unwrap();
        ticket.release(&domain).await.unwrap();
        let line = Line::of_error(&ticket.renew(&domain).await.unwrap_err());
        assert!(line.reason.starts_with("ticket for `a; b` is no longer valid: "), "{}", line.reason);
        assert_eq!(line.remedy, None);

        let line = Line::of_error(&Store::lazy("redsi://h").unwrap_err());
        assert_eq!(line.reason, "unknown scheme `redsi` in domain URL");
        assert_eq!(line.remedy.as_deref(), Some("did you mean `redis://`?"));
    }
}
