//! One cell of the table of faults: processes that work, somebody who does harm to their servers, and a judgement.

use std::time::{Duration, Instant};

use tenure::Domain;
use tenure_testkit::dice::Dice;
use tenure_testkit::oracle::{Check, Report};
use tenure_testkit::soak::{self, Crew};

use crate::failover::worker;

const PROCESSES: u64 = 8;
pub(crate) const TTL: Duration = Duration::from_secs(2);
/// What is promised is 3 s and the ttl; the rest is for a machine that is busy with other tests.
pub(crate) const BACK_AFTER: Duration = Duration::from_secs(60);
/// The fault in which another server becomes the master.
const FAILOVER: &str = "failover";

/// Lets so many milliseconds pass.
pub(crate) fn pass(dice: &mut Dice, least: u64, spread: u64) {
    std::thread::sleep(Duration::from_millis(least + dice.roll(spread)));
}

/// What harm is done to, and noted down by.
pub(crate) struct Cell {
    what: String,
    crew: Crew,
    pub(crate) dice: Dice,
    end: Instant,
    /// A client that does nothing but look whether locks can be had.
    probe: Domain,
    runtime: tokio::runtime::Runtime,
    back: Vec<Duration>,
    stale: u64,
}

impl Cell {
    /// Starts the processes, each with its URL.
    pub(crate) fn start(what: &str, url: impl Fn(u64) -> String) -> Self {
        let seed = soak::seed(what);
        let end = Instant::now() + soak::length(8);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let mut crew = Crew::new(worker::TEST, seed);
        for number in 0..PROCESSES {
            crew.start(&format!("p{number}"), &url(number));
        }
        Cell {
            what: what.to_owned(),
            crew,
            dice: Dice(seed),
            end,
            probe: Domain::lazy(url(0)).expect("a valid URL"),
            runtime: runtime.expect("a runtime"),
            back: Vec::new(),
            stale: 0,
        }
    }

    /// Whether there is time for more harm.
    pub(crate) fn goes_on(&self) -> bool {
        Instant::now() < self.end
    }

    /// Lets the processes work.
    pub(crate) fn work_for(&mut self, least: u64, spread: u64) {
        pass(&mut self.dice, least, spread);
    }

    /// Returns when locks can be had: on a name of its own, which nobody holds.
    pub(crate) fn wait_for_service(&self) -> Duration {
        let begin = Instant::now();
        self.runtime.block_on(async {
            loop {
                match self.probe.lock("probe").acquire().await {
                    Ok(guard) => {
                        drop(guard.release().await);
                        return begin.elapsed();
                    }
                    Err(error) => {
                        assert!(error.is_transient(), "{error}");
                        assert!(begin.elapsed() < BACK_AFTER, "not back after {BACK_AFTER:?}: {error}");
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                }
            }
        })
    }

    /// Has another server become the master, and notes how long nobody got a lock. `harm` begins it; `heal` returns when it is over, and
    /// says how many requests the old master executed after it was replaced.
    pub(crate) fn failover(&mut self, harm: impl FnOnce(), heal: impl FnOnce(&mut Dice) -> u64) {
        self.crew.log.fault(FAILOVER, None, None);
        harm();
        let mut dice = Dice(self.dice.roll(u64::MAX) | 1);
        let (back, stale) = std::thread::scope(|scope| {
            let back = scope.spawn(|| self.wait_for_service());
            let stale = heal(&mut dice);
            (back.join().expect("no panic"), stale)
        });
        self.back.push(back);
        self.stale += stale;
        self.crew.log.healed(FAILOVER, None, None);
    }

    /// Ends the processes and judges what they wrote down.
    pub(crate) fn judge(mut self, is_exclusive: bool) {
        self.crew.end();
        let history = self.crew.history();
        let report = Report::of(&history);
        let broken = |check| {
            let verdict = report.verdicts().iter().find(|verdict| verdict.check == check);
            verdict.map_or(0, |verdict| verdict.violations.len())
        };
        println!(
            "{}: {} grants, {} failovers, {} violations of S1, {} of S2; locks could be had again after {:.1?}, {} requests to an old master",
            self.what,
            history.grants(),
            self.back.len(),
            broken(Check::S1),
            broken(Check::S2),
            self.back,
            self.stale
        );
        assert!(!self.back.is_empty(), "no failover proves nothing");
        match is_exclusive {
            true => report.assert_clean(),
            false => report.assert_only_s1(),
        }
    }
}
