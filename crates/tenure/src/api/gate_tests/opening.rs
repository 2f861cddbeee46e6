//! Connecting: once for everyone who asks at the same time, again after a failure, and never for ever (R0.3).

use super::*;
use crate::engine::client::KeeperRuns;
use crate::engine::keeper;
use crate::types::error::Error;

// R1.7: a panic in a background task would go unseen, so the keeper is run here.
#[test]
fn closing_what_was_never_opened_is_graceful() {
    test("close before open", async {
        let world = World::new();
        world.mine.domain.close().await;
        let client = world.mine.client.clone();
        keeper::keep(KeeperRuns::new(client, Arc::default()), Arc::default()).await;
    });
}

// R0.4: the operation itself is the test.
#[test]
fn the_first_acquire_is_one_request() {
    test("no ping", async {
        let world = World::new();
        let guard = world.mine.holds().await;
        let asked = |kind| world.mine.gates.asked(kind);
        assert_eq!(
            [Kind::Connect, Kind::Join, Kind::Try, Kind::Beat, Kind::Inspect].map(asked),
            [1, 1, 0, 0, 0]
        );
        drop(guard);
    });
}

#[test]
fn connecting_does_not_last_for_ever() {
    test("connect never", async {
        let world = World::new();
        world.mine.gates.once(Kind::Connect, Fate::Never(Run::Not));
        let lock = world.mine.lock();
        let limited = tokio::spawn(async move { lock.try_acquire_for(100 * MS).await.map(drop) });
        world.pass(10 * TTL).await;
        assert!(limited.is_finished(), "the limit holds for connecting too");
        let lock = world.mine.lock();
        let next = tokio::spawn(async move { lock.acquire().await.map(drop) });
        world.pass(10 * TTL).await;
        assert!(next.is_finished(), "an attempt that got no answer is remembered for ever");
    });
}

#[test]
fn closing_ends_the_wait_for_a_connection() {
    test("close while connecting", async {
        let world = World::new();
        world.mine.gates.once(Kind::Connect, Fate::Never(Run::Not));
        let lock = world.mine.lock();
        let waiter = tokio::spawn(async move { lock.acquire().await.map(drop) });
        world.settle().await;
        world.mine.domain.close().await;
        world.settle().await;
        assert!(waiter.is_finished());
        assert_eq!(waiter.await.unwrap().unwrap_err().kind(), crate::ErrorKind::Closed);
    });
}

/// Callers that each want a name of their own.
fn callers(world: &World, count: usize) -> Vec<tokio::task::JoinHandle<Result<(), Error>>> {
    let locks = (0..count).map(|number| world.mine.domain.lock(format!("orders/{number}")));
    locks.map(|lock| tokio::spawn(async move { lock.acquire().await.map(drop) })).collect()
}

// R0.3
#[test]
fn a_hundred_first_callers_connect_once() {
    test("a hundred", async {
        let world = World::new();
        world.mine.gates.set(Kind::Connect, Fate::Slow(100 * MS));
        let callers = callers(&world, 100);
        world.pass(90 * MS).await;
        assert!(!callers.iter().any(|caller| caller.is_finished()), "nobody is answered before the store");
        world.pass(20 * MS).await;
        for caller in callers {
            assert!(caller.is_finished());
            caller.await.unwrap().unwrap();
        }
        assert_eq!(world.mine.gates.asked(Kind::Connect), 1);
    });
}

// R0.3
#[test]
fn a_failure_is_shared_and_then_forgotten() {
    test("failure", async {
        for fate in [Fate::Broken(Run::Not), Fate::Never(Run::Not)] {
            let world = World::new();
            world.mine.gates.once(Kind::Connect, fate);
            let failed = callers(&world, 10);
            world.pass(10 * Duration::from_secs(1)).await;
            for caller in failed {
                assert!(caller.is_finished());
                assert!(caller.await.unwrap().unwrap_err().is_transient());
            }
            assert_eq!(world.mine.gates.asked(Kind::Connect), 1, "they share one failure");
            for caller in callers(&world, 10) {
                caller.await.unwrap().unwrap();
            }
            assert_eq!(world.mine.gates.asked(Kind::Connect), 2);
        }
    });
}

// R0.3
#[test]
fn the_first_caller_goes_away_and_the_others_stay() {
    test("first caller", async {
        let world = World::new();
        world.mine.gates.set(Kind::Connect, Fate::Slow(100 * MS));
        let lock = world.mine.lock();
        let mut first = ByHand::new(async move { lock.acquire().await });
        assert!(first.poll().is_none());
        let others = callers(&world, 3);
        world.pass(50 * MS).await;
        drop(first);
        world.pass(60 * MS).await;
        for other in others {
            assert!(other.is_finished(), "it went down with the first");
            other.await.unwrap().unwrap();
        }
        assert_eq!(world.mine.gates.asked(Kind::Connect), 1);
    });
}

// R0.3
#[test]
fn a_runtime_goes_down_while_it_connects() {
    let world = World::new();
    world.mine.gates.once(Kind::Connect, Fate::Slow(100 * MS));
    let lock = world.mine.lock();
    let mut first = ByHand::new(async move { lock.acquire().await });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        assert!(first.poll().is_none());
        world.pass(10 * MS).await;
    });
    drop(runtime);
    assert!(first.is_woken(), "it waits for ever for an attempt that is gone");
    assert!(first.poll().expect("it is told").unwrap_err().is_transient());
    test("second runtime", async {
        world.mine.holds().await.release().await.unwrap();
        assert_eq!(world.mine.gates.asked(Kind::Connect), 2);
        world.is_clean("second runtime").await;
    });
}
