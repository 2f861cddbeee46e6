//! Everything a caller can await, and the scenes it is awaited in: with and without others who want the same name, here and in another
//! process.

use std::sync::Mutex;

use super::*;
use crate::api::lease::Lease;
use crate::api::lock::Attempt;
use crate::types::error::Error;
use crate::types::status::Holder;
use crate::types::ticket::Ticket;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Acquire,
    TryAcquire,
    TryAcquireFor,
    Run,
    TakeOver,
    Adopt,
    Detach,
    Renew,
    Release,
    Inspect,
    List,
    Break,
    Close,
    Open,
}

pub(super) const VERBS: [Verb; 14] = [
    Verb::Acquire,
    Verb::TryAcquire,
    Verb::TryAcquireFor,
    Verb::Run,
    Verb::TakeOver,
    Verb::Adopt,
    Verb::Detach,
    Verb::Renew,
    Verb::Release,
    Verb::Inspect,
    Verb::List,
    Verb::Break,
    Verb::Close,
    Verb::Open,
];

/// Who else is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scene {
    /// Another process holds the name for a while.
    pub(super) is_held: bool,
    /// Another task of the same client waits.
    pub(super) local: bool,
    /// Another process waits.
    pub(super) remote: bool,
}

pub(super) fn scenes() -> impl Iterator<Item = Scene> {
    (0..8).map(|bits| Scene { is_held: bits & 1 > 0, local: bits & 2 > 0, remote: bits & 4 > 0 })
}

/// What a verb needs, made while the gates are open.
#[derive(Default)]
pub(super) struct Prepared {
    guard: Option<Guard>,
    ticket: Option<Ticket>,
    holder: Option<(Guard, Holder)>,
}

/// What a verb came to.
pub(super) enum Outcome {
    Guard(Guard),
    Nothing,
    Failed(Error),
}

impl Verb {
    /// What it, or what it leaves behind, asks the store for.
    pub(super) fn kinds(self) -> &'static [Kind] {
        use Kind::*;
        match self {
            Verb::Acquire => &[Connect, Join, Beat, Leave, Release],
            Verb::TryAcquire => &[Connect, Try, Leave, Release],
            Verb::TryAcquireFor => &[Connect, Join, Beat, Leave, Release],
            Verb::Run => &[Connect, Join, Beat, Renew, Leave, Release],
            Verb::TakeOver => &[Connect, TakeOver, Leave, Release],
            Verb::Adopt => &[Connect, Adopt, Leave, Release],
            Verb::Detach => &[Detach, Release],
            Verb::Renew => &[Renew, Release],
            Verb::Release => &[Release],
            Verb::Inspect => &[Connect, Inspect],
            Verb::List => &[Connect, List, Inspect],
            Verb::Break => &[Break],
            Verb::Close => &[Beat, Leave, Release],
            Verb::Open => &[Connect],
        }
    }

    /// Whether the name can be held by another process when it begins.
    pub(super) fn suits(self, scene: Scene) -> bool {
        let has_it = matches!(self, Verb::Adopt | Verb::Detach | Verb::Renew | Verb::Release | Verb::Break);
        !(scene.is_held && has_it)
    }

    pub(super) async fn prepare(self, world: &World) -> Prepared {
        let mut prepared = Prepared::default();
        match self {
            Verb::Detach | Verb::Renew | Verb::Release => prepared.guard = Some(world.mine.holds().await),
            Verb::Adopt => prepared.ticket = Some(world.other.holds().await.detach().await.unwrap()),
            Verb::Break => {
                let guard = world.other.holds().await;
                let holder = world.mine.domain.inspect(NAME).await.unwrap().holder.unwrap();
                prepared.holder = Some((guard, holder));
            }
            Verb::Close => drop(world.mine.domain.inspect(NAME).await),
            _ => {}
        }
        prepared
    }

    pub(super) fn start(
        self,
        world: &World,
        prepared: Prepared,
    ) -> impl Future<Output = Outcome> + Send + 'static {
        let (lock, domain, clock) = (world.mine.lock(), world.mine.domain.clone(), Arc::clone(&world.clock));
        async move {
            let outcome = match self {
                Verb::Acquire => lock.acquire().await.map(Outcome::Guard),
                Verb::TryAcquire => lock.try_acquire().await.map(outcome),
                Verb::TryAcquireFor => lock.try_acquire_for(250 * MS).await.map(outcome),
                Verb::Run => {
                    let work = async move |_| clock.sleep_until(clock.now() + TTL / 2).await;
                    lock.run(work).await.map(|_| Outcome::Nothing)
                }
                Verb::TakeOver => lock.take_over().await.map(Outcome::Guard),
                Verb::Adopt => prepared.ticket.unwrap().adopt(&domain).await.map(Outcome::Guard),
                Verb::Detach => match prepared.guard.unwrap().detach().await {
                    Ok(_) => Ok(Outcome::Nothing),
                    Err(returned) => Ok(Outcome::Guard(returned.guard)),
                },
                Verb::Renew => {
                    let guard = prepared.guard.unwrap();
                    let _ = guard.renew().await;
                    Ok(Outcome::Guard(guard))
                }
                Verb::Release => match prepared.guard.unwrap().release().await {
                    Ok(_) => Ok(Outcome::Nothing),
                    Err(returned) => Ok(Outcome::Guard(returned.guard)),
                },
                Verb::Inspect => domain.inspect(NAME).await.map(|_| Outcome::Nothing),
                Verb::List => domain.list("").await.map(|_| Outcome::Nothing),
                Verb::Break => {
                    let (guard, holder) = prepared.holder.unwrap();
                    let broken = domain.break_lock(NAME, &holder).await;
                    drop(guard);
                    broken.map(|_| Outcome::Nothing)
                }
                Verb::Close => {
                    domain.close().await;
                    Ok(Outcome::Nothing)
                }
                Verb::Open => domain.capabilities().await.map(|_| Outcome::Nothing),
            };
            outcome.unwrap_or_else(Outcome::Failed)
        }
    }
}

fn outcome(attempt: Attempt) -> Outcome {
    attempt.ok().map_or(Outcome::Nothing, Outcome::Guard)
}

/// Everyone who had the name, to see that they had it one after the other.
#[derive(Clone, Default)]
pub(super) struct Turns(Arc<Mutex<Vec<Lease>>>);

impl Turns {
    /// Enters a turn: whoever had the name before has not any more (I1), and had a lower fence (I3).
    pub(super) fn enter(&self, guard: &Guard) {
        let mut turns = self.0.lock().unwrap();
        if guard.is_held() {
            assert!(!turns.iter().any(Lease::is_held), "two hold the name");
            assert!(turns.iter().all(|turn| turn.fence() < guard.fence()), "fences went back");
        }
        turns.push(guard.lease().clone());
    }
}

/// The others of a scene. They have, or are told, whatever they came for before the cell ends.
pub(super) struct Others {
    tasks: Vec<(&'static str, tokio::task::JoinHandle<()>)>,
}

impl Others {
    /// Whoever holds the name before the verb begins.
    pub(super) async fn before(scene: Scene, world: &World, turns: &Turns) -> Others {
        let mut others = Others { tasks: Vec::new() };
        if scene.is_held {
            let (guard, clock) = (world.other.holds().await, Arc::clone(&world.clock));
            turns.enter(&guard);
            let hold = async move {
                clock.sleep_until(clock.now() + 150 * MS).await;
                drop(guard);
            };
            others.tasks.push(("the holder", tokio::spawn(hold)));
        }
        others
    }

    /// Those who come when the verb has begun.
    pub(super) fn come(&mut self, scene: Scene, world: &World, turns: &Turns) {
        let parties = [(scene.local, "a task", &world.mine), (scene.remote, "a process", &world.other)];
        for (_, who, party) in parties.into_iter().filter(|(comes, ..)| *comes) {
            let (lock, clock, turns) = (party.lock(), Arc::clone(&world.clock), turns.clone());
            let wait = async move {
                if let Ok(guard) = lock.acquire().await {
                    turns.enter(&guard);
                    clock.sleep_until(clock.now() + 20 * MS).await;
                }
            };
            self.tasks.push((who, tokio::spawn(wait)));
        }
    }

    pub(super) async fn are_done(self, cell: &str) {
        for (who, task) in self.tasks {
            assert!(task.is_finished(), "{cell}: {who} still waits");
            task.await.unwrap_or_else(|panic| panic!("{cell}: {who}: {panic}"));
        }
    }
}
