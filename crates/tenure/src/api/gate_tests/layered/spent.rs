//! A token of which nothing can come in the outer store any more.

use super::*;

// R3.6: a leave that was not answered costs the token, not the place of whoever waits.
#[test]
fn a_waiter_whose_token_is_spent_outside_goes_on_with_another() {
    test("spent", async {
        let world = World::new(Degrade::Never);
        let held = world.far.holds().await;
        let lock = world.mine.lock();
        let waiting = tokio::spawn(async move { lock.acquire().await });
        world.pass(400 * MS, "spent").await;
        world.mine.gates.once(Kind::Leave, Fate::Broken(Run::Not));
        world.here.oust();
        world.pass(2_000 * MS, "spent").await;
        held.release().await.expect("open gates");
        world.pass(2 * TTL, "spent").await;
        assert!(waiting.is_finished(), "it hangs");
        let guard = waiting.await.expect("no panic").expect("its turn");
        world.enter(guard, "spent");
        assert!(world.mine.gates.executed(Kind::Leave) > 0, "the old token left");
    });
}
