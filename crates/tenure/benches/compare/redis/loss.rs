//! When something ends that its holder did not end: how soon the next one has the name, how soon the holder is told.

use std::io::Read;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tenure::Domain;
use tenure_testkit::redis::RedisServer;
use tokio::runtime::Runtime;

use super::key_of;
use crate::report::{Report, percentile};
use crate::{tasks, worker};

/// Of a holder that is killed.
pub(crate) const TTL: Duration = Duration::from_millis(500);

/// Holders that die side by side, each with a name and a waiter of its own, and how many of them one after the other.
const LANES: u64 = 4;
const DEATHS: u64 = 25;

/// Leases that are taken away, half of them deleted and half of them overwritten.
const LOSSES: usize = 200;
/// How long they are held before: a lease is watched once it is older than the shortest ones.
const AGE: Duration = Duration::from_millis(30);

pub(crate) fn name_of(number: u64) -> String {
    format!("bench-{number}")
}

/// The holder is killed while another waits: from the expiry of its key until the other has the name.
pub(crate) fn dead_holder(scenario: &str, report: &mut Report) {
    let (server, runtime) = (RedisServer::start(), tasks::runtime());
    let mut delays = Vec::new();
    std::thread::scope(|scope| {
        let (server, runtime) = (&server, &runtime);
        let lanes: Vec<_> = (0..LANES)
            .map(|lane| {
                scope.spawn(move || {
                    let domain = runtime.block_on(Domain::open(server.url())).expect("the domain opens");
                    let deaths = lane * DEATHS..(lane + 1) * DEATHS;
                    deaths.map(|number| death(server, runtime, &domain, number)).collect::<Vec<f64>>()
                })
            })
            .collect();
        for lane in lanes {
            delays.extend(lane.join().expect("the next one gets the name"));
        }
    });
    add(report, scenario, delays);
}

/// How many ms after the expiry of the dead holder's key the next one had the name.
fn death(server: &RedisServer, runtime: &Runtime, domain: &Domain, number: u64) -> f64 {
    let name = name_of(number);
    let mut holder = Holder::start(server, number);
    let lock = domain.lock(&name);
    let waiter = runtime.spawn(async move {
        let guard = lock.acquire().await.expect("the store answers");
        let granted = since_1970();
        guard.release().await.expect("the store answers");
        granted
    });
    while runtime.block_on(domain.inspect(&name)).expect("the store answers").waiters.is_empty() {}
    holder.kill();
    // What it sent before it died has been executed once its connection is closed, which the server notices before it answers.
    let expiry = server.command(&["PEXPIRETIME", &key_of(&name)]).int();
    assert!(expiry > 0, "the holder's key is there and expires");
    let granted = runtime.block_on(waiter).expect("the waiter ends");
    granted - expiry as f64
}

/// The wall clock, which the server has too, in ms.
fn since_1970() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970").as_secs_f64() * 1e3
}

/// A process that holds a name.
struct Holder(Child);

impl Holder {
    fn start(server: &RedisServer, number: u64) -> Self {
        let mut command = worker::command("holder", &server.url(), number as usize, Duration::ZERO);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut holder = Holder(command.spawn().expect("a process can be started"));
        let stdout = holder.0.stdout.as_mut().expect("it is piped");
        stdout.read_exact(&mut [0]).expect("the holder has the name");
        holder
    }

    fn kill(&mut self) {
        self.0.kill().expect("it can be killed");
        self.0.wait().expect("it ends");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Somebody deletes or overwrites the key of a held lease: from before they ask for it until the holder is told.
pub(crate) fn loss_push(scenario: &str, report: &mut Report) {
    let (server, runtime) = (RedisServer::start(), tasks::runtime());
    let mut intruder = server.client().expect("the server accepts");
    let delays = runtime.block_on(async {
        let domain = Domain::open(server.url()).await.expect("the domain opens");
        let mut guards = Vec::new();
        for number in 0..LOSSES {
            guards.push(domain.lock(name_of(number as u64)).acquire().await.expect("the store answers"));
        }
        tokio::time::sleep(AGE).await;
        let mut delays = Vec::new();
        for (number, guard) in guards.iter().enumerate() {
            assert!(guard.is_held(), "{} was lost before anybody took it", guard.name());
            let key = key_of(guard.name());
            let take: &[&str] = if number % 2 == 0 { &["DEL", &key] } else { &["SET", &key, "intruder"] };
            let start = Instant::now();
            intruder.send(take).expect("the server accepts");
            guard.lost().await;
            delays.push(start.elapsed().as_secs_f64() * 1e3);
            intruder.receive().expect("the server answers");
        }
        delays
    });
    add(report, scenario, delays);
}

fn add(report: &mut Report, scenario: &str, mut delays: Vec<f64>) {
    for (metric, share) in [("p50_ms", 0.5), ("p99_ms", 0.99), ("max_ms", 1.0)] {
        report.add(scenario, "tenure", metric, &[percentile(&mut delays, share)]);
    }
}
