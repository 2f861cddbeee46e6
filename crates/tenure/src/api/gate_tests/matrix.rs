//! {ok, error, slow, never} at every await of every verb, and every verb cancelled at every poll.
//!
//! A cell is a verb, in a scene, with one kind of request that meets one fate: for as long as the gates are closed, or once. At its end
//! the world is clean again. Cancelling polls the verb k times, for every k until it completes, and drops it there.

use super::verbs::{Others, Outcome, Scene, Turns, VERBS, Verb, scenes};
use super::*;

/// A command may take 500 ms here.
const FATES: [Fate; 11] = [
    Fate::Wire,
    Fate::Slow(Duration::from_millis(100)),
    Fate::Slow(Duration::from_millis(800)),
    Fate::Sticky(Duration::from_millis(400)),
    Fate::Down,
    Fate::Broken(Run::Not),
    Fate::Broken(Run::First),
    Fate::Broken(Run::Late(Duration::from_millis(300))),
    Fate::Never(Run::Not),
    Fate::Never(Run::First),
    Fate::Never(Run::Late(Duration::from_millis(450))),
];

/// An attempt to connect may take this long, and then everyone may still need a ttl.
const LONGEST: Duration = Duration::from_secs(16);

struct Cell {
    verb: Verb,
    scene: Scene,
    kind: Kind,
    fate: Fate,
    is_once: bool,
}

impl Cell {
    fn name(&self) -> String {
        let Cell { verb, scene, kind, fate, is_once } = self;
        let others = [(scene.is_held, "held"), (scene.local, "task waits"), (scene.remote, "process waits")];
        let others = others.into_iter().filter(|(is, _)| *is).map(|(_, who)| format!(", {who}"));
        let often = if *is_once { "once" } else { "always" };
        format!("{verb:?}{}; {kind:?} is {fate:?} {often}", others.collect::<String>())
    }

    fn gate(&self, world: &World) {
        if self.is_once {
            world.mine.gates.once(self.kind, self.fate);
        } else {
            world.mine.gates.set(self.kind, self.fate);
        }
    }
}

fn cells() -> impl Iterator<Item = Cell> {
    let scenes = VERBS.into_iter().flat_map(|verb| scenes().map(move |scene| (verb, scene)));
    scenes.filter(|(verb, scene)| verb.suits(*scene)).flat_map(|(verb, scene)| {
        verb.kinds().iter().flat_map(move |&kind| {
            FATES
                .into_iter()
                .flat_map(move |fate| [true, false].map(|is_once| Cell { verb, scene, kind, fate, is_once }))
        })
    })
}

// I5, R1.4, R3.5, R3.6, R3.7
#[test]
fn every_await_survives_whatever_the_store_does() {
    let mut failed = 0;
    let count =
        cells().map(|cell| failed += usize::from(std::panic::catch_unwind(|| run(&cell)).is_err())).count();
    println!("{count} cells");
    assert_eq!(failed, 0, "cells failed; each said why");
}

fn run(cell: &Cell) {
    let name = cell.name();
    test(&name, async {
        let (world, turns) = (World::new(), Turns::default());
        let prepared = cell.verb.prepare(&world).await;
        let mut others = Others::before(cell.scene, &world, &turns).await;
        cell.gate(&world);
        let verb = tokio::spawn(cell.verb.start(&world, prepared));
        tokio::task::yield_now().await;
        others.come(cell.scene, &world, &turns);
        for _ in 0..LONGEST.as_millis() / 250 {
            if verb.is_finished() {
                break;
            }
            world.pass(250 * MS).await;
        }
        assert!(verb.is_finished(), "{name}: hangs");
        end(cell, &name, &world, &turns, verb.await.expect("no panic"), others).await;
    });
}

async fn end(cell: &Cell, name: &str, world: &World, turns: &Turns, outcome: Outcome, others: Others) {
    match outcome {
        Outcome::Guard(guard) => {
            if !matches!(cell.verb, Verb::TakeOver | Verb::Break) {
                turns.enter(&guard);
            }
            world.pass(50 * MS).await;
            drop(guard);
        }
        Outcome::Failed(error) => assert!(
            error.is_transient() || matches!(cell.verb, Verb::Adopt | Verb::Run),
            "{name}: a store that is out of reach is a transient error, not {error:?}"
        ),
        Outcome::Nothing => {}
    }
    world.mine.gates.open();
    if cell.kind == Kind::Connect {
        world.pass(LONGEST).await;
    }
    world.pass(TTL + 300 * MS).await;
    others.are_done(name).await;
    world.is_empty(name).await;
}

// I5, R1.4
#[test]
fn every_verb_can_be_cancelled_at_every_poll() {
    let fates =
        [Fate::AtOnce, Fate::Wire, Fate::Slow(100 * MS), Fate::Broken(Run::First), Fate::Never(Run::First)];
    let late = Fate::Never(Run::Late(200 * MS));
    let (mut count, mut failed) = (0, 0);
    for cell in cells().filter(|cell| cell.fate == Fate::Wire && !cell.is_once) {
        for fate in fates.into_iter().chain([late]) {
            let cell = Cell { fate, ..cell };
            for polls in 0.. {
                count += 1;
                match std::panic::catch_unwind(|| cancel(&cell, polls)) {
                    Ok(has_completed) if !has_completed => {}
                    outcome => {
                        failed += usize::from(outcome.is_err());
                        break;
                    }
                }
            }
        }
    }
    println!("{count} cells");
    assert_eq!(failed, 0, "cells failed; each said why");
}

/// Drops the verb after so many polls; true when it completed before.
fn cancel(cell: &Cell, polls: usize) -> bool {
    let name = format!("{}; cancelled after {polls} polls", cell.name());
    let mut has_completed = false;
    test(&name, async {
        let (world, turns) = (World::new(), Turns::default());
        let prepared = cell.verb.prepare(&world).await;
        let mut others = Others::before(cell.scene, &world, &turns).await;
        cell.gate(&world);
        let mut verb = ByHand::new(cell.verb.start(&world, prepared));
        let mut outcome = None;
        for poll in 0..polls {
            outcome = verb.poll();
            if poll == 0 {
                others.come(cell.scene, &world, &turns);
            }
            if outcome.is_some() {
                break;
            }
            for _ in 0..LONGEST.as_millis() / 50 {
                world.settle().await;
                if verb.is_woken() {
                    break;
                }
                world.pass(50 * MS).await;
            }
            assert!(verb.is_woken(), "{name}: hangs");
        }
        if polls == 0 {
            others.come(cell.scene, &world, &turns);
        }
        drop(verb);
        has_completed = outcome.is_some();
        end(cell, &name, &world, &turns, outcome.unwrap_or(Outcome::Nothing), others).await;
    });
    has_completed
}
