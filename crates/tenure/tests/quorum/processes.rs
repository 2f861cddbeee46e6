//! Eight processes on five servers, of which two are killed, one is stopped and goes on, and one comes back empty, again and again: never two
//! holders, and fences grow. `TENURE_SOAK_SECONDS` makes it last longer.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use tenure::{Domain, DomainUrl};
use tenure_testkit::dice::Dice;
use tenure_testkit::oracle::{FencedFile, History, Recorder, Report};

use crate::scene::Scene;

const PROCESSES: usize = 8;
const TASKS: u64 = 4;
const NAMES: [&str; 3] = ["orders", "tickets", "mail"];
const TTL: Duration = Duration::from_secs(1);

struct Worker {
    child: Child,
    id: String,
}

impl Worker {
    fn start(url: &str, dir: &PathBuf, number: usize, generation: usize, seed: u64) -> Self {
        let id = format!("p{number}-{generation}");
        let child = Command::new(std::env::current_exe().expect("a test binary"))
            .args(["--exact", "processes::a_process_that_works", "--ignored", "--nocapture"])
            .env("TENURE_QUORUM_URL", url)
            .env("TENURE_QUORUM_DIR", dir)
            .env("TENURE_QUORUM_ID", &id)
            .env("TENURE_QUORUM_SEED", (seed ^ (number * 1_000 + generation + 1) as u64).to_string())
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

fn length() -> Duration {
    let seconds = std::env::var("TENURE_SOAK_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(10))
}

// R3.9, FAULTS 20
#[test]
fn one_holder_whatever_happens_to_a_minority() {
    let seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock").subsec_nanos();
    let seed = std::env::var("SEED").map_or(u64::from(seed) | 1, |seed| seed.parse().expect("a number"));
    println!("SEED={seed}");
    let scene = Scene::new(5);
    let dir = std::env::temp_dir().join(format!("tenure-majority-{}-{seed}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let log = Recorder::in_dir(dir.join("logs"), "torturer").expect("a log");
    let url = scene.url(TTL);
    let mut workers: Vec<_> =
        (0..PROCESSES).map(|number| Worker::start(&url, &dir, number, 0, seed)).collect();
    // All are there while the group is new.
    std::thread::sleep(Duration::from_millis(700));
    let (mut dice, end, mut generation) = (Dice(seed), Instant::now() + length(), 0);
    while Instant::now() < end {
        harm(&scene, &mut dice, &log);
        if dice.roll(2) == 0 {
            let number = usize::try_from(dice.roll(PROCESSES as u64)).expect("a small number");
            log.killed(&workers[number].id);
            workers[number].kill();
            generation += 1;
            workers[number] = Worker::start(&url, &dir, number, generation, seed);
        }
    }
    harm_most(&scene, &mut dice, &log);
    for worker in &mut workers {
        drop(worker.child.stdin.take());
    }
    for worker in &mut workers {
        let status = worker.child.wait().expect("to bury it");
        assert!(status.success(), "{} ended with {status}", worker.id);
    }
    let history = History::read_dir(dir.join("logs")).expect("the logs");
    let report = Report::of(&history);
    println!("{report}");
    report.assert_clean();
    drop(std::fs::remove_dir_all(dir));
}

/// A round of harm to a minority, which ends before the next one. Whoever comes back empty has one ttl to be missed by nobody.
fn harm(scene: &Scene, dice: &mut Dice, log: &Recorder) {
    let first = usize::try_from(dice.roll(5)).expect("a small number");
    let second = (first + 1 + usize::try_from(dice.roll(4)).expect("a small number")) % 5;
    let pause = Duration::from_millis(300 + dice.roll(900));
    let (one, other) = (&scene.servers[first], &scene.servers[second]);
    match dice.roll(4) {
        0 => {
            log.fault("two servers stopped", None, None);
            one.stop();
            other.stop();
            std::thread::sleep(pause);
            one.cont();
            other.cont();
            log.healed("two servers stopped", None, None);
        }
        1 => {
            log.fault("one server killed, one stopped", None, None);
            one.kill();
            other.stop();
            std::thread::sleep(pause);
            other.cont();
            one.restart();
            // What it had forgotten has run out when the next one forgets.
            std::thread::sleep(TTL + Duration::from_millis(1_200));
            log.healed("one server killed, one stopped", None, None);
        }
        2 => {
            log.fault("one server back empty", None, None);
            one.kill();
            one.restart();
            std::thread::sleep(TTL + Duration::from_millis(1_200));
            log.healed("one server back empty", None, None);
        }
        _ => {
            log.fault("one server stopped", None, None);
            one.stop();
            std::thread::sleep(pause);
            one.cont();
            log.healed("one server stopped", None, None);
        }
    }
    std::thread::sleep(Duration::from_millis(dice.roll(300)));
}

/// Two are killed, which three can do without; then one of these is stopped as well, and goes on.
fn harm_most(scene: &Scene, dice: &mut Dice, log: &Recorder) {
    let first = usize::try_from(dice.roll(5)).expect("a small number");
    let servers: Vec<_> = (0..5).map(|step| &scene.servers[(first + step) % 5]).collect();
    log.fault("two servers killed", None, None);
    servers[0].kill();
    servers[2].kill();
    std::thread::sleep(TTL / 2);
    log.fault("one more server stopped", None, None);
    servers[1].stop();
    std::thread::sleep(TTL + TTL / 2);
    servers[1].cont();
    log.healed("one more server stopped", None, None);
    std::thread::sleep(TTL);
}

/// What a process does until whoever started it says that it is enough.
#[test]
#[ignore = "run by another test, as a process that it kills"]
fn a_process_that_works() {
    let var = |name: &str| std::env::var(format!("TENURE_QUORUM_{name}")).expect("to be run by another test");
    let is_enough = Arc::new(AtomicBool::new(false));
    let tells = Arc::clone(&is_enough);
    std::thread::spawn(move || {
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        tells.store(true, Ordering::SeqCst);
        std::thread::sleep(Duration::from_secs(20));
        std::process::exit(3);
    });
    let (dir, seed) = (PathBuf::from(var("DIR")), var("SEED").parse::<u64>().expect("a number"));
    let url = DomainUrl::parse(&var("URL")).expect("a valid URL");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let domain = Domain::lazy(url).expect("a valid URL");
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let log =
                    Recorder::in_dir(dir.join("logs"), &format!("{}-{task}", var("ID"))).expect("a log");
                let (domain, dir, is_enough) = (domain.clone(), dir.clone(), Arc::clone(&is_enough));
                tokio::spawn(async move {
                    let resources =
                        NAMES.map(|name| FencedFile::open(dir.join(name), name).expect("a resource"));
                    let mut dice = Dice(seed.wrapping_mul(2 * task + 3) | 1);
                    while !is_enough.load(Ordering::SeqCst) {
                        let which = usize::try_from(dice.roll(3)).expect("a small number");
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

async fn work(domain: &Domain, log: &Recorder, dice: &mut Dice, name: &'static str, resource: &FencedFile) {
    log.requested(name);
    let patience = Duration::from_millis(50 + dice.roll(800));
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
    let _ = resource.write(fence, log).expect("a resource");
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
    log.released(name, fence);
    match dice.roll(2) {
        0 => drop(guard),
        _ => drop(guard.release().await),
    }
}
