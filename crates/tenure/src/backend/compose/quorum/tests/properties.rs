//! Any servers, any clocks, any faults: no two clients believe in a lease at once (S1), and fences grow in the order of the grants (S2).

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use proptest::prelude::*;
use tenure_testkit::dice::Dice;

use super::{Faults, Log, MS, NAME, Server, TTL, World};
use crate::api::domain::Domain;
use crate::api::guard::Guard;
use crate::api::lease::Lease;
use crate::sync::Mutex;
use crate::time::clock::{Clock, Moment};

/// How long the effects of force last, at most: until its late requests are executed, and the leases end that it took.
const AFTERMATH: Duration = Duration::from_millis(2_000);

/// Sees the leases of all clients, which no real client could.
struct Observer {
    clock: Clock,
    checks_overlaps: bool,
    seen: std::sync::Mutex<Seen>,
    is_over: std::sync::atomic::AtomicBool,
    log: Log,
}

#[derive(Default)]
struct Seen {
    /// The leases that are believed, and since when.
    holders: Vec<(Lease, Moment)>,
    last: Option<(u64, Moment)>,
    /// Until then, a holder may have lost the name to force without knowing it yet.
    forced_until: Option<Moment>,
    grants: u64,
}

impl Observer {
    fn new(world: &World, checks_overlaps: bool) -> Self {
        Observer {
            clock: Clock::Manual(Arc::clone(&world.clock)),
            checks_overlaps,
            seen: Default::default(),
            is_over: Default::default(),
            log: world.log.clone(),
        }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn granted(&self, lease: &Lease, begun: Moment) {
        let (mut seen, now) = (self.seen(), self.clock.now());
        let forced_until = seen.forced_until;
        self.log.note(&self.clock, format_args!("granted: {lease:?}"));
        let counts = |since: Moment| forced_until.is_none_or(|until| since >= until);
        let is_other = |(other, since): &&(Lease, Moment)| other.is_held() && counts(*since);
        let others = seen.holders.iter().filter(is_other).count();
        assert!(others == 0 || !self.checks_overlaps, "S1: granted while another holds it");
        let fence = lease.fence().get();
        let before = seen.last.replace((fence, now)).filter(|(_, since)| counts(*since));
        // If a server's clock jumps between its own grant and the last one of the majority, it may have granted the name to another.
        let before = before.filter(|(_, since)| self.checks_overlaps || *since < begun);
        assert!(before.is_none_or(|(before, _)| fence > before), "S2: {fence} after {before:?}");
        seen.grants += 1;
        seen.holders.push((lease.clone(), now));
    }

    /// A client takes the name over from here on.
    fn forces(&self) {
        self.log.note(&self.clock, "force");
        self.seen().forced_until = Some(self.clock.now() + AFTERMATH);
    }

    fn ends(&self, lease: &Lease) {
        self.log.note(&self.clock, format_args!("ends: {lease:?}"));
        self.seen().holders.retain(|(other, _)| other.fence() != lease.fence());
    }
}

struct Worker {
    domain: Domain,
    observer: Arc<Observer>,
    dice: Dice,
    uses_force: bool,
}

impl Worker {
    async fn work(mut self) {
        while !self.observer.is_over.load(Ordering::SeqCst) {
            let begun = self.observer.clock.now();
            if let Some(guard) = self.enters().await {
                self.holds(guard, begun).await;
            }
            let clock = &self.observer.clock;
            clock.sleep_until(clock.now() + Duration::from_millis(self.dice.roll(30))).await;
        }
    }

    async fn enters(&mut self) -> Option<Guard> {
        // Tasks of one client that ask for different ttls do not share a lease.
        let lock = self.domain.lock(NAME);
        let lock = if self.dice.roll(3) == 0 { lock.ttl(TTL * 3 / 4) } else { lock };
        let patience = Duration::from_millis(50 + self.dice.roll(800));
        if self.uses_force && self.dice.roll(60) == 0 {
            let before = self.observer.seen().last.map_or(0, |(fence, _)| fence);
            self.observer.forces();
            let taken = lock.take_over().await.ok();
            self.observer.forces();
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
            let lease = Lease::clone(guard.lease());
            self.observer.granted(&lease, begun);
            let hold = if self.dice.roll(24) == 0 { 200 + self.dice.roll(1_500) } else { self.dice.roll(20) };
            let clock = &self.observer.clock;
            clock.until(clock.now() + Duration::from_millis(hold), guard.lost()).await;
            self.observer.ends(&lease);
            match self.dice.roll(24) {
                0..8 => return drop(guard),
                8 => {
                    let Ok(ticket) = guard.detach().await else { return };
                    // Nobody uses the ticket: the lease runs out.
                    if self.dice.roll(2) == 0 {
                        return;
                    }
                    begun = self.observer.clock.now();
                    let Ok(adopted) = ticket.adopt(&self.domain).await else { return };
                    guard = adopted;
                }
                _ => return drop(guard.release().await),
            }
        }
    }
}

/// What happens to the servers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trouble {
    None,
    /// They go away and come back with their data, or are paused and resume.
    Outages,
    /// Their clocks jump, too.
    Jumps,
    /// Clients take the name over, too.
    Force,
    /// Any number of them restart without their data, too.
    Restarts,
}

/// Runs the clients for `time`; returns the number of grants.
fn run(skews: &[Duration], faults: Faults, seed: u64, trouble: Trouble, time: Duration) -> u64 {
    let jumps = trouble == Trouble::Jumps;
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let world = Arc::new(World::new(skews, faults, seed));
        let observer = Arc::new(Observer::new(&world, !jumps));
        let clients: Vec<_> = (0..4).map(|_| world.client()).collect();
        // Two of the clients have a second task, which may get a lease that the first task asked for.
        let second = if jumps { &[][..] } else { &clients[..2] };
        let workers: Vec<_> = (clients.iter().chain(second).zip(1..))
            .map(|(client, number)| {
                let (domain, observer) = (client.clone(), Arc::clone(&observer));
                let dice = Dice(seed.wrapping_mul(2 * number + 1) | 1);
                let worker = Worker { domain, observer, dice, uses_force: trouble == Trouble::Force };
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
                disturb(&world, &mut dice, trouble);
            }
            // A worker panics if the observer has seen a violation.
            if workers.iter().any(|worker| worker.is_finished()) {
                break;
            }
        }
        observer.is_over.store(true, Ordering::SeqCst);
        calm(&world);
        for worker in workers {
            let worked = world.drive(worker).await;
            if worked.is_err() {
                world.log.print();
            }
            worked.expect("nothing that must not be");
        }
        let seen = observer.seen();
        seen.grants
    })
}

fn calm(world: &World) {
    for server in &world.servers {
        server.is_down.store(false, Ordering::SeqCst);
        server.is_paused.store(false, Ordering::SeqCst);
    }
}

fn disturb(world: &World, dice: &mut Dice, trouble: Trouble) {
    let which = usize::try_from(dice.roll(world.servers.len() as u64)).expect("a small number");
    let server = &world.servers[which];
    match dice.roll(8) {
        0 | 1 => drop(server.is_down.fetch_xor(true, Ordering::SeqCst)),
        2 => drop(server.is_paused.fetch_xor(true, Ordering::SeqCst)),
        3 if trouble == Trouble::Jumps => server.clock.jump(Duration::from_millis(dice.roll(3_000))),
        4 if trouble == Trouble::Restarts => {
            let restarts = |_: &&Arc<Server>| dice.roll(2) == 0;
            world.servers.iter().filter(restarts).for_each(|server| server.restart(world.clock.now()));
        }
        _ => calm(world),
    }
}

fn faults_of_any_kind() -> impl Strategy<Value = Faults> {
    (0_u64..6, 0_u64..6, 0_u64..12, 0_u64..12).prop_map(
        |(lost_requests, lost_replies, late_requests, late_replies)| Faults {
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
    fn nobody_overlaps_and_fences_grow(skews in skews(), faults in faults_of_any_kind(), seed in 1_u64..) {
        let grants = run(&skews, faults, seed, Trouble::Outages, 4 * TTL);
        let mut all = GRANTS.lock();
        *all += grants;
        println!("{grants} grants, {} in all", *all);
    }

    // R3.9: a holder that lost the name to force may not know it for a while. Nobody takes over with an old fence.
    #[test]
    fn the_effects_of_force_end(skews in skews(), faults in faults_of_any_kind(), seed in 1_u64..) {
        run(&skews, faults, seed, Trouble::Force, 12 * TTL);
    }

    // R3.9, S1: servers that forgot do not count until the leases have ended which they forgot. Clocks that differ by less than a ttl keep S2.
    #[test]
    fn nobody_overlaps_although_any_number_of_servers_forget(
        skews in prop::collection::vec((0_u64..400).prop_map(Duration::from_millis), 3..=5),
        faults in faults_of_any_kind(),
        seed in 1_u64..,
    ) {
        let grants = run(&skews, faults, seed, Trouble::Restarts, 12 * TTL);
        println!("{grants} grants");
    }

    // B1: a server whose clock jumps ends leases too early; then fences are what is left.
    #[test]
    fn fences_grow_when_clocks_jump(skews in skews(), faults in faults_of_any_kind(), seed in 1_u64..) {
        run(&skews, faults, seed, Trouble::Jumps, 4 * TTL);
    }
}

#[test]
fn a_calm_run_has_many_grants() {
    let grants = run(&[Duration::ZERO, 3 * MS, 700 * MS], Faults::default(), 7, Trouble::None, 4 * TTL);
    assert!(grants > 20, "{grants} grants");
}
