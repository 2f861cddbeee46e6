//! What a failed bid leaves in an outer store that is silent for longer than the engine repeats its requests. (The matrix heals sooner.)

use super::*;

/// Longer than the engine repeats a leave; shorter than a ttl.
const OUTAGE: Duration = Duration::from_secs(7);

// R1.4: the outer store granted it, its answer was lost, and the caller is gone.
#[test]
fn the_grant_of_a_dropped_acquire_is_undone_after_an_outage() {
    test("dropped, then an outage", async {
        for kind in [Kind::Join, Kind::Try, Kind::TakeOver] {
            let (world, cell) = (World::new(Degrade::Allow), format!("{kind:?}"));
            world.mine.gates.once(kind, Fate::Never(Run::First));
            world.mine.gates.set(Kind::Leave, Fate::Never(Run::Not));
            let lock = world.mine.lock();
            let asking = tokio::spawn(async move {
                match kind {
                    Kind::Join => lock.acquire().await.map(drop),
                    Kind::Try => lock.try_acquire().await.map(drop),
                    _ => lock.take_over().await.map(drop),
                }
            });
            world.pass(100 * MS, &cell).await;
            asking.abort();
            world.pass(OUTAGE, &cell).await;
            assert!(world.outer.seen().0.is_some(), "{cell}: it was granted outside");
            assert_eq!(world.here.seen(), (None, 0), "{cell}: left here");
            world.mine.gates.open();
            world.pass(Duration::from_secs(2), &cell).await;
            assert_eq!(world.outer.seen(), (None, 0), "{cell}: left outside");
        }
    });
}

// R1.4, rule 6: the outer store executes it when the caller is gone, and after an answered leave.
#[test]
fn a_late_request_of_a_dropped_acquire_is_undone_after_an_outage() {
    test("dropped, and late", async {
        let (world, cell) = (World::new(Degrade::Allow), "late");
        world.mine.gates.once(Kind::Join, Fate::Never(Run::Late(Duration::from_millis(1_500))));
        let lock = world.mine.lock();
        let asking = tokio::spawn(async move { lock.acquire().await.map(drop) });
        world.pass(100 * MS, cell).await;
        asking.abort();
        world.pass(200 * MS, cell).await;
        assert!(world.mine.gates.executed(Kind::Leave) > 0, "it has left");
        world.mine.gates.set(Kind::Leave, Fate::Never(Run::Not));
        world.pass(OUTAGE, cell).await;
        assert!(world.outer.seen().0.is_some(), "the late request was granted it");
        world.mine.gates.open();
        world.pass(Duration::from_secs(2), cell).await;
        assert_eq!(world.outer.seen(), (None, 0), "left outside");
    });
}

// R1.4, rule 6: a refused caller knows nothing of an unacknowledged request before the refusal.
#[test]
fn a_late_request_of_a_refused_try_is_undone() {
    test("refused, and late", async {
        let (world, cell) = (World::new(Degrade::Allow), "refused");
        world.add(1, world.far.holds().await);
        world.mine.gates.once(Kind::Try, Fate::Broken(Run::Late(300 * MS)));
        let lock = world.mine.lock();
        let asking = tokio::spawn(async move { lock.try_acquire().await.expect("an answer").is_acquired() });
        world.pass(200 * MS, cell).await;
        assert!(!asking.await.expect("no panic"));
        world.guards.borrow_mut()[1].clear();
        world.pass(200 * MS, cell).await;
        assert!(world.outer.seen().0.is_some(), "the late request was granted it");
        world.pass(TTL / 3, cell).await;
        assert_eq!(world.outer.seen(), (None, 0), "left outside");
    });
}

// R2.5: this client does not know how long the lease of a ticket lasts.
#[test]
fn a_ticket_that_was_released_inside_is_released_outside_after_an_outage() {
    test("ticket", async {
        let (world, cell) = (World::new(Degrade::Allow), "ticket");
        let ticket = world.other.holds().await.detach().await.expect("open gates");
        for kind in [Kind::Release, Kind::Leave] {
            world.mine.gates.set(kind, Fate::Down);
        }
        ticket.release(&world.mine.domain).await.expect("in the directory");
        assert_eq!(world.here.seen(), (None, 0), "left here");
        world.pass(Duration::from_secs(3), cell).await;
        assert!(world.outer.seen().0.is_some(), "nobody could release it outside");
        world.mine.gates.open();
        world.pass(Duration::from_secs(2), cell).await;
        assert_eq!(world.outer.seen(), (None, 0), "left outside");
    });
}
