//! Any servers, any clocks, any weather: nobody believes in a lease while another does (S1), and fences grow in the order of the grants (S2).

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use proptest::prelude::*;
use tenure_testkit::dice::Dice;

use super::{MS, NAME, TTL, Trail, Weather, World};
use crate::api::domain::Domain;
use crate::api::guard::Guard;
use crate::api::lease::Lease;
use crate::sync::Mutex;
use crate::time::clock::{Clock, Moment};

/// How long force may show, at the most: a ghost of it, and then those who believe in what it took.
const AFTERMATH: Duration = Duration::from_millis(2_000);

/// What all clients see of each other, and no real one could.
struct Witness {
    clock: Clock,
    checks_overlaps: bool,
    seen: std::sync::Mutex<Seen>,
    is_over: std::sync::atomic::AtomicBool,
    trail: Trail,
}

#[derive(Default)]
struct Seen {
    /// Who believes to hold the name, and since when: nobody else may.
    holders: Vec<(Lease, Moment)>,
    last: Option<(u64, Moment)>,
    /// Until then, whoever was granted the name may be ousted without knowing it yet.
    forced_until: Option<Moment>,
    grants: u64,
}

impl Witness {
    fn new(world: &World, checks_overlaps: bool) -> Self {
        Witness {
            clock: Clock::Manual(Arc::clone(&world.clock)),
            checks_overlaps,
            seen: Default::default(),
            is_over: Default::default(),
            trail: world.trail.clone(),
        }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn granted(&self, lease: &Lease, begun: Moment) {
        let (mut seen, now) = (self.seen(), self.clock.now());
        let forced_until = seen.forced_until;
        self.trail.note(&self.clock, format_args!("granted: {lease:?}"));
        let counts = |since: Moment| forced_until.is_none_or(|until| since >= until);
        let is_other = |(other, since): &&(Lease, Moment)| other.is_held() && counts(*since);
        let others = seen.holders.iter().filter(is_other).count();
        assert!(others == 0 || !self.checks_overlaps, "S1: granted while another holds it");
        let fence = lease.fence().get();
        let before = seen.last.replace((fence, now)).filter(|(_, since)| counts(*since));
        // A server whose clock jumps between its own grant and the last one of a majority has granted the name to another by then.
        let before = before.filter(|(_, since)| self.checks_overlaps || *since < begun);
        assert!(before.is_none_or(|(before, _)| fence > before), "S2: {fence} after {before:?}");
        seen.grants += 1;
        seen.holders.push((lease.clone(), now));
    }

    /// It is taken over from here on.
    fn forces(&self) {
        self.trail.note(&self.clock, "force");
        self.seen().forced_until = Some(self.clock.now() + AFTERMATH);
    }

    fn ends(&self, lease: &Lease) {
        self.trail.note(&self.clock, format_args!("ends: {lease:?}"));
        self.seen().holders.retain(|(other, _)| other.fence() != lease.fence());
    }
}

struct Worker {
    domain: Domain,
    witness: Arc<Witness>,
    dice: Dice,
    uses_force: bool,
}

impl Worker {
    async fn work(mut self) {
        while !self.witness.is_over.load(Ordering::SeqCst) {
            let begun = self.witness.clock.now();
            if let Some(guard) = self.enters().await {
                self.holds(guard, begun).await;
            }
            let clock = &self.witness.clock;
            clock.sleep_until(clock.now() + Duration::from_millis(self.dice.roll(30))).await;
        }
    }

    async fn enters(&mut self) -> Option<Guard> {
        // Those of one client who ask for another ttl are not served by one lease.
        let lock = self.domain.lock(NAME);
        let lock = if self.dice.roll(3) == 0 { lock.ttl(TTL * 3 / 4) } else { lock };
        let patience = Duration::from_millis(50 + self.dice.roll(800));
        if self.uses_force && self.dice.roll(60) == 0 {
            let before = self.witness.seen().last.map_or(0, |(fence, _)| fence);
            self.witness.forces();
            let taken = lock.take_over().await.ok();
            self.witness.forces();
            if let Some(guard) = &taken {
                assert!(guard.fence().get() > before, "S2: {} taken over after {before}", guard.fence());
            }
            return taken;
        }
        let attempt = match self.dice.roll(3) {
            0 => lock.try_acquire().await,
            _ => lock.try_acquire_for(patience).await,
        };
        attempt.ok()?.ok()
    }

    async fn holds(&mut self, mut guard: Guard, mut begun: Moment) {
        loop {
            let lease = Lease::clone(&guard);
            self.witness.granted(&lease, begun);
            let hold = if self.dice.roll(24) == 0 { 200 + self.dice.roll(1_500) } else { self.dice.roll(20) };
            let clock = &self.witness.clock;
            clock.until(clock.now() + Duration::from_millis(hold), guard.lost()).await;
            self.witness.ends(&lease);
            match self.dice.roll(24) {
                0..8 => return drop(guard),
                8 => {
                    let Ok(ticket) = guard.detach().await else { return };
                    // Gone without a word: the lease runs out, and is believed in until then.
                    if self.dice.roll(2) == 0 {
                        return;
                    }
                    begun = self.witness.clock.now();
                    let Ok(adopted) = self.domain.adopt(&ticket).await else { return };
                    guard = adopted;
                }
                _ => return drop(guard.release().await),
            }
        }
    }
}

/// What happens to servers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trouble {
    None,
    /// They go away and come back with their data, or are stopped and go on.
    Outages,
    /// Their clocks jump as well.
    Jumps,
    /// Or the name is taken over.
    Force,
}

/// A run of `time`; returns how many grants there were.
fn run(skews: &[Duration], weather: Weather, seed: u64, trouble: Trouble, time: Duration) -> u64 {
    let jumps = trouble == Trouble::Jumps;
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let world = Arc::new(World::new(skews, weather, seed));
        let witness = Arc::new(Witness::new(&world, !jumps));
        let clients: Vec<_> = (0..4).map(|_| world.client()).collect();
        // Two of the clients have a second task, which is served by what was asked before it came.
        let second = if jumps { &[][..] } else { &clients[..2] };
        let workers: Vec<_> = (clients.iter().chain(second).zip(1..))
            .map(|(client, number)| {
                let (domain, witness) = (client.clone(), Arc::clone(&witness));
                let dice = Dice(seed.wrapping_mul(2 * number + 1) | 1);
                let worker = Worker { domain, witness, dice, uses_force: trouble == Trouble::Force };
                tokio::spawn(worker.work())
            })
            .collect();
        let mut dice = Dice(seed.rotate_left(17) | 1);
        let mut left = time;
        while !left.is_zero() {
            let step = Duration::from_millis(20 + dice.roll(200)).min(left);
            world.pass(step).await;
            left -= step;
            if trouble != Trouble::None {
                disturb(&world, &mut dice, jumps);
            }
            // A witness that has seen something wrong says so by its panic.
            if workers.iter().any(|worker| worker.is_finished()) {
                break;
            }
        }
        witness.is_over.store(true, Ordering::SeqCst);
        calm(&world);
        for worker in workers {
            let worked = world.drive(worker).await;
            if worked.is_err() {
                world.trail.print();
            }
            worked.expect("nothing that must not be");
        }
        let seen = witness.seen();
        seen.grants
    })
}

fn calm(world: &World) {
    for server in &world.servers {
        server.is_down.store(false, Ordering::SeqCst);
        server.is_paused.store(false, Ordering::SeqCst);
    }
}

/// Something happens to a server: it goes away and comes back with its data, it is stopped and goes on, its clock jumps.
fn disturb(world: &World, dice: &mut Dice, jumps: bool) {
    let which = usize::try_from(dice.roll(world.servers.len() as u64)).expect("a small number");
    let server = &world.servers[which];
    match dice.roll(8) {
        0 | 1 => drop(server.is_down.fetch_xor(true, Ordering::SeqCst)),
        2 => drop(server.is_paused.fetch_xor(true, Ordering::SeqCst)),
        3 if jumps => server.clock.jump(Duration::from_millis(dice.roll(3_000))),
        _ => calm(world),
    }
}

fn weathers() -> impl Strategy<Value = Weather> {
    (0_u64..6, 0_u64..6, 0_u64..12, 0_u64..12).prop_map(
        |(lost_requests, lost_replies, late_requests, late_replies)| Weather {
            lost_requests,
            lost_replies,
            late_requests,
            late_replies,
        },
    )
}

fn skews() -> impl Strategy<Value = Vec<Duration>> {
    prop::collection::vec((0_u64..5_000).prop_map(Duration::from_millis), 3..=5)
}

fn cases() -> u32 {
    std::env::var("TENURE_QUORUM_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(24)
}

static GRANTS: Mutex<u64> = Mutex::new(0);

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 0, failure_persistence: None, ..ProptestConfig::default() })]

    // R3.9, B1
    #[test]
    fn nobody_overlaps_and_fences_grow(skews in skews(), weather in weathers(), seed in 1_u64..) {
        let grants = run(&skews, weather, seed, Trouble::Outages, 4 * TTL);
        let mut all = GRANTS.lock();
        *all += grants;
        println!("{grants} grants, {} in all", *all);
    }

    // R3.9: who is ousted may not know it for a while; then all is as it was. Nobody takes over with an old fence.
    #[test]
    fn force_passes(skews in skews(), weather in weathers(), seed in 1_u64..) {
        run(&skews, weather, seed, Trouble::Force, 12 * TTL);
    }

    // B1: a server whose clock jumps ends leases too early; then fences are what is left.
    #[test]
    fn fences_grow_when_clocks_jump(skews in skews(), weather in weathers(), seed in 1_u64..) {
        run(&skews, weather, seed, Trouble::Jumps, 4 * TTL);
    }
}

#[test]
fn a_calm_run_has_many_grants() {
    let grants = run(&[Duration::ZERO, 3 * MS, 700 * MS], Weather::default(), 7, Trouble::None, 4 * TTL);
    assert!(grants > 20, "{grants} grants");
}
