//! The memory domain under load, judged by the oracle.
//!
//! Eight clients of one store with four tasks each want three names, hold them for a while, give up, are cancelled, and hand leases on
//! by ticket. Every task writes down what it believes; afterwards the oracle looks for two that believed at once (S1), fences that
//! did not grow (S2), updates that were lost (S3), a name that nobody had while somebody waited (L1), and anything left behind (L2).

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure::{Domain, Guard};
use tenure_testkit::dice::Dice;
use tenure_testkit::oracle::{Baseline, Counter, FencedMemory, MemoryLog, Recorder, Report};
use tenure_testkit::soak;
use tokio::time::sleep;

const CLIENTS: u64 = 8;
const TASKS: u64 = 4;
const TURNS: u64 = 60;
const NAMES: [&str; 3] = ["orders", "tickets", "files"];
const STORE: &str = "memory:under-the-oracle?ttl=2s";
const TTL: Duration = Duration::from_secs(2);

/// What a lock protects.
struct Protected {
    resources: Vec<FencedMemory>,
    counters: Vec<Counter>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_memory_domain_is_sound() {
    let seed = soak::seed("the memory domain");
    let log = MemoryLog::new();
    let protected = Arc::new(Protected {
        resources: NAMES.map(FencedMemory::new).into(),
        counters: NAMES.map(Counter::in_memory).into(),
    });
    let onlooker = Domain::open(STORE).await.unwrap();
    let mut domains = Vec::new();
    for _ in 0..CLIENTS {
        domains.push(Domain::open(STORE).await.unwrap());
    }
    let before = left_in(&domains, &onlooker).await;

    let mut tasks = Vec::new();
    for (client, domain) in (0..).zip(&domains) {
        for task in 0..TASKS {
            let recorder = log.recorder(&format!("client{client}/task{task}"));
            let dice = Dice(seed ^ (client * TASKS + task + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            tasks.push(tokio::spawn(work(domain.clone(), recorder, dice, Arc::clone(&protected))));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }

    let torturer = log.recorder("torturer");
    for counter in &protected.counters {
        counter.record_final(&torturer).unwrap();
    }
    let after = left_in(&domains, &onlooker).await;
    let history = log.history();
    let report = Report::of(&history).updates().idle_at_most(TTL).baseline(&before, &after);
    println!("{report}");
    report.assert_clean();
}

/// What one task does all day.
async fn work(domain: Domain, log: Recorder, mut dice: Dice, protected: Arc<Protected>) {
    for _ in 0..TURNS {
        let which = dice.index(NAMES.len());
        let name = NAMES[which];
        let lock = domain.lock(name).label(format!("label{}", dice.roll(2)));
        log.requested(name);
        let guard = match dice.roll(8) {
            0 => lock.try_acquire().await.unwrap().ok(),
            1 => lock.try_acquire_for(Duration::from_millis(dice.roll(20))).await.unwrap().ok(),
            2 => {
                let patience = Duration::from_millis(dice.roll(20));
                tokio::time::timeout(patience, lock.acquire()).await.ok().map(Result::unwrap)
            }
            _ => Some(lock.acquire().await.unwrap()),
        };
        let Some(guard) = guard else {
            log.gave_up(name);
            continue;
        };
        let guard = hold(&domain, &log, &mut dice, &protected, which, guard).await;
        log.released(name, guard.fence().get());
        match dice.roll(2) {
            0 => drop(guard),
            _ => drop(guard.release().await.unwrap()),
        }
    }
}

/// Reads, takes its time, writes; sometimes hands the lease on to itself by a ticket, which is a new grant.
async fn hold(
    domain: &Domain,
    log: &Recorder,
    dice: &mut Dice,
    protected: &Protected,
    which: usize,
    mut guard: Guard,
) -> Guard {
    let name = NAMES[which];
    log.granted(name, guard.fence().get(), || guard.remaining());
    if dice.roll(10) == 0 {
        log.released(name, guard.fence().get());
        let ticket = guard.detach().await.unwrap();
        log.requested(name);
        guard = ticket.adopt(domain).await.unwrap();
        log.granted(name, guard.fence().get(), || guard.remaining());
    }
    let reading = protected.counters[which].read(log).unwrap();
    match dice.roll(3) {
        0 => tokio::task::yield_now().await,
        1 => sleep(Duration::from_millis(dice.roll(4))).await,
        _ => {}
    }
    let _ = protected.resources[which].write(guard.fence().get(), log);
    assert!(guard.is_held(), "nothing takes it away, and a ttl is long");
    reading.write_next().unwrap();
    guard
}

/// What the clients have, and what the store knows when all that they left to the background is done.
async fn left_in(domains: &[Domain], onlooker: &Domain) -> Baseline {
    let metrics = domains.iter().map(Domain::metrics);
    let (held, waiting) =
        metrics.fold((0, 0), |sum, metrics| (sum.0 + metrics.held, sum.1 + metrics.waiting));
    let mut names = onlooker.list("").await.unwrap();
    let give_up = Instant::now() + TTL;
    while !names.is_empty() && Instant::now() < give_up {
        tokio::task::yield_now().await;
        names = onlooker.list("").await.unwrap();
    }
    Baseline::new().with("leases", held).with("waiters", waiting).with("names", names.len() as u64)
}
