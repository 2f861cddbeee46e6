//! What a worker does: its tasks take names, hold them for a while and give them back, and each step is written down as the oracle wants
//! it.

use super::logs;
use super::orders::Orders;
use crate::dice::Dice;
use crate::oracle::Recorder;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tenure::{Domain, Error, Guard};

/// So many tasks, on one thread and with one domain, until it is enough; one that then takes longer than `longest_end` hangs, and the
/// process fails. In a process that is no worker nothing happens: whoever runs all tests that are ignored does not mean this.
///
/// # Panics
/// When a task does.
pub fn work<F>(tasks: u64, longest_end: Duration, turns: impl Fn(Task) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let Some(Orders { url, dir, id, seed }) = Orders::received() else { return };
    let is_enough = listen(longest_end);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let domain = Domain::lazy(url).expect("a valid URL");
        let task = |number: u64| Task {
            domain: domain.clone(),
            log: Recorder::in_dir(logs(&dir), &format!("{id}/t{number}")).expect("a log"),
            // Far apart: neighbours begin alike.
            dice: Dice((seed.wrapping_mul(tasks) + number).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            dir: dir.clone(),
            is_enough: Arc::clone(&is_enough),
        };
        let running: Vec<_> = (0..tasks).map(|number| tokio::spawn(turns(task(number)))).collect();
        for task in running {
            task.await.expect("no panic");
        }
        domain.close().await;
    });
}

/// Whether it is enough: when standard input is closed.
fn listen(longest_end: Duration) -> Arc<AtomicBool> {
    let is_enough = Arc::new(AtomicBool::new(false));
    let tells = Arc::clone(&is_enough);
    std::thread::spawn(move || {
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        tells.store(true, Ordering::SeqCst);
        std::thread::sleep(longest_end);
        std::process::exit(3);
    });
    is_enough
}

/// One task of a worker.
#[derive(Debug)]
pub struct Task {
    /// Whose names it takes.
    pub domain: Domain,
    /// What it believes.
    pub log: Recorder,
    /// Its chance.
    pub dice: Dice,
    /// What the names protect is here.
    pub dir: PathBuf,
    is_enough: Arc<AtomicBool>,
}

impl Task {
    /// What the next turn is about, as chance has it; `None` when it is enough.
    pub fn next_of<'r, R>(&mut self, resources: &'r [R]) -> Option<&'r R> {
        let goes_on = !self.is_enough.load(Ordering::SeqCst);
        goes_on.then(|| &resources[self.dice.index(resources.len())])
    }

    /// Takes the name, if it is free in time.
    ///
    /// # Panics
    /// When that fails with an error that may not be.
    pub async fn take(
        &self,
        name: &str,
        patience: Duration,
        may_be: impl Fn(&Error) -> bool,
    ) -> Option<Guard> {
        self.log.requested(name);
        let guard = match self.domain.lock(name).try_acquire_for(patience).await {
            Ok(attempt) => attempt.ok(),
            Err(error) => {
                assert!(may_be(&error), "{error}");
                tokio::time::sleep(Duration::from_millis(10)).await;
                None
            }
        };
        match &guard {
            Some(guard) => self.log.granted(name, guard.fence().get(), || guard.remaining()),
            None => self.log.gave_up(name),
        }
        guard
    }

    /// Holds what it took for so long, or until it is lost: then false.
    pub async fn hold(&self, guard: &Guard, length: Duration) -> bool {
        let (name, fence) = (guard.name(), guard.fence().get());
        let over = Instant::now() + length;
        while Instant::now() < over {
            tokio::select! {
                _ = guard.lost() => {
                    self.log.lost(name, fence);
                    return false;
                }
                () = tokio::time::sleep(length.min(Duration::from_millis(50))) => {}
            }
            self.log.renewed(name, fence, || guard.remaining());
        }
        true
    }

    /// Gives it back, in one way or the other.
    pub async fn give_back(&mut self, guard: Guard) {
        self.log.released(guard.name(), guard.fence().get());
        match self.dice.roll(2) {
            0 => drop(guard),
            _ => drop(guard.release().await),
        }
    }
}
