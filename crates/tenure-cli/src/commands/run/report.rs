//! `--status-fd`: one line of JSON with the true outcome, because a command may exit with 75 or 79 itself.
//!
//! It is the last thing that is done, so that a reader who does not read keeps nobody waiting for the name; and it is written by a thread of
//! its own, so that such a reader does not keep `tenure` either. The minder writes it, or the front when the minder can't; what they share says who
//! began, so that it is never two lines.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::OFlags;
use serde::Serialize;

use super::Run;
use super::child::End;
use super::deadline::Moment;
use super::watch::Facts;
use crate::commands::waiting::Outcome;
use crate::exit_code;
use crate::json::{self, Who};
use crate::sys;

/// How long a reader is waited for.
const LONGEST_WRITE: Duration = Duration::from_secs(1);
const WRITER_STACK: usize = 64 * 1_024;

/// What happened, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// The command ended by itself, under the lease.
    Exited = 1,
    /// A signal killed the command, under the lease.
    Signaled,
    /// Someone else holds the name.
    Busy,
    /// The lease was lost before the command had ended.
    Lost,
    /// The command was stopped by `--max-hold`.
    MaxHold,
    /// The store can't be used.
    Unavailable,
    /// The store refused.
    Denied,
    /// The command line is wrong.
    Usage,
    /// The operating system refused.
    OsError,
    /// A signal came while `tenure` waited, or the front was killed.
    Interrupted,
    /// The command can't be executed, or was not found.
    NotStarted,
}

impl Kind {
    const ALL: [Kind; 11] = [
        Kind::Exited,
        Kind::Signaled,
        Kind::Busy,
        Kind::Lost,
        Kind::MaxHold,
        Kind::Unavailable,
        Kind::Denied,
        Kind::Usage,
        Kind::OsError,
        Kind::Interrupted,
        Kind::NotStarted,
    ];

    pub(crate) fn number(self) -> u32 {
        self as u32
    }

    pub(crate) fn of(number: u32) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.number() == number)
    }
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) kind: Kind,
    /// What `tenure` exits with.
    pub(crate) code: u8,
    holder: Option<Who>,
}

impl Verdict {
    pub(crate) fn new(kind: Kind, code: u8) -> Self {
        Verdict { kind, code, holder: None }
    }

    /// The name was not acquired.
    pub(crate) fn refused(code: u8, outcome: &Outcome) -> Self {
        let holder = match outcome {
            Outcome::Acquired(..) => None,
            Outcome::Busy(busy) => busy.holder.as_ref(),
            Outcome::Enclosing(holder) => Some(holder),
        };
        let holder = holder.map(|holder| Who::new(&holder.owner));
        Verdict { holder, ..Verdict::new(Kind::Busy, code) }
    }

    /// The command ended by itself.
    pub(crate) fn of_end(end: End) -> Self {
        let kind = if matches!(end, End::Exited(_)) { Kind::Exited } else { Kind::Signaled };
        Verdict::new(kind, end.code())
    }

    /// There was no command; the code says why.
    pub(crate) fn failed(code: u8) -> Self {
        let kind = match code {
            exit_code::USAGE => Kind::Usage,
            exit_code::OS => Kind::OsError,
            exit_code::DENIED => Kind::Denied,
            exit_code::LOST => Kind::Lost,
            exit_code::NOT_FOUND | exit_code::NOT_EXECUTABLE => Kind::NotStarted,
            _ => Kind::Unavailable,
        };
        Verdict::new(kind, code)
    }
}

/// The line. docs/cli.md describes it.
#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    outcome: Kind,
    code: u8,
    exit: Option<u8>,
    signal: Option<i32>,
    fence: Option<u64>,
    degraded: Option<bool>,
    waited_ms: u64,
    held_ms: Option<u64>,
    holder: &'a Option<Who>,
}

/// Where the outcome is told.
pub(crate) struct Report<'a> {
    name: &'a str,
    descriptor: Option<OwnedFd>,
    begun_at: Moment,
}

impl<'a> Report<'a> {
    /// Takes the descriptor, so that the command does not inherit it. To be called before anything else is opened.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn open(run: &'a Run) -> Result<Self, String> {
        let descriptor = run.limits.status_fd.map(|number| {
            let descriptor = sys::take_inherited(number).map_err(|_| {
                format!("--status-fd: descriptor {number} is not open; open it, as in `{number}>status`")
            })?;
            let mode = rustix::fs::fcntl_getfl(&descriptor).map(|flags| flags & OFlags::ACCMODE);
            if mode.is_ok_and(|mode| mode == OFlags::WRONLY || mode == OFlags::RDWR) {
                return Ok(descriptor);
            }
            Err(format!(
                "--status-fd: descriptor {number} is not open for writing; open it as in `{number}>status`"
            ))
        });
        Ok(Report { name: &run.name, descriptor: descriptor.transpose()?, begun_at: Moment::now() })
    }

    /// Writes the line, unless nobody asked for it or the other process has written it. Nothing may be left to be done.
    pub(crate) fn write(&self, facts: &'static Facts, verdict: &Verdict) {
        let Some(descriptor) = &self.descriptor else { return };
        let Ok(copy) = descriptor.try_clone() else { return };
        let line = format!("{}\n", self.line(facts, verdict));
        let (written, is_written) = std::sync::mpsc::channel();
        let writer = std::thread::Builder::new().stack_size(WRITER_STACK).spawn(move || {
            // As late as can be: a process that is killed from here on leaves no line.
            if facts.begin_reporting() {
                // Whoever asked for it may be gone.
                let _ = File::from(copy).write_all(line.as_bytes());
            }
            let _ = written.send(());
        });
        if writer.is_ok() {
            let _ = is_written.recv_timeout(LONGEST_WRITE);
        }
    }

    fn line(&self, facts: &Facts, verdict: &Verdict) -> String {
        let (now, end) = (Moment::now(), facts.end());
        let (granted_at, fence) = facts.grant().unzip();
        let waited = granted_at.unwrap_or(now).since(self.begun_at);
        let held = granted_at.map(|at| facts.over_at().unwrap_or(now).since(at));
        let (exit, signal) = match end {
            Some(End::Exited(code)) => (Some(code), None),
            Some(End::Killed(signal)) => (None, Some(signal)),
            None => (None, None),
        };
        json::to_line(&Line {
            name: self.name,
            outcome: verdict.kind,
            code: verdict.code,
            exit,
            signal,
            fence,
            degraded: fence.map(|_| facts.was_degraded()),
            waited_ms: json::millis(waited),
            held_ms: held.map(json::millis),
            holder: &verdict.holder,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_command_that_was_killed() {
        let (begun_at, facts) = (Moment::now(), Facts::new());
        let report = Report { name: "a\n\"b", descriptor: None, begun_at };
        let at = |millis| begun_at.after(Duration::from_millis(millis));
        facts.granted(at(20), 7);
        facts.over(at(50));
        facts.ended(End::Killed(9));
        let line = report.line(&facts, &Verdict::new(Kind::MaxHold, 124));
        let expected = r#"{"v":1,"name":"a\n\"b","outcome":"max_hold","code":124,"exit":null,"signal":9,"fence":7,"degraded":false,"waited_ms":20,"held_ms":30,"holder":null}"#;
        assert_eq!(line, expected);
    }

    #[test]
    fn a_kind_survives_as_a_number() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of(kind.number()), Some(kind));
        }
        assert_eq!((Kind::of(0), Kind::of(12)), (None, None));
    }
}
