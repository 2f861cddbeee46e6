//! Processes that are stopped and killed while they use one directory, judged by the oracle.
//!
//! Eight processes with four tasks each want three names, of which two are on one stripe. They are stopped for up to three ttls and
//! killed, by the torturer at any moment and by themselves at the [points](super::faults): no two may believe at once (S1), fences
//! must grow (S2), a holder that lost must know when it runs again (S4), a free name must not stay free (L1), and nothing may be
//! left behind (L2). `make torture SECONDS=60` runs it for longer; `SEED` runs a run again, as far as the scheduler lets it;
//! `TORTURE_WITHOUT=StolenMeanwhile` leaves a check out, and must fail.

mod obey;
mod points;
pub(super) mod puppet;
mod scratch;
mod teeth;
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
/// How many are stopped by the torturer at once, at most.
const STOPPED: usize = 2;
const TTL: Duration = Duration::from_millis(300);
/// A stopped waiter that is granted the name keeps it from the others for a ttl; rarely are there more in a row than the torturer stops.
const IDLE: Duration = Duration::from_secs(4);
/// From the moment that a stopped holder runs again; a busy machine is given time.
const TOLD: Duration = Duration::from_secs(2);
const MS: Nanos = 1_000_000;
/// How much longer it goes on when nothing has happened yet at some point.
const PATIENCE: Nanos = 8_000 * MS;

struct Worker {
    me: String,
    process: Child,
    /// When it is continued, if it is stopped.
    resumes: Option<Nanos>,
}

struct Torturer {
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

impl Torturer {
    fn spawn(&mut self) {
        let me = self.scratch.next_name();
        let seed = self.dice.roll(1 << 40) | 1;
        // Each has one point at which something happens for certain if it comes there, so that none is left to chance alone.
        let point = Point::ALL[self.spawned % Point::ALL.len()];
        let action = if self.dice.roll(2) == 0 { Action::Stop } else { Action::Kill };
        let passings = if point.is_of_a_steal() { 1 } else { 1 + self.dice.roll(100) };
        self.spawned += 1;
        let mut plan = format!("seed={seed},at={point:?}:{action:?}:{passings}");
        if let Ok(check) = std::env::var("TORTURE_WITHOUT") {
            plan += &format!(",without={check}");
        }
        let process = worker::spawn(&self.scratch, &me, &plan, seed);
        self.workers.push(Worker { me, process, resumes: None });
    }

    /// Stops or kills somebody.
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

    /// Continues whoever has been stopped for long enough, and replaces the dead.
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
                None if puppet::is_stopped(worker.process.id()) => {
                    // Half a ttl to three, or just long enough for the others to lose their patience.
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

    /// Whether something has happened at every point.
    fn was_everywhere(&self) -> bool {
        let points = self.points();
        let is_hit = |point: &Point| {
            ["stopped", "killed"].iter().any(|what| points.contains_key(&format!("{point:?} {what}")))
        };
        Point::ALL.iter().all(is_hit)
    }

    /// How often something happened at each point, by what it was.
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

impl Drop for Torturer {
    fn drop(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.process.kill();
            let _ = worker.process.wait();
        }
    }
}

// B1, B7, R1.3
#[test]
fn processes_that_are_stopped_and_killed_break_nothing() {
    let var = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seconds = var("TORTURE_SECONDS").unwrap_or(5);
    let seed = var("SEED").unwrap_or_else(|| {
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        u64::from(time.expect("a clock").subsec_nanos())
    });
    println!("SEED={seed}");
    let scratch = Scratch::new();
    let log = Recorder::in_dir(scratch.logs(), "torturer").expect("a log");
    let before = Baseline::new().with("held", 0).with("waiting", 0).with("files", 0);
    let (until, dice) = (now() + seconds * 1_000 * MS, Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1));
    let mut torturer = Torturer {
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
    // The stripes are there before: what is made from here on is made to take the place of one.
    assert_eq!(left_behind(&torturer.scratch), before);
    torturer.run();

    let after = left_behind(&torturer.scratch);
    let points = torturer.points();
    let count = |point: Point, what: &str| points.get(&format!("{point:?} {what}")).copied().unwrap_or(0);
    let history = History::read_dir(torturer.scratch.logs()).expect("logs");
    let report = Report::of(&history).idle_at_most(IDLE).baseline(&before, &after);
    // A short run may stop no holder at all.
    let is_asked =
        || told(Report::of(&history)).verdicts().last().is_some_and(|told| told.nothing_checked.is_none());
    let report = if seconds > 20 || is_asked() { told(report) } else { report };
    println!("SEED={} for {seconds} s: {report}", torturer.seed);
    println!("{} stops and {} kills by the torturer", torturer.stops, torturer.kills);
    let steals: u64 = ["passed", "stopped", "killed"].iter().map(|what| count(Point::Replaced, what)).sum();
    println!("{steals} stripes stolen");
    for point in Point::ALL {
        println!("at {point:?}: {} stops, {} kills", count(point, "stopped"), count(point, "killed"));
    }
    report.assert_clean();
    // A short run on a busy machine may see too few stripes stolen for that; `points.rs` goes through all of them one by one.
    for point in Point::ALL.into_iter().filter(|_| seconds > 20) {
        assert!(count(point, "stopped") + count(point, "killed") > 0, "nothing happened at {point:?}");
    }
}

/// S4, for those who were stopped while they held.
fn told(report: Report<'_>) -> Report<'_> {
    report.told("stop", Told::AfterHeal(TOLD))
}

/// What is there after one more client has opened the directory, beside its own files and one file for each stripe.
fn left_behind(scratch: &Scratch) -> Baseline {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let domain = Domain::open(&scratch.url()).await.expect("a directory that is whole");
        let (mut held, mut waiting) = (0, 0);
        for name in worker::names() {
            drop(domain.lock(&name).acquire().await.expect("a stripe that is whole"));
            let status = domain.inspect(&name).await.expect("a stripe that is whole");
            held += u64::from(status.is_held());
            waiting += status.waiters.len() as u64;
        }
        assert_eq!(domain.list("").await.expect("stripes that are whole"), []);
        // Its session and its pipe.
        let more = |files: &BTreeSet<String>| {
            let stripes = files.iter().filter_map(|name| name.strip_prefix("stripe-")?.split_once('.'));
            files.len() - stripes.map(|(index, _)| index).collect::<BTreeSet<&str>>().len() - 2
        };
        let files = scratch.files_once(|files| more(files) == 0);
        Baseline::new().with("held", held).with("waiting", waiting).with("files", more(&files) as u64)
    })
}
