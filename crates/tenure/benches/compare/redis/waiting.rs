//! Many clients that wait for one name: what they cost the server while nothing happens, and how the hand-over fares among them.
//!
//! One process stands for all of them: it opens as many domains, and each is a whole client, with a session, a connection for commands
//! and one for grants. So the server can't tell them from as many processes. A client needs two descriptors, here and at the server; where
//! the limit allows fewer clients than a scenario asks for, it measures as many as there can be, and reports how many.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use tenure::Domain;
use tenure_testkit::redis::RedisServer;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::held::acquire_at_last;
use crate::report::{Report, percentile};
use crate::{tasks, worker};

const NAME: &str = "bench";
const QUEUE: &str = "{tenure:bench}:queue";
const BEATS: &str = "{tenure:bench}:beats";
/// Descriptors that are not for clients.
const OTHERS: u64 = 150;
/// Opened side by side.
const SIDE_BY_SIDE: usize = 50;
/// Two of the longest pauses: from then on everyone asks as often as it will.
const SETTLING: Duration = Duration::from_secs(24);
const STEADY: Duration = Duration::from_secs(12);
const ROUNDS: usize = 3;

/// What waiting clients cost the server, while one holds the name all the time; beside the same server without them.
pub(crate) fn cost(scenario: &str, report: &mut Report, clients: usize) {
    let clients = clients.min(most_clients());
    let (server, runtime) = (server(), tasks::runtime());
    let domain = runtime.block_on(Domain::open(server.url())).expect("the domain opens");
    let guard = runtime.block_on(domain.lock(NAME).acquire()).expect("the store answers");
    let mut load = |contender| {
        let rounds: Vec<_> = (0..ROUNDS).map(|_| Load::over(&server)).collect();
        let mut add = |metric, of: fn(&Load) -> f64| {
            report.add(scenario, contender, metric, &rounds.iter().map(of).collect::<Vec<_>>());
        };
        add("server_cpu_percent", |load| load.cpu_percent);
        add("commands_per_s", |load| load.commands_per_s);
    };
    load("nobody-waits");
    let waiters = Waiters::start(&server, clients);
    std::thread::sleep(SETTLING);
    load("tenure");
    drop(waiters);
    assert!(guard.is_held(), "all that time");
    report.add(scenario, "tenure", "clients", &[clients as f64]);
}

/// What the server did in one round.
struct Load {
    cpu_percent: f64,
    commands_per_s: f64,
}

impl Load {
    fn over(server: &RedisServer) -> Self {
        let now =
            || (Instant::now(), info(server, "cpu", "used_cpu_"), info(server, "stats", "total_commands"));
        let (began, cpu, commands) = now();
        std::thread::sleep(STEADY);
        let (ended, cpu_then, commands_then) = now();
        let seconds = (ended - began).as_secs_f64();
        Load {
            cpu_percent: 100.0 * (cpu_then - cpu) / seconds,
            commands_per_s: (commands_then - commands) / seconds,
        }
    }
}

/// The sum of the fields of a section whose names begin like that. Those of the main thread are part of those of the server.
fn info(server: &RedisServer, section: &str, prefix: &str) -> f64 {
    let text = server.command(&["INFO", section]).text();
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    let wanted = fields.filter(|(name, _)| {
        name.starts_with(prefix) && !name.contains("children") && !name.contains("thread")
    });
    wanted.map(|(_, value)| value.trim().parse::<f64>().expect("a number")).sum()
}

/// The process that waits as so many clients.
struct Waiters(Child);

impl Waiters {
    fn start(server: &RedisServer, clients: usize) -> Self {
        let mut command = worker::command("waiters", &server.url(), clients, Duration::ZERO);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut waiters = Waiters(child.expect("a process can be started"));
        let stdout = waiters.0.stdout.as_mut().expect("it is piped");
        BufReader::new(stdout).read_line(&mut String::new()).expect("all clients are open");
        await_queue(server, clients);
        // They can be notified, and don't poll any more.
        let poll = |beat: &tenure_testkit::redis::Reply| beat.text().ends_with(" 1");
        while server.command(&["HVALS", BEATS]).items().iter().any(poll) {
            std::thread::sleep(Duration::from_secs(1));
        }
        waiters
    }
}

impl Drop for Waiters {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// That process. It ends with the one that started it.
pub(crate) fn wait(url: &str, clients: usize) {
    raise_limit();
    let runtime = tasks::runtime();
    let mut tasks = JoinSet::new();
    for domain in open(&runtime, url, clients) {
        let lock = domain.lock(NAME);
        tasks.spawn_on(async move { drop(acquire_at_last(&lock).await) }, runtime.handle());
    }
    let mut stdout = std::io::stdout();
    stdout.write_all(b"ready\n").and_then(|()| stdout.flush()).expect("the parent listens");
    let _ = std::io::stdin().read(&mut [0]);
    std::process::exit(0);
}

/// All clients want the name all the time: as many as the scenario says, beside 8.
pub(crate) fn handover(scenario: &str, report: &mut Report, clients: usize) {
    raise_limit();
    let (server, runtime) = (server(), tasks::runtime());
    let few = open(&runtime, &server.url(), 8);
    let many = open(&runtime, &server.url(), clients);
    let round = || (rate(&runtime, &many), rate(&runtime, &few));
    round();
    let (many, few): (Vec<_>, Vec<_>) = (0..5).map(|_| round()).unzip();
    report.add(scenario, "tenure", "handovers_per_s", &many);
    report.add(scenario, "8-clients", "handovers_per_s", &few);
}

/// Hand-overs per second among clients that take turns.
fn rate(runtime: &Runtime, domains: &[Domain]) -> f64 {
    let (turns, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut tasks = JoinSet::new();
    for domain in domains {
        let (lock, turns, is_over) = (domain.lock(NAME), Arc::clone(&turns), Arc::clone(&is_over));
        let turn = async move {
            while !is_over.load(Ordering::Relaxed) {
                let guard = acquire_at_last(&lock).await;
                turns.fetch_add(1, Ordering::Relaxed);
                guard.release().await.expect("the store answers");
            }
        };
        tasks.spawn_on(turn, runtime.handle());
    }
    // Until everyone waits where it is notified.
    std::thread::sleep(Duration::from_secs(2));
    let (began, before) = (Instant::now(), turns.load(Ordering::Relaxed));
    std::thread::sleep(Duration::from_secs(2));
    let counted = turns.load(Ordering::Relaxed) - before;
    let rate = counted as f64 / began.elapsed().as_secs_f64();
    is_over.store(true, Ordering::Relaxed);
    runtime.block_on(tasks.join_all());
    rate
}

/// The first of the queue is a process that was killed, or stopped for longer than it may be silent: from the release until the next
/// one has the name. Beside the same with 8 clients.
pub(crate) fn dead_waiter(scenario: &str, report: &mut Report, clients: usize) {
    raise_limit();
    let (server, runtime) = (server(), tasks::runtime());
    let many = open(&runtime, &server.url(), clients - 1);
    for (contender, domains) in [("tenure", &many[..]), ("8-clients", &many[..7])] {
        for (metric, signal) in [("killed_p50_ms", Signal::KILL), ("stopped_p50_ms", Signal::STOP)] {
            let mut delays: Vec<f64> =
                (0..5).map(|_| pass_over(&server, &runtime, domains, signal)).collect();
            report.add(scenario, contender, metric, &[percentile(&mut delays, 0.5)]);
        }
    }
}

fn pass_over(server: &RedisServer, runtime: &Runtime, domains: &[Domain], signal: Signal) -> f64 {
    let holder = runtime.block_on(Domain::open(server.url())).expect("the domain opens");
    let guard = runtime.block_on(holder.lock(NAME).acquire()).expect("the store answers");
    let first = Waiters::start(server, 1);
    let mut tasks = JoinSet::new();
    for domain in domains {
        let lock = domain.lock(NAME);
        let turn = async move {
            let guard = acquire_at_last(&lock).await;
            let granted = Instant::now();
            guard.release().await.expect("the store answers");
            granted
        };
        tasks.spawn_on(turn, runtime.handle());
    }
    await_queue(server, domains.len() + 1);
    let pid = Pid::from_raw(first.0.id().cast_signed()).expect("a process has a number");
    kill_process(pid, signal).expect("it is ours");
    // It is silent for longer than 1.5 s then.
    std::thread::sleep(Duration::from_secs(2));
    let released = Instant::now();
    runtime.block_on(guard.release()).expect("the store answers");
    let granted = runtime.block_on(tasks.join_all()).into_iter().min().expect("somebody waits");
    (granted - released).as_secs_f64() * 1e3
}

fn await_queue(server: &RedisServer, clients: usize) {
    while server.command(&["ZCARD", QUEUE]).int() < clients as i64 {
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn open(runtime: &Runtime, url: &str, clients: usize) -> Vec<Domain> {
    runtime.block_on(async {
        let (mut domains, mut opening) = (Vec::with_capacity(clients), JoinSet::new());
        while domains.len() < clients {
            while opening.len() < SIDE_BY_SIDE.min(clients - domains.len()) {
                let url = url.to_owned();
                opening.spawn(async move { Domain::open(url).await });
            }
            match opening.join_next().await.expect("one is opening").expect("the task ends") {
                Ok(domain) => domains.push(domain),
                Err(error) if error.is_transient() => {}
                Err(error) => panic!("the domain does not open: {error}"),
            }
        }
        domains
    })
}

fn server() -> RedisServer {
    let most = (hard_limit() - 40).min(25_000);
    RedisServer::builder().config("maxclients", &most.to_string()).start()
}

fn most_clients() -> usize {
    usize::try_from((hard_limit() - OTHERS) / 2).unwrap_or(usize::MAX)
}

fn hard_limit() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// This process may have as many descriptors as it is allowed to.
fn raise_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("within the limit");
}
