//! Injects faults at the points, in a process whose environment has a plan. In all other processes, nothing happens.
//!
//! A plan is a list of settings with commas between them:
//! - `stop=N` and `kill=N`: chances in a million at every point of an operation;
//! - `replace-stop=N` and `replace-kill=N`: the same at every point of a replacement, which a process passes far less often;
//! - `at=Applied:Stop:7`: a fault at the seventh passing (`Stall` blocks the thread for ever);
//! - `without=Message`: leaves a check out; `seed=N`;
//! - `log=DIR` and `me=ID`: log every fault before it happens, for the oracle and for the counts.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::str::FromStr;
use std::sync::OnceLock;

use rustix::process::Signal;
use tenure_testkit::oracle::Recorder;

use super::{Check, Point};
use crate::sync::Mutex;

pub(in crate::backend::file) const VARIABLE: &str = "TENURE_FAULTS";
const MILLION: u64 = 1_000_000;

/// What a process does to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::backend::file) enum Action {
    Stop,
    Kill,
    /// Blocks the thread for ever, like a disk that does not answer.
    Stall,
}

impl Point {
    pub(in crate::backend::file) const ALL: [Point; 10] = [
        Point::Locked,
        Point::Applied,
        Point::Written,
        Point::Committed,
        Point::Unlocked,
        Point::MarkedDead,
        Point::Announced,
        Point::DraftWritten,
        Point::Replaced,
        Point::Syncing,
    ];

    /// Whether a process passes it only when it makes or replaces the file of a stripe.
    pub(in crate::backend::file) fn is_of_a_replacement(self) -> bool {
        matches!(
            self,
            Point::MarkedDead | Point::Announced | Point::DraftWritten | Point::Replaced | Point::Syncing
        )
    }
}

impl FromStr for Point {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Point::ALL
            .into_iter()
            .find(|point| format!("{point:?}") == text)
            .ok_or_else(|| format!("no point {text}"))
    }
}

#[derive(Default)]
struct Plan {
    operation: Chances,
    replacement: Chances,
    left_out: Option<String>,
    dice: Mutex<u64>,
    armed: Mutex<Vec<Armed>>,
    journal: Option<Journal>,
}

#[derive(Default)]
struct Chances {
    stop: u64,
    kill: u64,
}

/// A fault at the n-th passing of a point from now.
struct Armed {
    point: Point,
    passings: usize,
    action: Action,
}

impl FromStr for Armed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let mut part = || parts.next().ok_or_else(|| format!("too short: {text}"));
        let point = part()?.parse()?;
        let action = match part()? {
            "Kill" => Action::Kill,
            "Stall" => Action::Stall,
            _ => Action::Stop,
        };
        let passings = part()?.parse().map_err(|_| format!("no number: {text}"))?;
        Ok(Armed { point, passings, action })
    }
}

/// The log of faults.
struct Journal {
    me: String,
    oracle: Recorder,
    points: File,
}

fn plan() -> Option<&'static Plan> {
    static PLAN: OnceLock<Option<Plan>> = OnceLock::new();
    PLAN.get_or_init(|| std::env::var(VARIABLE).ok().map(|text| Plan::parse(&text))).as_ref()
}

impl Plan {
    fn parse(text: &str) -> Self {
        let (mut plan, mut log, mut me) = (Plan::default(), None, None);
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let (key, value) = word.split_once('=').expect("words of a plan are `key=value`");
            let number = || value.parse::<u64>().expect("a number");
            match key {
                "stop" => plan.operation.stop = number(),
                "kill" => plan.operation.kill = number(),
                "replace-stop" => plan.replacement.stop = number(),
                "replace-kill" => plan.replacement.kill = number(),
                "seed" => *plan.dice.lock() = number() | 1,
                "at" => plan.armed.lock().push(value.parse().expect("POINT:ACTION:N")),
                "without" => plan.left_out = Some(value.to_owned()),
                "log" => log = Some(value.to_owned()),
                "me" => me = Some(value.to_owned()),
                _ => panic!("unknown word `{word}` in a plan"),
            }
        }
        plan.journal = log.zip(me).map(|(dir, me)| Journal::create(Path::new(&dir), me));
        plan
    }

    /// The fault at this passing.
    fn draw(&self, point: Point) -> Option<Action> {
        let mut armed = self.armed.lock();
        if let Some(index) = armed.iter().position(|armed| armed.point == point) {
            armed[index].passings -= 1;
            if armed[index].passings == 0 {
                return Some(armed.remove(index).action);
            }
        }
        let chances = if point.is_of_a_replacement() { &self.replacement } else { &self.operation };
        if chances.stop + chances.kill == 0 {
            return None;
        }
        let mut dice = self.dice.lock();
        *dice ^= *dice << 13;
        *dice ^= *dice >> 7;
        *dice ^= *dice << 17;
        let rolled = (*dice >> 11) % MILLION;
        if rolled < chances.kill {
            Some(Action::Kill)
        } else {
            (rolled < chances.kill + chances.stop).then_some(Action::Stop)
        }
    }
}

impl Journal {
    fn create(dir: &Path, me: String) -> Self {
        let points = OpenOptions::new().append(true).create_new(true).open(dir.join(format!("{me}.points")));
        let oracle = Recorder::in_dir(dir, &format!("{me}/itself")).expect("a log");
        Journal { me, oracle, points: points.expect("a log") }
    }

    fn note(&self, point: Point, what: &str) {
        let line = format!("{point:?} {what}\n");
        (&self.points).write_all(line.as_bytes()).expect("to write a line");
    }
}

/// Passes a point.
pub(in crate::backend::file) fn at(point: Point) {
    let Some(plan) = plan() else { return };
    let action = plan.draw(point);
    if let Some(journal) = &plan.journal {
        match action {
            None if point.is_of_a_replacement() => journal.note(point, "passed"),
            None => {}
            Some(Action::Stop) => {
                journal.note(point, "stopped");
                journal.oracle.fault("stop", Some(&journal.me), None);
            }
            Some(Action::Kill) => {
                journal.note(point, "killed");
                journal.oracle.killed(&journal.me);
            }
            Some(Action::Stall) => journal.note(point, "stalled"),
        }
    }
    let signal = match action {
        None => return,
        Some(Action::Stop) => Signal::STOP,
        Some(Action::Kill) => Signal::KILL,
        Some(Action::Stall) => loop {
            std::thread::park();
        },
    };
    // To this thread, which then does not pass the point. The kernel may deliver a signal for the process to another thread, which takes
    // time on a busy machine.
    signal_hook::low_level::raise(signal.as_raw()).expect("to send a signal to oneself");
}

/// Whether a check is left out.
pub(in crate::backend::file) fn leaves_out(check: Check) -> bool {
    plan()
        .is_some_and(|plan| plan.left_out.as_ref().is_some_and(|left_out| *left_out == format!("{check:?}")))
}

/// Adds a fault at the n-th passing of a point from now. Only in a process with a plan, so that no test can stop its own process.
pub(in crate::backend::file) fn arm(at: &str) {
    let plan = plan().expect("a process with a plan");
    plan.armed.lock().push(at.parse().expect("POINT:ACTION:N"));
}
