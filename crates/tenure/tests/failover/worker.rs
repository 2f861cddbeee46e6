//! A process that works: a few tasks that take names, for short and for long, and write to what the names protect.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tenure::Domain;
use tenure_testkit::dice::Dice;
use tenure_testkit::oracle::{FencedFile, Recorder};

pub(crate) const NAMES: [&str; 3] = ["orders", "tickets", "seats"];
const TASKS: u64 = 3;
/// More than it takes to finish, also without servers: whoever takes longer hangs.
const LONGEST_END: Duration = Duration::from_secs(30);

/// One of the processes.
pub(crate) struct Worker {
    pub(crate) child: Child,
    pub(crate) id: String,
}

impl Worker {
    pub(crate) fn start(url: &str, dir: &Path, number: u64, seed: u64) -> Self {
        let id = format!("p{number}");
        let child = Command::new(std::env::current_exe().expect("a test binary"))
            .args(["--exact", "worker::a_process_that_works", "--ignored", "--nocapture"])
            .env("TENURE_CELL_URL", url)
            .env("TENURE_CELL_DIR", dir)
            .env("TENURE_CELL_ID", &id)
            .env("TENURE_CELL_SEED", (seed ^ (number + 1)).to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("a process");
        Worker { child, id }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What a process does until whoever started it says that it is enough.
#[test]
#[ignore = "run by other tests, as a process of theirs"]
fn a_process_that_works() {
    let var = |name: &str| std::env::var(format!("TENURE_CELL_{name}"));
    // Whoever runs everything that is ignored does not mean this.
    let Ok(url) = var("URL") else { return };
    let var = |name: &str| var(name).expect("to be run by another test");
    let is_enough = Arc::new(AtomicBool::new(false));
    let tells = Arc::clone(&is_enough);
    std::thread::spawn(move || {
        drop(std::io::Read::read_to_end(&mut std::io::stdin(), &mut Vec::new()));
        tells.store(true, Ordering::SeqCst);
        std::thread::sleep(LONGEST_END);
        std::process::exit(3);
    });
    let (dir, seed) = (PathBuf::from(var("DIR")), var("SEED").parse::<u64>().expect("a number"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let domain = Domain::lazy(url).expect("a valid URL");
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let log =
                    Recorder::in_dir(dir.join("logs"), &format!("{}/t{task}", var("ID"))).expect("a log");
                let resources = NAMES.map(|name| FencedFile::open(dir.join(name), name).expect("a resource"));
                // Far apart: neighbours begin alike.
                let mut dice =
                    Dice((seed.wrapping_mul(TASKS) + task).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
                let (domain, is_enough) = (domain.clone(), Arc::clone(&is_enough));
                tokio::spawn(async move {
                    while !is_enough.load(Ordering::SeqCst) {
                        let which = usize::try_from(dice.roll(NAMES.len() as u64)).expect("a small number");
                        work(&domain, &log, &mut dice, NAMES[which], &resources[which]).await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
        domain.close().await;
    });
}

async fn work(domain: &Domain, log: &Recorder, dice: &mut Dice, name: &str, resource: &FencedFile) {
    log.requested(name);
    let patience = Duration::from_millis(200 + dice.roll(2_000));
    let guard = match domain.lock(name).try_acquire_for(patience).await {
        Ok(attempt) => attempt.ok(),
        Err(error) => {
            // A Sentinel may be told of a service only now.
            let is_unknown = error.to_string().contains("does not know this service");
            assert!(error.is_transient() || is_unknown, "{error}");
            tokio::time::sleep(Duration::from_millis(10)).await;
            None
        }
    };
    let Some(guard) = guard else { return log.gave_up(name) };
    let fence = guard.fence().get();
    log.granted(name, fence, || guard.remaining());
    let _ = resource.write(fence, log).expect("a resource");
    let hold = if dice.roll(30) == 0 { 1_000 + dice.roll(3_000) } else { 1 + dice.roll(60) };
    let over = Instant::now() + Duration::from_millis(hold);
    while Instant::now() < over {
        tokio::select! {
            _ = guard.lost() => {
                log.lost(name, fence);
                return;
            }
            () = tokio::time::sleep(Duration::from_millis(hold.min(50))) => {}
        }
        log.renewed(name, fence, || guard.remaining());
    }
    let _ = resource.write(fence, log).expect("a resource");
    log.released(name, fence);
    match dice.roll(2) {
        0 => drop(guard),
        _ => drop(guard.release().await),
    }
}
