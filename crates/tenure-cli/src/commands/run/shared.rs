//! State in memory that the wrapper and the holder share. Messages would not do: a wrapper that was stopped reads them late, and a holder that
//! was killed sends none.
//!
//! The wrapper watches the same lease as the holder, which may be stopped or hang. It acts later than the holder, by a quarter of the time between
//! TERM and the deadline and by half of the time between KILL and the deadline. So it acts only if the holder did not.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::SeqCst};

use rustix::process::Pid;

use super::child::CommandEnd;
use super::deadline::{Moment, Plan};
use super::report::RunOutcome;

/// When the wrapper acts in place of the holder, and what is known of the run.
#[derive(Debug)]
pub(crate) struct SharedState {
    term_at: AtomicU64,
    kill_at: AtomicU64,
    sends_term: AtomicBool,
    is_stopping: AtomicBool,
    has_message: AtomicBool,
    is_message_written: AtomicBool,
    pub(crate) facts: SharedFacts,
}

impl SharedState {
    /// With no command to stop.
    pub(crate) const fn new() -> Self {
        SharedState {
            term_at: AtomicU64::new(Moment::FAR.micros()),
            kill_at: AtomicU64::new(Moment::FAR.micros()),
            sends_term: AtomicBool::new(true),
            is_stopping: AtomicBool::new(false),
            has_message: AtomicBool::new(false),
            is_message_written: AtomicBool::new(false),
            facts: SharedFacts::new(),
        }
    }

    /// The holder has a new plan.
    pub(crate) fn set_plan(&self, plan: &Plan) {
        self.sends_term.store(plan.sends_term(), SeqCst);
        self.kill_at.store(plan.wrapper_kill_at().micros(), SeqCst);
        self.term_at.store(plan.wrapper_term_at().micros(), SeqCst);
    }

    /// No command is left to stop.
    pub(crate) fn disarm(&self) {
        self.kill_at.store(Moment::FAR.micros(), SeqCst);
        self.term_at.store(Moment::FAR.micros(), SeqCst);
    }

    /// One process begins to stop the command, because its lease is lost; false if the other had begun before.
    pub(crate) fn begin_stopping(&self) -> bool {
        !self.is_stopping.swap(true, SeqCst)
    }

    /// Whether a process began to stop the command, because its lease is lost.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(SeqCst)
    }

    /// One process is about to say why the command is stopped; false if the other has begun to.
    pub(crate) fn begin_message(&self) -> bool {
        !self.has_message.swap(true, SeqCst)
    }

    /// The message is written.
    pub(crate) fn message_written(&self) {
        self.is_message_written.store(true, SeqCst);
    }

    /// Whether the message is written. A process that began it may be killed before it has written it.
    pub(crate) fn is_message_written(&self) -> bool {
        self.is_message_written.load(SeqCst)
    }

    /// Whether the command gets TERM before KILL.
    pub(crate) fn sends_term(&self) -> bool {
        self.sends_term.load(SeqCst)
    }

    /// When the wrapper begins to stop the command.
    pub(crate) fn term_at(&self) -> Moment {
        Moment::of(self.term_at.load(SeqCst))
    }

    /// When the wrapper kills everything.
    pub(crate) fn kill_at(&self) -> Moment {
        Moment::of(self.kill_at.load(SeqCst))
    }
}

/// No process has this number.
const NOBODY: i32 = 0;
/// Not known yet.
const UNKNOWN: u32 = 0;

/// What has happened so far.
#[derive(Debug)]
pub(crate) struct SharedFacts {
    granted_at: AtomicU64,
    fence: AtomicU64,
    was_degraded: AtomicBool,
    over_at: AtomicU64,
    started_at: AtomicU64,
    command: AtomicI32,
    end: AtomicU32,
    result: AtomicU32,
    is_reported: AtomicBool,
}

impl SharedFacts {
    /// Nothing has happened.
    pub(crate) const fn new() -> Self {
        let never = Moment::FAR.micros();
        SharedFacts {
            granted_at: AtomicU64::new(never),
            fence: AtomicU64::new(0),
            was_degraded: AtomicBool::new(false),
            over_at: AtomicU64::new(never),
            started_at: AtomicU64::new(never),
            command: AtomicI32::new(NOBODY),
            end: AtomicU32::new(UNKNOWN),
            result: AtomicU32::new(UNKNOWN),
            is_reported: AtomicBool::new(false),
        }
    }

    /// The holder has the lease.
    pub(crate) fn granted(&self, at: Moment, fence: u64) {
        self.fence.store(fence, SeqCst);
        self.granted_at.store(at.micros(), SeqCst);
    }

    /// When the lease was granted, and its fence.
    pub(crate) fn grant(&self) -> Option<(Moment, u64)> {
        known(&self.granted_at).map(|at| (at, self.fence.load(SeqCst)))
    }

    /// The lease excludes this machine only.
    pub(crate) fn note_degraded(&self) {
        self.was_degraded.store(true, SeqCst);
    }

    /// Whether it excluded this machine only at any time.
    pub(crate) fn was_degraded(&self) -> bool {
        self.was_degraded.load(SeqCst)
    }

    /// The name was given back or is lost. The first call counts.
    pub(crate) fn over(&self, at: Moment) {
        let _ = self.over_at.compare_exchange(Moment::FAR.micros(), at.micros(), SeqCst, SeqCst);
    }

    /// When the lease ended.
    pub(crate) fn over_at(&self) -> Option<Moment> {
        known(&self.over_at)
    }

    /// The command was started.
    pub(crate) fn started(&self, at: Moment, command: Pid) {
        self.started_at.store(at.micros(), SeqCst);
        self.command.store(command.as_raw_pid(), SeqCst);
    }

    /// The command, and when it was started.
    pub(crate) fn command(&self) -> Option<(Pid, Moment)> {
        Some((Pid::from_raw(self.command.load(SeqCst))?, known(&self.started_at)?))
    }

    /// The command itself ended.
    pub(crate) fn ended(&self, end: CommandEnd) {
        self.end.store(end.encode(), SeqCst);
    }

    /// How the command itself ended, if a process saw it.
    pub(crate) fn end(&self) -> Option<CommandEnd> {
        CommandEnd::decode(self.end.load(SeqCst))
    }

    /// The result, before the name is given back.
    pub(crate) fn conclude(&self, outcome: RunOutcome, code: u8) {
        self.result.store(outcome.number() << 8 | u32::from(code), SeqCst);
    }

    /// The result, if it is known.
    pub(crate) fn result(&self) -> Option<(RunOutcome, u8)> {
        let result = self.result.load(SeqCst);
        Some((RunOutcome::of(result >> 8)?, result.to_le_bytes()[0]))
    }

    /// One process is about to write the report; false if the other has written it.
    pub(crate) fn begin_reporting(&self) -> bool {
        !self.is_reported.swap(true, SeqCst)
    }
}

fn known(moment: &AtomicU64) -> Option<Moment> {
    Some(Moment::of(moment.load(SeqCst))).filter(|moment| *moment != Moment::FAR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_as_they_were_written() {
        let facts = SharedFacts::new();
        assert!(facts.grant().is_none() && facts.command().is_none() && facts.end().is_none());
        assert!(facts.result().is_none() && facts.over_at().is_none());
        let (now, pid) = (Moment::now(), Pid::from_raw(7).unwrap());
        facts.granted(now, 12);
        facts.started(now, pid);
        assert_eq!((facts.grant(), facts.command()), (Some((now, 12)), Some((pid, now))));
        for end in [CommandEnd::Exited(0), CommandEnd::Exited(255), CommandEnd::Killed(9)] {
            facts.ended(end);
            assert_eq!(facts.end(), Some(end));
        }
        for (outcome, code) in
            [(RunOutcome::Exited, 0), (RunOutcome::MaxHold, 124), (RunOutcome::NotStarted, 255)]
        {
            facts.conclude(outcome, code);
            assert_eq!(facts.result(), Some((outcome, code)));
        }
        facts.over(now);
        facts.over(now.after(std::time::Duration::from_secs(1)));
        assert_eq!(facts.over_at(), Some(now), "the first time counts");
        assert!(facts.begin_reporting() && !facts.begin_reporting());
    }
}
