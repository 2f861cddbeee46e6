//! One of the processes under torture: four tasks that lock, write, and unlock in all possible ways.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tenure_testkit::dice::Dice;
use tenure_testkit::oracle::{FencedFile, Recorder};
use tokio::time::sleep;

use super::{Scratch, TTL, names_of_one_stripe};
use crate::backend::file::faults;
use crate::{Attempt, Domain, Error, Guard};

const TASKS: u64 = 4;
/// Chances in a million, at each passed point.
const CHANCES: &str = "stop=600,kill=300,replace-stop=150000,replace-kill=100000";

/// The file whose existence ends the work.
pub(super) const END: &str = "end";

/// Two on one stripe, and one on another.
pub(super) fn names() -> [String; 3] {
    let [first, second] = names_of_one_stripe();
    [first, second, "elsewhere".to_owned()]
}

/// Starts a process that works until the end.
pub(super) fn spawn(scratch: &Scratch, me: &str, plan: &str, seed: u64) -> Child {
    let logs = scratch.logs();
    Command::new(std::env::current_exe().expect("a test binary"))
        .args(["--exact", "backend::file::torture::worker::a_worker", "--ignored", "--nocapture"])
        .env("TENURE_WORKER", me)
        .env("TENURE_WORKER_PATH", scratch.path())
        .env("TENURE_WORKER_SEED", seed.to_string())
        .env(faults::VARIABLE, format!("{CHANCES},{plan},log={},me={me}", logs.display()))
        .stdout(Stdio::null())
        .spawn()
        .expect("to start a process")
}

#[test]
#[ignore = "run by the torture test, as one of its processes"]
fn a_worker() {
    let var = |name: &str| std::env::var(format!("TENURE_WORKER{name}")).expect("to be run by another test");
    let number = |name: &str| var(name).parse::<u64>().expect("a number");
    let (me, path, seed) = (var(""), var("_PATH"), number("_SEED"));
    let end = Path::new(&path).join(END);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let domain = Domain::open(format!("file://{path}/store")).await.expect("a directory");
        let resources = names().map(|name| {
            let file = format!("{path}/resource-{}", name.replace('/', "-"));
            FencedFile::open(file, &name).expect("a file")
        });
        let resources = Arc::new(resources);
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let log = Recorder::in_dir(format!("{path}/logs"), &format!("{me}/{task}")).expect("a log");
                let dice = Dice(seed ^ (task + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
                tokio::spawn(work(domain.clone(), log, dice, Arc::clone(&resources), end.clone()))
            })
            .collect();
        for task in tasks {
            task.await.expect("a task that does not panic");
        }
        domain.close().await;
    });
}

async fn work(domain: Domain, log: Recorder, mut dice: Dice, resources: Arc<[FencedFile; 3]>, end: PathBuf) {
    let names = names();
    while !end.exists() {
        // So that a name is sometimes free, and is granted by an acquire and not by a release.
        if dice.roll(4) > 0 {
            sleep(Duration::from_millis(dice.roll(80))).await;
        }
        let which = dice.roll(3) as usize;
        let name = &names[which];
        let lock = domain.lock(name).ttl(TTL);
        log.requested(name);
        let patience = Duration::from_millis(dice.roll(20));
        let guard = match dice.roll(8) {
            0 => answered(lock.try_acquire().await).and_then(Attempt::ok),
            1 => answered(lock.try_acquire_for(patience).await).and_then(Attempt::ok),
            2 => tokio::time::timeout(patience, lock.acquire()).await.ok().and_then(answered),
            _ => answered(lock.acquire().await),
        };
        let Some(guard) = guard else {
            log.gave_up(name);
            continue;
        };
        let fence = guard.fence().get();
        log.granted(name, fence, || guard.remaining());
        hold(&log, &mut dice, &guard, name).await;
        // No lock can keep a stopped holder from writing to an unfenced resource, so all resources are fenced.
        let _ = resources[which].write(fence, &log).expect("a file that can be written");
        if guard.is_held() {
            log.released(name, fence);
        } else {
            log.lost(name, fence);
        }
        match dice.roll(2) {
            0 => drop(guard),
            _ => drop(answered(guard.release().await.map_err(|returned| returned.error))),
        }
    }
}

/// The answer; `None` if the store was unavailable, as for a process that was stopped meanwhile.
fn answered<T>(answer: Result<T, Error>) -> Option<T> {
    if let Err(error) = &answer {
        assert!(error.is_transient(), "{error}");
    }
    answer.ok()
}

/// Mostly 0 to 3 ms; sometimes for longer than a ttl, with renewals.
async fn hold(log: &Recorder, dice: &mut Dice, guard: &Guard, name: &str) {
    if dice.roll(300) > 0 {
        return match dice.roll(4) {
            0 => {}
            time => sleep(Duration::from_millis(time)).await,
        };
    }
    for _ in 0..dice.roll(12) {
        sleep(TTL / 8).await;
        if !guard.is_held() {
            return;
        }
        log.renewed(name, guard.fence().get(), || guard.remaining());
    }
}
