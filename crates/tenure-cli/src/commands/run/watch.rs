//! What front and minder both know. It lies in memory that they share, so that it is never out of date: messages would be, for a front
//! that was stopped and goes on, and those of a minder that was killed never come.
//!
//! The front watches over the same lease as the minder, for that may be stopped or hang. It is later than the minder by a quarter of the
//! time between TERM and the deadline, and half of that between KILL and the deadline, so that it acts only then.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::SeqCst};

use rustix::process::Pid;

use super::child::End;
use super::deadline::{Moment, Plan};
use super::report::Kind;

/// When the front does what the minder has not done.
#[derive(Debug)]
pub(crate) struct Watch {
    term_at: AtomicU64,
    kill_at: AtomicU64,
    asks: AtomicBool,
    is_stopping: AtomicBool,
    is_told: AtomicBool,
    pub(crate) facts: Facts,
}

impl Watch {
    /// Nothing is to be stopped.
    pub(crate) const fn new() -> Self {
        Watch {
            term_at: AtomicU64::new(Moment::FAR.micros()),
            kill_at: AtomicU64::new(Moment::FAR.micros()),
            asks: AtomicBool::new(true),
            is_stopping: AtomicBool::new(false),
            is_told: AtomicBool::new(false),
            facts: Facts::new(),
        }
    }

    /// The minder has a new plan.
    pub(crate) fn follow(&self, plan: &Plan) {
        self.asks.store(plan.asks(), SeqCst);
        self.kill_at.store(plan.late_at().micros(), SeqCst);
        self.term_at.store(plan.late_term_at().micros(), SeqCst);
    }

    /// Nothing runs any more that would have to be stopped.
    pub(crate) fn rest(&self) {
        self.kill_at.store(Moment::FAR.micros(), SeqCst);
        self.term_at.store(Moment::FAR.micros(), SeqCst);
    }

    /// Someone began to stop the command, because its lease is lost; false when someone had before.
    pub(crate) fn begin_stopping(&self) -> bool {
        !self.is_stopping.swap(true, SeqCst)
    }

    /// Whether someone began to stop the command, because its lease is lost.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(SeqCst)
    }

    /// Someone is to tell why the command is stopped; false when someone has told before.
    pub(crate) fn begin_telling(&self) -> bool {
        !self.is_told.swap(true, SeqCst)
    }

    /// Whether the command is asked to end before it is killed.
    pub(crate) fn asks(&self) -> bool {
        self.asks.load(SeqCst)
    }

    /// When the front begins to stop the command.
    pub(crate) fn term_at(&self) -> Moment {
        Moment::of(self.term_at.load(SeqCst))
    }

    /// When the front kills all there is.
    pub(crate) fn kill_at(&self) -> Moment {
        Moment::of(self.kill_at.load(SeqCst))
    }
}

/// No process has this number.
const NOBODY: i32 = 0;
/// Not known yet.
const UNKNOWN: u32 = 0;

/// What happened so far.
#[derive(Debug)]
pub(crate) struct Facts {
    granted_at: AtomicU64,
    fence: AtomicU64,
    was_degraded: AtomicBool,
    over_at: AtomicU64,
    started_at: AtomicU64,
    command: AtomicI32,
    end: AtomicU32,
    verdict: AtomicU32,
    is_reported: AtomicBool,
}

impl Facts {
    /// Nothing did.
    pub(crate) const fn new() -> Self {
        let never = Moment::FAR.micros();
        Facts {
            granted_at: AtomicU64::new(never),
            fence: AtomicU64::new(0),
            was_degraded: AtomicBool::new(false),
            over_at: AtomicU64::new(never),
            started_at: AtomicU64::new(never),
            command: AtomicI32::new(NOBODY),
            end: AtomicU32::new(UNKNOWN),
            verdict: AtomicU32::new(UNKNOWN),
            is_reported: AtomicBool::new(false),
        }
    }

    /// The minder has the lease. Nothing was started before that.
    pub(crate) fn granted(&self, at: Moment, fence: u64) {
        self.fence.store(fence, SeqCst);
        self.granted_at.store(at.micros(), SeqCst);
    }

    /// When there began to be a lease, and its fence.
    pub(crate) fn grant(&self) -> Option<(Moment, u64)> {
        known(&self.granted_at).map(|at| (at, self.fence.load(SeqCst)))
    }

    /// The lease excludes this machine only.
    pub(crate) fn note_degraded(&self) {
        self.was_degraded.store(true, SeqCst);
    }

    /// Whether it did so at any time.
    pub(crate) fn was_degraded(&self) -> bool {
        self.was_degraded.load(SeqCst)
    }

    /// The name was given back, or is lost; what counts is the first time.
    pub(crate) fn over(&self, at: Moment) {
        let _ = self.over_at.compare_exchange(Moment::FAR.micros(), at.micros(), SeqCst, SeqCst);
    }

    /// When the lease was over.
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
    pub(crate) fn ended(&self, end: End) {
        self.end.store(end.encode(), SeqCst);
    }

    /// How the command itself ended, if that was seen.
    pub(crate) fn end(&self) -> Option<End> {
        End::decode(self.end.load(SeqCst))
    }

    /// How it all ends, but for giving back.
    pub(crate) fn conclude(&self, kind: Kind, code: u8) {
        self.verdict.store(kind.number() << 8 | u32::from(code), SeqCst);
    }

    /// How it all ends, when that is known.
    pub(crate) fn verdict(&self) -> Option<(Kind, u8)> {
        let verdict = self.verdict.load(SeqCst);
        Some((Kind::of(verdict >> 8)?, verdict.to_le_bytes()[0]))
    }

    /// Someone is to write the report; false when someone has before.
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
    fn what_is_told_is_found() {
        let facts = Facts::new();
        assert!(facts.grant().is_none() && facts.command().is_none() && facts.end().is_none());
        assert!(facts.verdict().is_none() && facts.over_at().is_none());
        let (now, pid) = (Moment::now(), Pid::from_raw(7).unwrap());
        facts.granted(now, 12);
        facts.started(now, pid);
        assert_eq!((facts.grant(), facts.command()), (Some((now, 12)), Some((pid, now))));
        for end in [End::Exited(0), End::Exited(255), End::Killed(9)] {
            facts.ended(end);
            assert_eq!(facts.end(), Some(end));
        }
        for (kind, code) in [(Kind::Exited, 0), (Kind::MaxHold, 124), (Kind::NotStarted, 255)] {
            facts.conclude(kind, code);
            assert_eq!(facts.verdict(), Some((kind, code)));
        }
        facts.over(now);
        facts.over(now.after(std::time::Duration::from_secs(1)));
        assert_eq!(facts.over_at(), Some(now), "the first time counts");
        assert!(facts.begin_reporting() && !facts.begin_reporting());
    }
}
