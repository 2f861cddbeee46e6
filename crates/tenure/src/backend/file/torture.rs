//! Stops and kills processes that use one directory; the oracle judges what they believed.
//!
//! Eight processes with four tasks each lock three names, two of them on one stripe. The test stops them for up to three ttls and kills
//! them at any moment, and they do so themselves at the [points](super::faults). Two tasks must never believe that they hold one name
//! (S1), fences must grow (S2), a holder that lost its lease must know when it runs again (S4), a free name with waiters must not stay
//! free (L1), and no files may be left behind (L2). `make torture SECONDS=60` runs it for longer. `SEED` repeats a run, as far as the
//! scheduler allows. `TORTURE_WITHOUT=ReplacedMeanwhile` leaves a check out, and must fail.

mod commands;
mod needed_checks;
mod points;
mod scratch;
pub(super) mod test_process;
mod worker;

pub(super) use self::scratch::{Scratch, names_of_one_stripe};

use std::collections::{BTreeMap, BTreeSet};
use std::process::Child;
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Signal, kill_process};
use tenure_testkit::dice::Dice;
use tenure_testkit::oracle::{Baseline, History, Nanos, Recorder, Report, Told, now};

use super::faults::{Action, Point};
use crate::Domain;

const PROCESSES: u64 = 8;
/// How many processes the test stops at the same time, at most.
const STOPPED: usize = 2;
const TTL: Duration = Duration::from_millis(300);
/// A stopped waiter that gets the name keeps it from the others for a ttl. There are rarely more in a row than the test stops.
const IDLE: Duration = Duration::from_secs(4);
/// From the moment at which a stopped holder runs again; with time for a busy machine.
const TOLD: Duration = Duration::from_secs(2);
const MS: Nanos = 1_000_000;
/// How much longer it runs if a point has had no fault yet.
const PATIENCE: Nanos = 8_000 * MS;

struct Worker {
    me: String,
    process: Child,
    /// When a stopped process continues.
    resumes: Option<Nanos>,
}

struct Torture {
    scratch: Scratch,
    seed: u64,
    until: Nanos,
    is_over: bool,
    log: Recorder,
    dice: Dice,
    workers: Vec<Worker>,
    spawned: usize,
    stops: u64,
    kills: u64,
}

impl Torture {
    fn spawn(&mut self) {
        let me = self.scratch.next_name();
        let seed = self.dice.roll(1 << 40) | 1;
        // Each process has one point with a certain fault, so that no point depends on chance only.
        let point = Point::ALL[self.spawned % Point::ALL.len()];
        let action = if self.dice.roll(2) == 0 { Action::Stop } else { Action::Kill };
        let passings = if point.is_of_a_replacement() { 1 } else { 1 + self.dice.roll(100) };
        self.spawned += 1;
        let mut plan = format!("seed={seed},at={point:?}:{action:?}:{passings}");
        if let Ok(check) = std::env::var("TORTURE_WITHOUT") {
            plan += &format!(",without={check}");
        }
        let process = worker::spawn(&self.scratch, &me, &plan, seed);
        self.workers.push(Worker { me, process, resumes: None });
    }

    /// Stops or kills a process.
    fn strike(&mut self) {
        let running: Vec<usize> =
            (0..self.workers.len()).filter(|&index| self.workers[index].resumes.is_none()).collect();
        let stopped = self.workers.len() - running.len();
        let Some(&index) = running.get(self.dice.roll(running.len().max(1) as u64) as usize) else { return };
        let worker = &self.workers[index];
        let pid = Pid::from_child(&worker.process);
        if self.dice.roll(2) == 0 {
            self.log.killed(&worker.me);
            kill_process(pid, Signal::KILL).expect("a child");
            self.kills += 1;
        } else if stopped < STOPPED {
            self.log.fault("stop", Some(&worker.me), None);
            kill_process(pid, Signal::STOP).expect("a child");
            self.stops += 1;
        }
    }

    /// Continues the processes that were stopped for long enough, and replaces the dead ones.
    fn tend(&mut self) {
        let ttl = TTL.as_nanos() as u64;
        let mut dead = 0;
        self.workers.retain_mut(|worker| {
            if let Some(status) = worker.process.try_wait().expect("a child") {
                use std::os::unix::process::ExitStatusExt;
                let is_killed = status.signal() == Some(Signal::KILL.as_raw());
                assert!(is_killed || status.success(), "{} failed: {status}", worker.me);
                dead += u64::from(is_killed);
                return false;
            }
            match worker.resumes {
                Some(at) if at <= now() => {
                    worker.resumes = None;
                    kill_process(Pid::from_child(&worker.process), Signal::CONT).expect("a child");
                    self.log.healed("stop", Some(&worker.me), None);
                }
                None if test_process::is_stopped(worker.process.id()) => {
                    // For half a ttl to three ttls, or just until the others replace its stripe.
                    let rest = match self.dice.roll(2) {
                        0 => ttl / 2 + self.dice.roll(5 * ttl / 2),
                        _ => 60 * MS + self.dice.roll(100 * MS),
                    };
                    worker.resumes = Some(now() + if self.is_over { 0 } else { rest });
                }
                _ => {}
            }
            true
        });
        if !self.is_over {
            (0..dead).for_each(|_| self.spawn());
        }
    }

    fn run(&mut self) {
        (0..PROCESSES).for_each(|_| self.spawn());
        let mut next = now();
        let give_up = self.until + PATIENCE + 30_000 * MS;
        while !self.workers.is_empty() {
            self.tend();
            if !self.is_over && now() > self.until && (self.was_everywhere() || now() > self.until + PATIENCE)
            {
                self.is_over = true;
                std::fs::write(self.scratch.path().join(worker::END), "").expect("a file");
            }
            if now() > next && !self.is_over {
                self.strike();
                next = now() + (50 + self.dice.roll(250)) * MS;
            }
            assert!(now() < give_up, "{} processes hang", self.workers.len());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether every point has had a fault.
    fn was_everywhere(&self) -> bool {
        let points = self.points();
        let is_hit = |point: &Point| {
            ["stopped", "killed"].iter().any(|what| points.contains_key(&format!("{point:?} {what}")))
        };
        Point::ALL.iter().all(is_hit)
    }

    /// How many faults of each kind every point has had.
    fn points(&self) -> BTreeMap<String, u64> {
        let mut points = BTreeMap::new();
        for entry in std::fs::read_dir(self.scratch.logs()).expect("logs") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|extension| extension == "points") {
                for line in std::fs::read_to_string(path).expect("a log").lines() {
                    *points.entry(line.to_owned()).or_default() += 1;
                }
            }
        }
        points
    }
}

impl Drop for Torture {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.process.kill();
            let _ = worker.process.wait();
        }
    }
}

// B1, B7, R1.3
#[test]
fn stopped_and_killed_processes_break_no_promise() {
    let var = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seconds = var("TORTURE_SECONDS").unwrap_or(5);
    let seed = var("SEED").unwrap_or_else(|| {
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        u64::from(time.expect("a clock").subsec_nanos())
    });
    println!("SEED={seed}");
    let scratch = Scratch::new();
    let log = Recorder::in_dir(scratch.logs(), "torture").expect("a log");
    let before = Baseline::new().with("held", 0).with("waiting", 0).with("files", 0);
    let (until, dice) = (now() + seconds * 1_000 * MS, Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1));
    let mut torture = Torture {
        scratch,
        seed,
        until,
        is_over: false,
        log,
        dice,
        workers: Vec::new(),
        spawned: 0,
        stops: 0,
        kills: 0,
    };
    // This makes the stripes, so that every later file replaces one.
    assert_eq!(left_behind(&torture.scratch), before);
    torture.run();

    let after = left_behind(&torture.scratch);
    let points = torture.points();
    let count = |point: Point, what: &str| points.get(&format!("{point:?} {what}")).copied().unwrap_or(0);
    let history = History::read_dir(torture.scratch.logs()).expect("logs");
    let report = Report::of(&history).idle_at_most(IDLE).baseline(&before, &after);
    // A short run may not stop any holder.
    let is_asked =
        || told(Report::of(&history)).verdicts().last().is_some_and(|told| told.nothing_checked.is_none());
    let report = if seconds > 20 || is_asked() { told(report) } else { report };
    println!("SEED={} for {seconds} s: {report}", torture.seed);
    println!("{} stops and {} kills by the test", torture.stops, torture.kills);
    let replacements: u64 =
        ["passed", "stopped", "killed"].iter().map(|what| count(Point::Replaced, what)).sum();
    println!("{replacements} stripes replaced");
    for point in Point::ALL {
        println!("at {point:?}: {} stops, {} kills", count(point, "stopped"), count(point, "killed"));
    }
    report.assert_clean();
    // A short run on a busy machine may replace too few stripes for that; `points.rs` tests each point.
    for point in Point::ALL.into_iter().filter(|_| seconds > 20) {
        assert!(count(point, "stopped") + count(point, "killed") > 0, "no fault at {point:?}");
    }
}

/// S4, for holders that were stopped.
fn told(report: Report<'_>) -> Report<'_> {
    report.told("stop", Told::AfterHeal(TOLD))
}

/// The leases, waiters and files that are left after another client has opened the directory, without its own files and one file for each stripe.
fn left_behind(scratch: &Scratch) -> Baseline {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let domain = Domain::open(&scratch.url()).await.expect("an intact directory");
        let (mut held, mut waiting) = (0, 0);
        for name in worker::names() {
            drop(domain.lock(&name).acquire().await.expect("an intact stripe"));
            let status = domain.inspect(&name).await.expect("an intact stripe");
            held += u64::from(status.is_held());
            waiting += status.waiters.len() as u64;
        }
        assert_eq!(domain.list("").await.expect("intact stripes"), []);
        // Its session and its pipe.
        let more = |files: &BTreeSet<String>| {
            let stripes = files.iter().filter_map(|name| name.strip_prefix("stripe-")?.split_once('.'));
            files.len() - stripes.map(|(index, _)| index).collect::<BTreeSet<&str>>().len() - 2
        };
        let files = scratch.files_once(|files| more(files) == 0);
        Baseline::new().with("held", held).with("waiting", waiting).with("files", more(&files) as u64)
    })
}
