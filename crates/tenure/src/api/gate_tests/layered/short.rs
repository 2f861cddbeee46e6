//! Too few replicas of the outer store acknowledged a request.

use super::*;

// R3.7: the error says so, whichever step of a take-over the replicas miss, and the name is released.
#[test]
fn a_take_over_that_too_few_replicas_acknowledge_says_so() {
    for step in [Kind::TakeOver, Kind::Renew] {
        test("short", async move {
            let world = World::new(Degrade::Never);
            drop(world.far.holds().await);
            world.mine.gates.once(step, Fate::Short);
            let lock = world.mine.lock();
            let taking = tokio::spawn(async move { lock.take_over().await });
            world.pass(2_000 * MS, "short").await;
            let error = taking.await.expect("no panic").expect_err("too few replicas");
            let replicas = error.too_few_replicas().expect("the count inside the error");
            assert_eq!((replicas.acknowledged(), replicas.needed()), (0, 2), "{step:?}");
            world.pass(2_000 * MS, "short").await;
            assert_eq!(world.outer.seen(), (None, 0), "{step:?}: released");
        });
    }
}
