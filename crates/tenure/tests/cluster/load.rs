//! Load on a cluster while its slots move and its masters die, judged by the oracle.
//!
//! `TENURE_SOAK_SECONDS=60` makes each of them that many seconds long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tenure::Domain;
use tenure_testkit::dice::Dice;
use tenure_testkit::oracle::{FencedMemory, MemoryLog, Recorder, Report};
use tenure_testkit::redis::Cluster;
use tenure_testkit::soak;

use crate::cluster::scene::{BACK_AFTER, next_grant, open_with, patient, slot};

const CLIENTS: u64 = 6;
const TASKS: u64 = 2;
const NAMES: [&str; 3] = ["orders", "tickets", "files"];

/// Clients that take the names until they are told to stop.
struct Load {
    log: MemoryLog,
    is_over: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<u64>>,
}

impl Load {
    async fn start(what: &str, cluster: &Cluster, options: &str) -> Self {
        let seed = soak::seed(what);
        let (log, is_over) = (MemoryLog::new(), Arc::new(AtomicBool::new(false)));
        let resources = Arc::new(NAMES.map(FencedMemory::new));
        let mut tasks = Vec::new();
        for client in 0..CLIENTS {
            let domain = open_with(cluster, options).await;
            for task in 0..TASKS {
                let recorder = log.recorder(&format!("client{client}/task{task}"));
                let dice = Dice(seed ^ (client * TASKS + task + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
                let (domain, resources) = (domain.clone(), Arc::clone(&resources));
                tasks.push(tokio::spawn(work(domain, recorder, dice, resources, Arc::clone(&is_over))));
            }
        }
        Load { log, is_over, tasks }
    }

    /// What it came to; how many requests were refused.
    async fn end(self) -> (MemoryLog, u64) {
        self.is_over.store(true, Ordering::SeqCst);
        let mut refused = 0;
        for task in self.tasks {
            refused += task.await.expect("no panic");
        }
        (self.log, refused)
    }
}

async fn work(
    domain: Domain,
    log: Recorder,
    mut dice: Dice,
    resources: Arc<[FencedMemory; 3]>,
    is_over: Arc<AtomicBool>,
) -> u64 {
    let mut refused = 0;
    while !is_over.load(Ordering::SeqCst) {
        let which = dice.index(NAMES.len());
        let name = NAMES[which];
        log.requested(name);
        let guard = match domain.lock(name).acquire().await {
            Ok(guard) => guard,
            Err(error) => {
                assert!(error.is_transient(), "{error}");
                log.gave_up(name);
                refused += 1;
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            }
        };
        log.granted(name, guard.fence().get(), || guard.remaining());
        let _ = resources[which].write(guard.fence().get(), &log);
        let hold = match dice.roll(200) {
            0..2 => Duration::from_millis(1_000 + dice.roll(1_500)),
            2..50 => Duration::from_millis(dice.roll(50)),
            _ => Duration::ZERO,
        };
        let lost = tokio::time::timeout(hold, guard.lost()).await.is_ok() || !guard.is_held();
        if lost {
            log.lost(name, guard.fence().get());
            continue;
        }
        log.renewed(name, guard.fence().get(), || guard.remaining());
        log.released(name, guard.fence().get());
        drop(guard.release().await);
    }
    refused
}

// R3.8, B1, B7: fault 11, slots move under load. Nothing is lost with them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_move_under_load() {
    let cluster = Arc::new(patient());
    let load = Load::start("slots move", &cluster, "").await;
    let torturer = load.log.recorder("torturer");
    let moves = {
        let cluster = Arc::clone(&cluster);
        tokio::task::spawn_blocking(move || {
            let (begin, mut moves) = (Instant::now(), 0_usize);
            while begin.elapsed() < soak::length(5) {
                let name = NAMES[moves % 3];
                let slot = slot(&cluster, name);
                let to = cluster.another_than(slot);
                torturer.fault("move", None, Some(name));
                cluster.open_slot(slot, to);
                // Now at once, now in two steps.
                if moves % 2 == 0 {
                    std::thread::sleep(Duration::from_millis(50));
                }
                // Keys may come after the first look.
                while cluster.move_keys(slot, to) > 0 {}
                cluster.close_slot(slot, to);
                torturer.healed("move", None, Some(name));
                moves += 1;
                std::thread::sleep(Duration::from_millis(50));
            }
            moves
        })
        .await
        .expect("no panic")
    };
    let (log, refused) = load.end().await;
    let history = log.history();
    let report = Report::of(&history);
    println!("{moves} moves, {refused} refused\n{report}");
    report.assert_clean();
}

// B1, B7: fault 11, masters are killed under load, and come back as replicas. Their last grants may be lost with them; fences never go back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn masters_die_under_load() {
    let log = masters_die("").await;
    let history = log.history();
    let report = Report::of(&history);
    println!("{report}");
    report.assert_only_s1();
}

// B1, B7: what every replica knows is not lost either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn masters_die_under_load_and_their_replicas_know() {
    let log = masters_die("&replicas=all").await;
    let history = log.history();
    let report = Report::of(&history);
    println!("replicas=all: {report}");
    report.assert_clean();
}

async fn masters_die(options: &str) -> MemoryLog {
    let cluster = Arc::new(Cluster::start());
    let load = Load::start(&format!("masters die{options}"), &cluster, options).await;
    let torturer = load.log.recorder("torturer");
    let (kills, slowest) = {
        let cluster = Arc::clone(&cluster);
        tokio::task::spawn_blocking(move || kill(&cluster, &torturer)).await.expect("no panic")
    };
    // Service is back.
    let domain = open_with(&cluster, options).await;
    for name in NAMES {
        drop(tokio::time::timeout(BACK_AFTER, next_grant(&domain, name)).await.expect("a grant"));
    }
    let (log, refused) = load.end().await;
    println!("{kills} kills, replaced within {slowest:?}, {refused} refused");
    log
}

/// Kills one master after the other; how many, and how long it took at the most until each was replaced.
fn kill(cluster: &Cluster, torturer: &Recorder) -> (usize, Duration) {
    let (begin, mut kills, mut slowest) = (Instant::now(), 0_usize, Duration::ZERO);
    while kills == 0 || begin.elapsed() < soak::length(5) {
        let slot = slot(cluster, NAMES[kills % 3]);
        let master = cluster.master_of(slot);
        torturer.fault("kill", None, None);
        let killed = Instant::now();
        master.kill();
        cluster.wait_for_another_than(slot, master.port());
        cluster.wait_until_up();
        slowest = slowest.max(killed.elapsed());
        torturer.healed("kill", None, None);
        master.restart();
        cluster.wait_until_replicated(slot);
        std::thread::sleep(Duration::from_millis(500));
        kills += 1;
    }
    (kills, slowest)
}
