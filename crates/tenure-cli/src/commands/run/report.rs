//! `--status-fd`: one line of JSON with the true outcome, because a command may exit with 75 or 79 itself.
//!
//! `tenure` writes it last, so that a reader that does not read delays nobody who waits for the name. A thread writes it, so that such a reader
//! does not block `tenure`. The holder writes it, or the wrapper if the holder can't; their shared state makes sure that there is only one line.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::OFlags;
use serde::Serialize;

use super::Run;
use super::child::CommandEnd;
use super::deadline::Moment;
use super::shared::SharedFacts;
use crate::commands::waiting::WaitResult;
use crate::exit_code;
use crate::json::{self, Who};
use crate::sys;

/// How long to wait for a reader.
const LONGEST_WRITE: Duration = Duration::from_secs(1);
const WRITER_STACK: usize = 64 * 1_024;

/// What happened, as the field `outcome`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunOutcome {
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
    /// A signal came while `tenure` waited, or the wrapper was killed.
    Interrupted,
    /// The command can't be executed, or was not found.
    NotStarted,
}

impl RunOutcome {
    const ALL: [RunOutcome; 11] = [
        RunOutcome::Exited,
        RunOutcome::Signaled,
        RunOutcome::Busy,
        RunOutcome::Lost,
        RunOutcome::MaxHold,
        RunOutcome::Unavailable,
        RunOutcome::Denied,
        RunOutcome::Usage,
        RunOutcome::OsError,
        RunOutcome::Interrupted,
        RunOutcome::NotStarted,
    ];

    pub(crate) fn number(self) -> u32 {
        self as u32
    }

    pub(crate) fn of(number: u32) -> Option<RunOutcome> {
        RunOutcome::ALL.into_iter().find(|outcome| outcome.number() == number)
    }
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct RunResult {
    pub(crate) outcome: RunOutcome,
    /// What `tenure` exits with.
    pub(crate) code: u8,
    holder: Option<Who>,
}

impl RunResult {
    pub(crate) fn new(outcome: RunOutcome, code: u8) -> Self {
        RunResult { outcome, code, holder: None }
    }

    /// The name was not acquired.
    pub(crate) fn refused(code: u8, outcome: &WaitResult) -> Self {
        let holder = match outcome {
            WaitResult::Acquired(..) => None,
            WaitResult::Busy(busy) => busy.holder.as_ref(),
            WaitResult::Enclosing(holder) => Some(holder),
        };
        let holder = holder.map(|holder| Who::new(&holder.owner));
        RunResult { holder, ..RunResult::new(RunOutcome::Busy, code) }
    }

    /// The command ended by itself.
    pub(crate) fn of_end(end: CommandEnd) -> Self {
        let outcome =
            if matches!(end, CommandEnd::Exited(_)) { RunOutcome::Exited } else { RunOutcome::Signaled };
        RunResult::new(outcome, end.code())
    }

    /// The command was not started; the code says why.
    pub(crate) fn failed(code: u8) -> Self {
        let outcome = match code {
            exit_code::USAGE => RunOutcome::Usage,
            exit_code::OS => RunOutcome::OsError,
            exit_code::DENIED => RunOutcome::Denied,
            exit_code::LOST => RunOutcome::Lost,
            exit_code::NOT_FOUND | exit_code::NOT_EXECUTABLE => RunOutcome::NotStarted,
            _ => RunOutcome::Unavailable,
        };
        RunResult::new(outcome, code)
    }
}

/// The line. docs/cli.md describes it.
#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    outcome: RunOutcome,
    code: u8,
    exit: Option<u8>,
    signal: Option<i32>,
    fence: Option<u64>,
    degraded: Option<bool>,
    waited_ms: u64,
    held_ms: Option<u64>,
    holder: &'a Option<Who>,
}

/// Where the outcome is written.
pub(crate) struct Report<'a> {
    name: &'a str,
    descriptor: Option<OwnedFd>,
    begun_at: Moment,
}

impl<'a> Report<'a> {
    /// Takes the descriptor, so that the command does not inherit it. Call it before anything else is opened.
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

    /// Writes the line, unless nobody asked for it or the other process has written it. Call it last.
    pub(crate) fn write(&self, facts: &'static SharedFacts, result: &RunResult) {
        let Some(descriptor) = &self.descriptor else { return };
        let Ok(copy) = descriptor.try_clone() else { return };
        let line = format!("{}\n", self.line(facts, result));
        let (written, is_written) = std::sync::mpsc::channel();
        let writer = std::thread::Builder::new().stack_size(WRITER_STACK).spawn(move || {
            // As late as possible: if the process is killed from here on, there is no line.
            if facts.begin_reporting() {
                // The reader may be gone.
                let _ = File::from(copy).write_all(line.as_bytes());
            }
            let _ = written.send(());
        });
        if writer.is_ok() {
            let _ = is_written.recv_timeout(LONGEST_WRITE);
        }
    }

    fn line(&self, facts: &SharedFacts, result: &RunResult) -> String {
        let (now, end) = (Moment::now(), facts.end());
        let (granted_at, fence) = facts.grant().unzip();
        let waited = granted_at.unwrap_or(now).since(self.begun_at);
        let held = granted_at.map(|at| facts.over_at().unwrap_or(now).since(at));
        let (exit, signal) = match end {
            Some(CommandEnd::Exited(code)) => (Some(code), None),
            Some(CommandEnd::Killed(signal)) => (None, Some(signal)),
            None => (None, None),
        };
        json::to_line(&Line {
            name: self.name,
            outcome: result.outcome,
            code: result.code,
            exit,
            signal,
            fence,
            degraded: fence.map(|_| facts.was_degraded()),
            waited_ms: json::millis(waited),
            held_ms: held.map(json::millis),
            holder: &result.holder,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_a_command_that_was_killed() {
        let (begun_at, facts) = (Moment::now(), SharedFacts::new());
        let report = Report { name: "a\n\"b", descriptor: None, begun_at };
        let at = |millis| begun_at.after(Duration::from_millis(millis));
        facts.granted(at(20), 7);
        facts.over(at(50));
        facts.ended(CommandEnd::Killed(9));
        let line = report.line(&facts, &RunResult::new(RunOutcome::MaxHold, 124));
        let expected = r#"{"v":1,"name":"a\n\"b","outcome":"max_hold","code":124,"exit":null,"signal":9,"fence":7,"degraded":false,"waited_ms":20,"held_ms":30,"holder":null}"#;
        assert_eq!(line, expected);
    }

    #[test]
    fn a_kind_survives_as_a_number() {
        for outcome in RunOutcome::ALL {
            assert_eq!(RunOutcome::of(outcome.number()), Some(outcome));
        }
        assert_eq!((RunOutcome::of(0), RunOutcome::of(12)), (None, None));
    }
}
