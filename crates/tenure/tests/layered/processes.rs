//! Eight processes of one machine, some of which start without Redis, while it is killed, stopped, cut off, one way as well, and restarted,
//! and processes are killed: there is never more than one holder, and fences grow; and who must not go on without Redis does not
//! enter while it is away. `TENURE_SOAK_SECONDS` makes it last longer.

mod entries;
mod worker;

use std::time::{Duration, Instant};

use tenure::{Degrade, Domain};
use tenure_testkit::dice::Dice;
use tenure_testkit::oracle::{Check, History, Recorder, Report};
use tenure_testkit::redis::{Fault, Proxy};
use tenure_testkit::soak::{self, Crew};

use self::entries::Entries;
use self::worker::{NAMES, Resource};
use crate::layered::scene::{Peer, Scene};

const PROCESSES: usize = 8;
/// So many of these begin without Redis, two of each kind.
const LATE: usize = 4;
const TTL: Duration = Duration::from_secs(1);
/// The kind of fault in which Redis is out of reach for a process, or for all.
const AWAY: &str = "away";

struct World {
    scene: Scene,
    /// The way of each process to Redis.
    proxies: Vec<Proxy>,
    crew: Crew,
    dice: Dice,
    /// Every process has a directory of its own, as if each had fallen back by itself.
    is_split: bool,
}

impl World {
    fn new(is_split: bool) -> Self {
        let seed = soak::seed("Redis away");
        let scene = Scene::new();
        let proxies = (0..PROCESSES).map(|_| Proxy::new(&scene.server)).collect();
        World { scene, proxies, crew: Crew::new(worker::TEST, seed), dice: Dice(seed), is_split }
    }

    fn url(&self, number: usize) -> String {
        let url = self.scene.url(&self.proxies[number], degrade(number), TTL).to_string();
        if self.is_split { url.replace("/locks", &format!("/locks-{number}")) } else { url }
    }

    /// Lets the processes work, and does harm for so long.
    fn torture(&mut self, length: Duration) -> History {
        self.begin();
        let (end, mut generation) = (Instant::now() + length, 0);
        while Instant::now() < end {
            let pause = Duration::from_millis(200 + self.dice.roll(700));
            let number = self.dice.index(PROCESSES);
            let (server, proxy) = (&self.scene.server, &self.proxies[number]);
            let (log, victim) = (&self.crew.log, Some(self.crew.id(number)));
            match self.dice.roll(6) {
                0 => away(log, None, pause, || server.kill(), || server.restart()),
                1 => away(log, None, pause, || server.stop(), || server.cont()),
                2 => away(log, victim, pause, || proxy.cut(), || proxy.heal()),
                3 => away(log, victim, pause, || proxy.black_hole(), || proxy.heal()),
                4 => {
                    // Commands arrive, and nothing comes back.
                    let silence = || proxy.inject(Fault::Silence, u64::MAX, |_| true);
                    away(log, victim, pause, silence, || proxy.clear());
                }
                _ => {
                    generation += 1;
                    let url = self.url(number);
                    self.crew.replace(number, &id(number, generation), &url);
                }
            }
            std::thread::sleep(Duration::from_millis(self.dice.roll(500)));
        }
        self.crew.end();
        if !self.is_split {
            for name in NAMES {
                let resource = Resource::open(self.crew.dir(), name);
                resource.counter.record_final(&self.crew.log).expect("a counter");
            }
        }
        self.crew.history()
    }

    /// Starts the processes, and lets those that are without Redis be so for a while.
    fn begin(&mut self) {
        let late: Vec<String> = (0..LATE).map(|number| id(number, 0)).collect();
        self.proxies[..LATE].iter().for_each(Proxy::cut);
        late.iter().for_each(|victim| self.crew.log.fault(AWAY, Some(victim), None));
        for number in 0..PROCESSES {
            let url = self.url(number);
            self.crew.start(&id(number, 0), &url);
        }
        std::thread::sleep(Duration::from_millis(700));
        late.iter().for_each(|victim| self.crew.log.healed(AWAY, Some(victim), None));
        self.proxies[..LATE].iter().for_each(Proxy::heal);
    }
}

/// Every second one may go on without Redis.
fn degrade(number: usize) -> Degrade {
    if number.is_multiple_of(2) { Degrade::Never } else { Degrade::Allow }
}

fn id(number: usize, generation: usize) -> String {
    format!("{}-{number}-{generation}", ["never", "allow"][number % 2])
}

/// Redis is away for so long. What is noted down lies within, so that whoever entered in between entered without it.
fn away(log: &Recorder, victim: Option<&str>, pause: Duration, begin: impl FnOnce(), end: impl FnOnce()) {
    begin();
    log.fault(AWAY, victim, None);
    std::thread::sleep(pause);
    log.healed(AWAY, victim, None);
    end();
}

// R0.2, FAULTS 19
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_holder_on_the_machine_whatever_happens_to_redis() {
    let mut world = World::new(false);
    let history = world.torture(soak::length(8));
    let report = Report::of(&history).updates();
    println!("{report}");
    report.assert_clean();
    let World { scene, proxies, crew, .. } = &world;
    let degraded = worker::degraded(crew.dir());
    let Entries { inside, outside } = Entries::of(&history);
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
    let history = World::new(true).torture(soak::length(8) / 2);
    let report = Report::of(&history);
    assert!(report.failed().contains(&Check::S1), "a check that never failed proves nothing\n{report}");
}
