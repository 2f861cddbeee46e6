//! Many leases at once: what keeping them costs.

use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tenure::{Domain, Guard, Lock};
use tenure_testkit::redis::RedisServer;

use crate::report::Report;
use crate::{tasks, worker};

const LEASES: usize = 100_000;
/// Acquired side by side.
const SIDE_BY_SIDE: usize = 500;
const TTL: Duration = Duration::from_secs(30);
const STEADY: Duration = Duration::from_secs(60);

/// A process of its own, so that its memory and its time are those of the leases.
pub(crate) fn held_100k(scenario: &str, report: &mut Report) {
    let server = RedisServer::start();
    let mut command: Command = worker::command("held", &server.url(), 0, Duration::ZERO);
    let output =
        command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().expect("a process can be started");
    assert!(output.status.success(), "the holder failed: {}", output.status);
    let text = String::from_utf8(output.stdout).expect("lines of text");
    for (metric, value) in text.lines().filter_map(|line| line.split_once(' ')) {
        report.add(scenario, "tenure", metric, &[value.parse().expect("a number")]);
    }
}

/// The process.
pub(crate) fn work(url: &str) {
    let runtime = tasks::runtime();
    runtime.block_on(async {
        let domain = Domain::open(url).await.expect("the domain opens");
        // What the first ones need stays there for all.
        drop(acquire(&domain, "first", SIDE_BY_SIDE * 2).await);
        let before = resident_bytes();
        let guards = acquire(&domain, "bench", LEASES).await;
        let cpu = cpu_seconds();
        tokio::time::sleep(STEADY).await;
        let cpu = cpu_seconds() - cpu;
        let losses = guards.iter().filter(|guard| !guard.is_held()).count();
        println!("client_cpu_percent {}", 100.0 * cpu / STEADY.as_secs_f64());
        println!("bytes_per_lease {}", (resident_bytes() - before) / LEASES as f64);
        println!("losses {losses}");
        // Nobody is left to use the server: giving them back would only take time.
        std::process::exit(0);
    });
}

async fn acquire(domain: &Domain, prefix: &'static str, leases: usize) -> Vec<Guard> {
    let each = leases / SIDE_BY_SIDE;
    let tasks: Vec<_> = (0..SIDE_BY_SIDE)
        .map(|task| {
            let domain = domain.clone();
            tokio::spawn(async move {
                let mut guards = Vec::with_capacity(each);
                for number in task * each..(task + 1) * each {
                    let lock = domain.lock(format!("{prefix}-{number}")).ttl(TTL);
                    guards.push(acquire_at_last(&lock).await);
                }
                guards
            })
        })
        .collect();
    let mut guards = Vec::with_capacity(leases);
    for task in tasks {
        guards.extend(task.await.expect("the task ends"));
    }
    guards
}

/// On a busy machine some requests of so many are answered too late; what is measured begins after them.
pub(crate) async fn acquire_at_last(lock: &Lock) -> Guard {
    loop {
        match lock.acquire().await {
            Ok(guard) => return guard,
            Err(error) if error.is_transient() => {}
            Err(error) => panic!("the store does not answer: {error}"),
        }
    }
}

/// The processor time of this process.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The memory that this process has, as the kernel counts it.
fn resident_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a process has memory");
    let kib: f64 = line.trim().trim_end_matches(" kB").trim().parse().expect("a number of kB");
    kib * 1024.0
}
