//! Eight processes on five servers, of which two are killed, one is paused and resumes, and one restarts empty, again and again: never two
//! holders, and fences grow. `TENURE_SOAK_SECONDS` makes it last longer.

use std::time::{Duration, Instant};

use tenure::Error;
use tenure_testkit::dice::Dice;
use tenure_testkit::oracle::{FencedFile, Recorder, Report};
use tenure_testkit::soak::{self, Crew, Task};

use crate::quorum::scene::Scene;

const PROCESSES: usize = 8;
const TASKS: u64 = 4;
const NAMES: [&str; 3] = ["orders", "tickets", "mail"];
const TTL: Duration = Duration::from_secs(1);
/// More than it takes to finish, also without servers.
const LONGEST_END: Duration = Duration::from_secs(20);

// R3.9, FAULTS 20
#[test]
fn one_holder_whatever_happens_to_a_minority() {
    let seed = soak::seed("a minority harmed");
    let scene = Scene::new(5);
    let url = scene.url(TTL);
    let mut crew = Crew::new("quorum::processes::a_process_that_works", seed);
    for number in 0..PROCESSES {
        crew.start(&format!("p{number}-0"), &url);
    }
    let (mut dice, end, mut generation) = (Dice(seed), Instant::now() + soak::length(10), 0);
    while Instant::now() < end {
        harm(&scene, &mut dice, &crew.log);
        if dice.roll(2) == 0 {
            let number = dice.index(PROCESSES);
            generation += 1;
            crew.replace(number, &format!("p{number}-{generation}"), &url);
        }
    }
    harm_most(&scene, &mut dice, &crew.log);
    crew.end();
    let history = crew.history();
    let report = Report::of(&history);
    println!("{report}");
    report.assert_clean();
}

/// A round of harm to a minority, which ends before the next one.
fn harm(scene: &Scene, dice: &mut Dice, log: &Recorder) {
    let first = dice.index(5);
    let second = (first + 1 + dice.index(4)) % 5;
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
            // It counts again when the next one forgets: otherwise too few servers count.
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

/// Two are killed, and three are enough; then one of these is paused, too, and resumes.
fn harm_most(scene: &Scene, dice: &mut Dice, log: &Recorder) {
    let first = dice.index(5);
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

/// What a process does until its parent says that it is enough.
#[test]
#[ignore = "run by another test, as a process that it kills"]
fn a_process_that_works() {
    soak::work(TASKS, LONGEST_END, async |mut task| {
        let open = |name: &str| FencedFile::open(task.dir.join(name), name).expect("a resource");
        let resources = NAMES.map(|name| (name, open(name)));
        while let Some((name, resource)) = task.next_of(&resources) {
            work(&mut task, name, resource).await;
        }
    });
}

async fn work(task: &mut Task, name: &str, resource: &FencedFile) {
    let patience = Duration::from_millis(50 + task.dice.roll(800));
    let Some(guard) = task.take(name, patience, Error::is_transient).await else { return };
    let _ = resource.write(guard.fence().get(), &task.log).expect("a resource");
    let millis = if task.dice.roll(25) == 0 { 500 + task.dice.roll(1_500) } else { 1 + task.dice.roll(30) };
    if task.hold(&guard, Duration::from_millis(millis)).await {
        task.give_back(guard).await;
    }
}
