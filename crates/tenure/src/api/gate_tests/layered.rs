//! Layered, with an outer store that fails at every step of every verb.
//!
//! Two clients on one machine and one on another share the outer store; the requests of the first one to it pass gates. At any time, at most
//! one guard of a machine is held; a held guard that does not say that it is degraded has the outer lease, as that store shows; and
//! fences grow on a machine. At the end nothing is left in any store, within a ttl.

mod left_outside;
mod short;
mod unusable;

use std::cell::{Cell as Slot, RefCell};

use super::*;
use crate::backend::Pending;
use crate::backend::compose::layered::{Layered, LayeredListener};
use crate::core::record::{Holding, RANGE};
use crate::types::owner::Token;
use crate::url::Degrade;
use crate::{Attempt, Lease, Release, Ticket};

/// Far longer than anything may be left in a store. A command may take 2 s with it.
const TTL: Duration = Duration::from_secs(12);

const FATES: [Fate; 10] = [
    Fate::Wire,
    Fate::Slow(Duration::from_millis(400)),
    Fate::Slow(Duration::from_millis(3_000)),
    Fate::Sticky(Duration::from_millis(1_500)),
    Fate::Down,
    Fate::Broken(Run::Not),
    Fate::Broken(Run::First),
    Fate::Broken(Run::Late(Duration::from_millis(1_200))),
    Fate::Never(Run::First),
    Fate::Never(Run::Late(Duration::from_millis(1_800))),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Acquire,
    TryAcquire,
    /// While another process of the machine holds it, and releases it.
    WaitHere,
    /// While another machine holds it, and releases it.
    WaitThere,
    /// The same, and it loses its inner lease meanwhile.
    LosesInner,
    /// Dropped after it has waited for a while.
    Cancel,
    Renew,
    /// Held, and renewed in the background.
    Hold,
    Release,
    Detach,
    Adopt,
    TakeOver,
    Break,
}

impl Verb {
    const ALL: [Verb; 13] = [
        Verb::Acquire,
        Verb::TryAcquire,
        Verb::WaitHere,
        Verb::WaitThere,
        Verb::LosesInner,
        Verb::Cancel,
        Verb::Renew,
        Verb::Hold,
        Verb::Release,
        Verb::Detach,
        Verb::Adopt,
        Verb::TakeOver,
        Verb::Break,
    ];

    /// What it may send to the outer store.
    fn kinds(self) -> &'static [Kind] {
        match self {
            Verb::Acquire => &[Kind::Join, Kind::Leave, Kind::Release],
            Verb::TryAcquire => &[Kind::Try, Kind::Leave, Kind::Release],
            Verb::WaitHere => &[Kind::Join, Kind::Release],
            Verb::WaitThere | Verb::LosesInner | Verb::Cancel => &[Kind::Join, Kind::Beat, Kind::Leave],
            Verb::Renew | Verb::Hold => &[Kind::Renew, Kind::Release],
            Verb::Release => &[Kind::Release, Kind::Leave],
            Verb::Detach => &[Kind::Detach, Kind::Release],
            Verb::Adopt => &[Kind::Adopt, Kind::Renew, Kind::Leave],
            Verb::TakeOver => &[Kind::TakeOver, Kind::Renew, Kind::Leave],
            Verb::Break => &[Kind::Break, Kind::Inspect],
        }
    }
}

struct Cell {
    degrade: Degrade,
    verb: Verb,
    kind: Kind,
    fate: Fate,
    is_once: bool,
}

impl Cell {
    fn name(&self) -> String {
        let Cell { degrade, verb, kind, fate, is_once } = self;
        format!("{degrade:?}, {verb:?}; {kind:?} is {fate:?} {}", if *is_once { "once" } else { "always" })
    }
}

fn cells(degrade: Degrade) -> impl Iterator<Item = Cell> {
    let kinds = Verb::ALL.into_iter().flat_map(|verb| verb.kinds().iter().map(move |&kind| (verb, kind)));
    kinds.flat_map(move |(verb, kind)| {
        FATES
            .into_iter()
            .flat_map(move |fate| [true, false].map(|is_once| Cell { degrade, verb, kind, fate, is_once }))
    })
}

/// A store, and how to look into it.
struct Shown {
    store: Arc<MemoryStore>,
    observer: Memory,
}

impl Shown {
    fn new(clock: &Arc<ManualClock>) -> Self {
        let store = Arc::new(MemoryStore::new(Clock::Manual(Arc::clone(clock))));
        let nobody: Weak<Client> = Weak::new();
        Shown { observer: Memory::connect(Arc::clone(&store), nobody), store }
    }

    /// Takes the name from its holder, for a moment.
    fn take_away(&self) {
        let name = Name::new(NAME).expect("a valid name");
        let ttl = 300 * MS;
        let token = Token::fresh(self.observer.session(), "", ttl);
        drop(self.observer.execute(&name, Op::TakeOver { token, ttl, floor: 0, not_after: u64::MAX }));
    }

    fn seen(&self) -> (Option<Holding>, usize) {
        let name = Name::new(NAME).expect("a valid name");
        let Pending::Now(Some(Ok(answer))) = self.observer.execute(&name, Op::Inspect) else {
            unreachable!("the memory store answers at once");
        };
        let Reply::Seen { holding, waiters, .. } = answer.reply else { unreachable!("it was inspected") };
        (holding, waiters.len())
    }
}

struct World {
    clock: Arc<ManualClock>,
    here: Shown,
    there: Shown,
    outer: Shown,
    mine: Party,
    other: Party,
    far: Party,
    /// The guards of this machine, then those of the other one, except those that a verb has.
    guards: RefCell<[Vec<Guard>; 2]>,
    /// All leases so far.
    leases: RefCell<[Vec<Lease>; 2]>,
    last_fence: Slot<u64>,
}

impl World {
    fn new(degrade: Degrade) -> Self {
        let clock = Arc::new(ManualClock::new());
        let [here, there, outer] = [Shown::new(&clock), Shown::new(&clock), Shown::new(&clock)];
        World {
            mine: party(&clock, &here.store, &outer.store, degrade),
            other: party(&clock, &here.store, &outer.store, degrade),
            far: party(&clock, &there.store, &outer.store, degrade),
            clock,
            here,
            there,
            outer,
            guards: RefCell::default(),
            leases: RefCell::default(),
            last_fence: Slot::new(0),
        }
    }

    /// Adds a new guard of this machine.
    fn enter(&self, guard: Guard, cell: &str) {
        let fence = guard.fence().get();
        assert!(fence > self.last_fence.replace(fence), "{cell}: fences grow on a machine");
        self.add(0, guard);
        self.check(cell);
    }

    fn add(&self, machine: usize, guard: Guard) {
        self.leases.borrow_mut()[machine].push(Lease::clone(guard.lease()));
        self.guards.borrow_mut()[machine].push(guard);
    }

    fn check(&self, cell: &str) {
        let leases = self.leases.borrow();
        for machine in &*leases {
            let held = machine.iter().filter(|guard| guard.is_held()).count();
            assert!(held <= 1, "{cell}: {held} holders on one machine");
        }
        let (holder, _) = self.outer.seen();
        for guard in leases.iter().flatten().filter(|guard| guard.is_held() && !guard.is_degraded()) {
            let Some(holding) = holder.as_ref().filter(|holding| holding.token == guard.0.lease.token) else {
                panic!("{cell}: whole, and not held in the outer store, but {holder:?}");
            };
            let range = holding.fence..holding.fence + RANGE;
            assert!(range.contains(&guard.fence().get()), "{cell}: whole, and with another fence");
        }
    }

    async fn pass(&self, time: Duration, cell: &str) {
        let steps = time.as_millis() / 100;
        for _ in 0..steps {
            self.clock.advance(100 * MS).await;
            self.check(cell);
        }
    }
}

fn party(
    clock: &Arc<ManualClock>,
    inner: &Arc<MemoryStore>,
    outer: &Arc<MemoryStore>,
    degrade: Degrade,
) -> Party {
    let clock = Clock::Manual(Arc::clone(clock));
    let gates = Gates::new(clock.clone());
    let (behind, inner, outer, time) =
        (Arc::clone(&gates), Arc::clone(inner), Arc::clone(outer), clock.clone());
    let connect = move |sink| {
        let listener: Arc<dyn crate::backend::Sink> = Arc::new(LayeredListener(sink));
        let inner = Arc::new(Memory::connect(Arc::clone(&inner), Arc::downgrade(&listener)));
        let session = inner.session().clone();
        let outer =
            Memory::connect_as(Arc::clone(&outer), Arc::downgrade(&listener), Arc::default(), session);
        let layered = Layered::new(inner, behind.before(outer), listener, degrade, None, time.clone());
        Pending::now(Ok(Arc::new(layered) as Arc<dyn Backend>))
    };
    let client = crate::engine::new_client(clock, Box::new(connect));
    let domain = Domain::with(Arc::clone(&client), Terms::new(TTL, None), "gate:");
    Party { client: Arc::downgrade(&client), domain, gates }
}

/// What a verb needs before it begins.
struct Before {
    ticket: Option<Ticket>,
    other: Domain,
}

async fn prepare(world: &World, cell: &Cell, name: &str) -> Before {
    let mut before = Before { ticket: None, other: world.other.domain.clone() };
    match cell.verb {
        Verb::Acquire | Verb::TryAcquire => {}
        Verb::WaitHere | Verb::Break => world.enter(world.other.holds().await, name),
        Verb::WaitThere | Verb::LosesInner | Verb::Cancel | Verb::TakeOver => {
            world.add(1, world.far.holds().await);
        }
        Verb::Renew | Verb::Hold | Verb::Release | Verb::Detach => {
            world.enter(world.mine.holds().await, name)
        }
        Verb::Adopt => before.ticket = Some(world.other.holds().await.detach().await.expect("open gates")),
    }
    before
}

/// Executes the verb; returns the guard that is left.
async fn start(
    domain: Domain,
    clock: Arc<ManualClock>,
    verb: Verb,
    before: Before,
    mut guard: Option<Guard>,
) -> Option<Guard> {
    let lock = domain.lock(NAME);
    match verb {
        Verb::Acquire | Verb::WaitHere | Verb::WaitThere | Verb::LosesInner => lock.acquire().await.ok(),
        Verb::TryAcquire => lock.try_acquire().await.ok().and_then(Attempt::ok),
        Verb::Cancel => {
            tokio::select! {
                biased;
                guard = lock.acquire() => guard.ok(),
                () = std::future::pending() => None,
            }
        }
        Verb::Renew => {
            let guard = guard.take().expect("it was acquired");
            for _ in 0..4 {
                drop(guard.renew().await);
                clock.sleep_until(clock.now() + TTL / 3).await;
            }
            Some(guard)
        }
        Verb::Hold => guard,
        Verb::Release => match guard.take().expect("it was acquired").release().await {
            Ok(end) => {
                assert_eq!(end, Release::Released, "a release that comes back in time");
                None
            }
            Err(returned) => Some(returned.guard),
        },
        Verb::Detach => match guard.take().expect("it was acquired").detach().await {
            Ok(ticket) => {
                while ticket.release(&before.other).await.is_err() {}
                None
            }
            Err(returned) => Some(returned.guard),
        },
        Verb::Adopt => {
            let ticket = before.ticket.expect("it was detached");
            let adopted = ticket.adopt(&domain).await;
            // Only its owner may end a lease that could not be adopted.
            while adopted.is_err() && ticket.release(&before.other).await.is_err() {}
            adopted.ok()
        }
        Verb::TakeOver => lock.take_over().await.ok(),
        Verb::Break => {
            if let Ok(status) = domain.inspect(NAME).await
                && let Some(holder) = status.holder
            {
                drop(domain.break_lock(NAME, &holder).await);
            }
            None
        }
    }
}

fn run(cell: &Cell) {
    let name = cell.name();
    test(&name, async {
        let world = World::new(cell.degrade);
        let before = prepare(&world, cell, &name).await;
        let mine = match cell.verb {
            Verb::Renew | Verb::Hold | Verb::Release | Verb::Detach => world.guards.borrow_mut()[0].pop(),
            _ => None,
        };
        match cell.is_once {
            true => world.mine.gates.once(cell.kind, cell.fate),
            false => world.mine.gates.set(cell.kind, cell.fate),
        }
        let verb =
            tokio::spawn(start(world.mine.domain.clone(), Arc::clone(&world.clock), cell.verb, before, mine));
        for step in 0..400 {
            world.pass(100 * MS, &name).await;
            match step {
                4 if cell.verb == Verb::Cancel => verb.abort(),
                4 if cell.verb == Verb::LosesInner => world.here.take_away(),
                // The holder that the verb waits for releases it.
                12 => world.guards.borrow_mut().iter_mut().for_each(Vec::clear),
                _ => {}
            }
            if verb.is_finished() {
                break;
            }
        }
        assert!(verb.is_finished(), "{name}: hangs");
        if let Some(guard) = verb.await.ok().flatten() {
            // A guard from before has an old fence.
            let is_new = !matches!(cell.verb, Verb::Renew | Verb::Hold | Verb::Release | Verb::Detach);
            match is_new {
                true => world.enter(guard, &name),
                false => world.guards.borrow_mut()[0].push(guard),
            }
        }
        let held = if cell.verb == Verb::Hold { 2 * TTL } else { TTL / 2 };
        world.pass(held, &name).await;
        // Half of the cells release it while the outer store still fails.
        if cell.is_once {
            world.mine.gates.open();
        }
        world.guards.borrow_mut().iter_mut().for_each(Vec::clear);
        world.pass(100 * MS, &name).await;
        world.mine.gates.open();
        world.pass(TTL / 3, &name).await;
        for (store, which) in [(&world.here, "here"), (&world.there, "there"), (&world.outer, "outside")] {
            assert_eq!(store.seen(), (None, 0), "{name}: left {which}");
        }
        for party in [&world.mine, &world.other, &world.far] {
            let guard = party.holds().await;
            assert!(!guard.is_degraded(), "{name}: everyone has both again");
            guard.release().await.expect("open gates");
        }
    });
}

fn every_cell(degrade: Degrade) {
    let mut failed = 0;
    let count = cells(degrade)
        .map(|cell| failed += usize::from(std::panic::catch_unwind(|| run(&cell)).is_err()))
        .count();
    println!("{count} cells");
    assert_eq!(failed, 0, "cells failed; each said why");
}

// R0.2, I5
#[test]
fn every_step_survives_with_degrade_never() {
    every_cell(Degrade::Never);
}

// R0.2, I5
#[test]
fn every_step_survives_with_degrade_allow() {
    every_cell(Degrade::Allow);
}
