//! Eight processes of one machine, some of which start without Redis, while it is killed, stopped, cut off, one way as well, and restarted,
//! and processes are killed: there is never more than one holder, and fences grow; and who must not go on without Redis does not
//! enter while it is away.
//!
//! What is judged as that: a grant to a request that was made after Redis had gone away for its process, and before it was back. Whatever was
//! asked before may have been granted in time.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use tenure::{Degrade, Domain, DomainUrl};
use tenure_testkit::dice::Dice;
use tenure_testkit::oracle::{Check, Counter, FencedFile, History, Recorder, Report, What};
use tenure_testkit::redis::{Fault, Proxy};

use crate::scene::{Peer, Scene};

const PROCESSES: usize = 8;
const NAMES: [&str; 2] = ["orders", "tickets"];
const TTL: Duration = Duration::from_secs(1);
/// The kind of fault in which Redis is out of reach for a process, or for all.
const AWAY: &str = "away";

/// How long harm is done, in a test run; longer where that is asked for.
fn length() -> Duration {
    let soak = std::env::var("TENURE_SOAK_SECONDS").map(|seconds| seconds.parse().expect("seconds"));
    Duration::from_secs(soak.unwrap_or(8))
}

/// Every second one may go on without Redis.
fn degrade(number: usize) -> Degrade {
    if number.is_multiple_of(2) { Degrade::Never } else { Degrade::Allow }
}

struct World {
    scene: Scene,
    /// The way of each process to Redis.
    proxies: Vec<Proxy>,
    seed: u64,
    /// Every process has a directory of its own, as if each had fallen back by itself.
    is_split: bool,
}

impl World {
    fn new(is_split: bool) -> Self {
        let seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock").subsec_nanos();
        let seed = std::env::var("SEED").map_or(u64::from(seed) | 1, |seed| seed.parse().expect("a number"));
        println!("SEED={seed}");
        let scene = Scene::new();
        let proxies = (0..PROCESSES).map(|_| Proxy::new(&scene.server)).collect();
        World { scene, proxies, seed, is_split }
    }
}

fn id(number: usize, generation: usize) -> String {
    format!("{}-{number}-{generation}", ["never", "allow"][number % 2])
}

struct Worker {
    child: Child,
    id: String,
}

impl Worker {
    fn start(world: &World, number: usize, generation: usize) -> Self {
        let World { scene, proxies, seed, is_split } = world;
        let mut url = scene.url(&proxies[number], degrade(number), TTL).to_string();
        if *is_split {
            url = url.replace("/locks", &format!("/locks-{number}"));
        }
        let id = id(number, generation);
        let child = Command::new(std::env::current_exe().expect("a test binary"))
            .args(["--exact", "processes::a_process_that_works", "--ignored", "--nocapture"])
            .env("TENURE_LAYERED_URL", url)
            .env("TENURE_LAYERED_DIR", scene.machine.path())
            .env("TENURE_LAYERED_ID", &id)
            .env("TENURE_LAYERED_SEED", (seed ^ (number * 1_000 + generation + 1) as u64).to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("a process");
        Worker { child, id }
    }

    fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}

// R0.2, FAULTS 19
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_holder_on_the_machine_whatever_happens_to_redis() {
    let world = World::new(false);
    let history = torture(&world, length());
    let report = Report::of(&history).updates();
    println!("{report}");
    report.assert_clean();
    let World { scene, proxies, .. } = &world;
    let degraded = std::fs::metadata(scene.machine.path().join("degraded")).map_or(0, |file| file.len());
    let (inside, outside) = entries(&history);
    let (grants, faults) = (history.grants(), history.faults());
    println!(
        "{grants} grants, {degraded} degraded; {faults} faults; granted while Redis was away {inside:?}, else {outside:?}"
    );
    assert_eq!(inside.get("never"), None, "nobody enters who must not go on without Redis");
    assert!(degraded > 0, "nobody went on without Redis");
    assert!(outside.contains_key("never"), "nobody held both");

    let (domain, proxy) = (scene.url(&proxies[0], Degrade::Allow, TTL), Proxy::new(&scene.server));
    let after = Peer { domain: Domain::open(domain).await.expect("to open"), proxy };
    for name in NAMES {
        drop(after.domain.lock(name).acquire().await.expect("it is free again"));
    }
    drop(after.acquire_both(0).await);
}

/// The same load and faults, where each process falls back on its own: the oracle must see it.
#[test]
fn without_a_common_directory_there_are_two_holders() {
    let history = torture(&World::new(true), length() / 2);
    let report = Report::of(&history);
    assert!(report.failed().contains(&Check::S1), "a check that never failed proves nothing\n{report}");
}

/// Lets the processes work, and does harm for so long.
fn torture(world: &World, length: Duration) -> History {
    let World { scene, proxies, seed, .. } = world;
    let log = Recorder::in_dir(scene.machine.path().join("logs"), "torturer").expect("a log");
    // Two of each kind begin without Redis.
    for proxy in &proxies[..4] {
        proxy.cut();
    }
    let names: Vec<String> = (0..4).map(|number| id(number, 0)).collect();
    names.iter().for_each(|victim| log.fault(AWAY, Some(victim), None));
    let mut workers: Vec<Worker> = (0..PROCESSES).map(|number| Worker::start(world, number, 0)).collect();
    std::thread::sleep(Duration::from_millis(700));
    names.iter().for_each(|victim| log.healed(AWAY, Some(victim), None));
    for proxy in &proxies[..4] {
        proxy.heal();
    }
    let (mut dice, end, mut generation) = (Dice(*seed), Instant::now() + length, 0);
    while Instant::now() < end {
        let pause = Duration::from_millis(200 + dice.roll(700));
        let number = usize::try_from(dice.roll(PROCESSES as u64)).expect("a small number");
        let (victim, proxy) = (workers[number].id.clone(), &proxies[number]);
        match dice.roll(6) {
            0 => {
                scene.server.kill();
                log.fault(AWAY, None, None);
                std::thread::sleep(pause);
                log.healed(AWAY, None, None);
                scene.server.restart();
            }
            1 => {
                scene.server.stop();
                log.fault(AWAY, None, None);
                std::thread::sleep(pause);
                log.healed(AWAY, None, None);
                scene.server.cont();
            }
            2 => {
                proxy.cut();
                log.fault(AWAY, Some(&victim), None);
                std::thread::sleep(pause);
                log.healed(AWAY, Some(&victim), None);
                proxy.heal();
            }
            3 => {
                proxy.black_hole();
                log.fault(AWAY, Some(&victim), None);
                std::thread::sleep(pause);
                log.healed(AWAY, Some(&victim), None);
                proxy.heal();
            }
            4 => {
                // Commands arrive, and nothing comes back.
                proxy.inject(Fault::Silence, u64::MAX, |_| true);
                log.fault(AWAY, Some(&victim), None);
                std::thread::sleep(pause);
                log.healed(AWAY, Some(&victim), None);
                proxy.clear();
            }
            _ => {
                log.killed(&victim);
                workers[number].kill();
                generation += 1;
                workers[number] = Worker::start(world, number, generation);
            }
        }
        std::thread::sleep(Duration::from_millis(dice.roll(500)));
    }
    // Whoever can't finish within its ttl and a bit is hung.
    for worker in &mut workers {
        drop(worker.child.stdin.take());
    }
    for worker in &mut workers {
        let status = worker.child.wait().expect("to bury it");
        assert!(status.success(), "{} ended with {status}", worker.id);
    }
    if !world.is_split {
        for name in NAMES {
            Resource::open(scene.machine.path(), name).counter.record_final(&log).expect("a counter");
        }
    }
    History::read_dir(scene.machine.path().join("logs")).expect("the logs")
}

/// How many requests, by policy, were made and granted while Redis was away for whoever made them; and how many others were granted.
fn entries(history: &History) -> (BTreeMap<String, usize>, BTreeMap<String, usize>) {
    let (mut inside, mut outside) = (BTreeMap::new(), BTreeMap::new());
    // The whole spans, each with its victim, or for all.
    let (mut spans, mut begun) = (Vec::new(), BTreeMap::new());
    for event in history.events() {
        match &event.what {
            What::Fault { victim, .. } => drop(begun.insert(victim.clone(), event.at)),
            What::Healed { victim, .. } => {
                let from = begun.remove(victim).expect("a fault that began");
                spans.push((from, event.at, victim.clone()));
            }
            _ => {}
        }
    }
    let mut asked = BTreeMap::new();
    for event in history.events() {
        match &event.what {
            What::Requested { .. } => drop(asked.insert(event.client.clone(), event.at)),
            What::Granted { .. } => {
                let asked_at = asked[&event.client];
                let is_away = spans.iter().any(|(from, to, victim)| {
                    let concerns = victim.as_ref().is_none_or(|victim| *victim == event.client);
                    concerns && *from < asked_at && event.at < *to
                });
                let policy = event.client.split('-').next().unwrap_or_default().to_owned();
                *if is_away { &mut inside } else { &mut outside }.entry(policy).or_insert(0) += 1;
            }
            _ => {}
        }
    }
    (inside, outside)
}

/// What a process does until whoever started it says that it is enough.
#[test]
#[ignore = "run by another test, as a process that it kills"]
fn a_process_that_works() {
    let var =
        |name: &str| std::env::var(format!("TENURE_LAYERED_{name}")).expect("to be run by another test");
    let is_enough = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let tells = std::sync::Arc::clone(&is_enough);
    std::thread::spawn(move || {
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        tells.store(true, std::sync::atomic::Ordering::SeqCst);
        std::thread::sleep(Duration::from_secs(20));
        std::process::exit(3);
    });
    let (dir, seed) = (PathBuf::from(var("DIR")), var("SEED").parse::<u64>().expect("a number"));
    let url = DomainUrl::parse(&var("URL")).expect("a valid URL");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let log = Recorder::in_dir(dir.join("logs"), &var("ID")).expect("a log");
        let resources = NAMES.map(|name| Resource::open(&dir, name));
        let marks = OpenOptions::new().append(true).create(true).open(dir.join("degraded")).expect("a file");
        let (domain, mut dice) = (Domain::lazy(url).expect("a valid URL"), Dice(seed | 1));
        while !is_enough.load(std::sync::atomic::Ordering::SeqCst) {
            let which = usize::try_from(dice.roll(2)).expect("a small number");
            work(&domain, &log, &mut dice, which, &resources[which], &marks).await;
        }
        domain.close().await;
    });
}

/// What is changed under the lock, with its fence and without.
struct Resource {
    fenced: FencedFile,
    counter: Counter,
}

impl Resource {
    fn open(dir: &Path, name: &str) -> Self {
        let fenced = FencedFile::open(dir.join(name), name).expect("a resource");
        let counter = Counter::open(dir.join(format!("{name}-count")), name).expect("a counter");
        Resource { fenced, counter }
    }
}

async fn work(
    domain: &Domain,
    log: &Recorder,
    dice: &mut Dice,
    which: usize,
    resource: &Resource,
    mut marks: &std::fs::File,
) {
    let name = NAMES[which];
    log.requested(name);
    let patience = Duration::from_millis(50 + dice.roll(500));
    let guard = match domain.lock(name).try_acquire_for(patience).await {
        Ok(attempt) => attempt.ok(),
        Err(error) => {
            assert!(error.is_transient(), "{error}");
            tokio::time::sleep(Duration::from_millis(10)).await;
            None
        }
    };
    let Some(guard) = guard else { return log.gave_up(name) };
    let fence = guard.fence().get();
    log.granted(name, fence, || guard.remaining());
    if guard.degraded() {
        marks.write_all(b".").expect("a file");
    }
    let _ = resource.fenced.write(fence, log).expect("a resource");
    let reading = resource.counter.read(log).expect("a counter");
    let hold = if dice.roll(25) == 0 { 500 + dice.roll(1_500) } else { 1 + dice.roll(30) };
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
    if guard.is_held() {
        reading.write_next().expect("a counter");
    }
    log.released(name, fence);
    match dice.roll(2) {
        0 => drop(guard),
        _ => drop(guard.release().await),
    }
}
