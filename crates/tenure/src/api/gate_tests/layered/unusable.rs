//! A token that is unusable in the outer store.

use super::*;

// R3.6: an unacknowledged leave makes the token unusable, and the waiter continues.
#[test]
fn a_waiter_whose_token_is_unusable_outside_continues_with_another() {
    test("unusable", async {
        let world = World::new(Degrade::Never);
        let held = world.far.holds().await;
        let lock = world.mine.lock();
        let waiting = tokio::spawn(async move { lock.acquire().await });
        world.pass(400 * MS, "unusable").await;
        world.mine.gates.once(Kind::Leave, Fate::Broken(Run::Not));
        world.here.take_away();
        world.pass(2_000 * MS, "unusable").await;
        held.release().await.expect("open gates");
        world.pass(2 * TTL, "unusable").await;
        assert!(waiting.is_finished(), "it hangs");
        let guard = waiting.await.expect("no panic").expect("its turn");
        world.enter(guard, "unusable");
        assert!(world.mine.gates.executed(Kind::Leave) > 0, "the old token left");
    });
}
