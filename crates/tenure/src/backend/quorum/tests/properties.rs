//! Any servers, any clocks, any weather: nobody believes in a lease while another does (S1), and fences grow in the order of the grants (S2).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use proptest::prelude::*;
use tenure_testkit::dice::Dice;

use super::{MS, NAME, TTL, Weather, World};
use crate::domain::Domain;
use crate::sync::Mutex;
use crate::tenure::Tenure;

/// What all clients see of each other, and no real one could.
#[derive(Default)]
struct Witness {
    /// Who believes to hold the name: nobody else may.
    holders: std::sync::Mutex<Vec<Tenure>>,
    last_fence: AtomicU64,
    grants: AtomicU64,
    is_over: std::sync::atomic::AtomicBool,
}

impl Witness {
    fn granted(&self, tenure: &Tenure, checks_overlaps: bool) {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        let others = holders.iter().filter(|other| other.is_held()).count();
        assert!(others == 0 || !checks_overlaps, "S1: granted while another holds it");
        let before = self.last_fence.swap(tenure.fence().get(), Ordering::SeqCst);
        assert!(tenure.fence().get() > before, "S2: {} after {before}", tenure.fence());
        self.grants.fetch_add(1, Ordering::SeqCst);
        holders.push(tenure.clone());
    }

    fn ends(&self, tenure: &Tenure) {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        holders.retain(|other| other.fence() != tenure.fence());
    }
}

async fn work(domain: Domain, world: Arc<World>, witness: Arc<Witness>, mut dice: Dice, checks: bool) {
    let clock = crate::clock::Clock::Manual(Arc::clone(&world.clock));
    while !witness.is_over.load(Ordering::SeqCst) {
        let lock = domain.lock(NAME);
        let patience = Duration::from_millis(50 + dice.roll(800));
        let attempt = match dice.roll(3) {
            0 => lock.try_acquire().await,
            _ => lock.try_acquire_for(patience).await,
        };
        if let Some(guard) = attempt.ok().and_then(|attempt| attempt.ok()) {
            let tenure = Tenure::clone(&guard);
            witness.granted(&tenure, checks);
            let hold = if dice.roll(24) == 0 { 200 + dice.roll(1_500) } else { dice.roll(20) };
            let over = clock.now() + Duration::from_millis(hold);
            clock.until(over, guard.lost()).await;
            witness.ends(&tenure);
            match dice.roll(3) {
                0 => drop(guard),
                1 => drop(guard.release().await),
                // Gone without a word: the lease runs out, and is believed in until then.
                _ if dice.roll(8) == 0 => {
                    if let Ok(ticket) = guard.detach().await {
                        drop(ticket);
                    }
                }
                _ => drop(guard.release().await),
            }
        }
        clock.sleep_until(clock.now() + Duration::from_millis(dice.roll(30))).await;
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
}

/// A run of `time`; returns how many grants there were.
fn run(skews: &[Duration], weather: Weather, seed: u64, trouble: Trouble, time: Duration) -> u64 {
    let jumps = trouble == Trouble::Jumps;
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let world = Arc::new(World::new(skews, weather, seed));
        let witness = Arc::new(Witness::default());
        let workers: Vec<_> = (1..=4)
            .map(|number| {
                let dice = Dice(seed.wrapping_mul(2 * number + 1) | 1);
                let (world, witness) = (Arc::clone(&world), Arc::clone(&witness));
                tokio::spawn(work(world.client(), world, witness, dice, !jumps))
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
            world.drive(worker).await.expect("nothing that must not be");
        }
        witness.grants.load(Ordering::SeqCst)
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
