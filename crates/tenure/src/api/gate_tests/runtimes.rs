//! Runtimes come and go: a guard outlives its own, is dropped on another or on none, and whatever was under way on one that goes down is
//! taken up by the next, or ends with the ttl (I5, R3.5).

use super::*;

// I1
#[test]
fn a_runtime_that_goes_down_takes_no_lease_away() {
    let world = World::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut waiter = ByHand::new({
        let lock = world.mine.lock();
        async move { lock.acquire().await.unwrap() }
    });
    let held = runtime.block_on(async {
        let held = world.other.holds().await;
        assert!(waiter.poll().is_none());
        world.settle().await;
        held
    });
    drop(held);
    let guard = waiter.poll().expect("granted by a push");
    drop(runtime);
    assert!(guard.is_held());
    assert_eq!(world.seen(), (1, 0), "it is believed to be held, and was given back");
}

// R0.3, R1.5
#[test]
fn the_keeper_works_on_the_second_runtime() {
    let world = World::new();
    for round in 0..3 {
        test("static", async {
            let guard = world.mine.holds().await;
            world.settle().await;
            if round == 2 {
                world.pass(3 * TTL).await;
                assert!(guard.is_held(), "nobody renewed it in the third runtime");
            }
            world.pass(10 * MS).await;
            guard.release().await.unwrap();
            world.pass(10 * MS).await;
        });
    }
}

#[test]
fn a_renewal_that_died_with_its_runtime_is_sent_again() {
    let world = World::new();
    let mut guard = None;
    test("first", async {
        guard = Some(world.mine.holds().await);
        world.mine.gates.once(Kind::Renew, Fate::Never(Run::Not));
        world.pass(TTL / 3 + 10 * MS).await;
        assert_eq!(world.mine.gates.asked(Kind::Renew), 1);
        assert_eq!(world.mine.gates.executed(Kind::Renew), 0);
    });
    test("second", async {
        let second = world.mine.domain.lock("another").acquire().await.unwrap();
        world.pass(2 * TTL).await;
        assert!(second.is_held(), "the keeper works again");
        assert!(guard.as_ref().unwrap().is_held(), "and renews all leases");
    });
}

#[test]
fn a_lease_whose_keeper_is_gone_blocks_nobody_for_ever() {
    let world = World::new();
    let mut guard = None;
    test("first", async {
        guard = Some(world.mine.holds().await);
        world.settle().await;
    });
    test("second", async {
        let lock = world.mine.lock();
        let waiter = tokio::spawn(async move { lock.acquire().await });
        world.pass(2 * TTL).await;
        assert!(!guard.as_ref().unwrap().is_held() || !waiter.is_finished());
        drop(guard.take().filter(|guard| guard.is_held()));
        world.pass(TTL).await;
        assert!(waiter.is_finished(), "its lease is lost, and the next one still waits");
    });
}

fn current_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

fn multi_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap()
}

/// Lets the workers of a runtime go on until something is so.
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !is_so() {
        assert!(start.elapsed() < HANGS, "{what}");
        std::thread::yield_now();
    }
}

// R3.5: dropping a guard needs no runtime, and the one that was seen does what is left.
#[test]
fn a_guard_dropped_outside_a_runtime_is_given_back() {
    for fate in [Fate::AtOnce, Fate::Wire, Fate::Down, Fate::Broken(Run::Not)] {
        let (world, runtime) = (World::new(), current_thread());
        let guard = runtime.block_on(world.mine.holds());
        world.mine.gates.once(Kind::Release, fate);
        drop(guard);
        runtime.block_on(world.pass(50 * MS));
        assert_eq!(world.seen(), (0, 0), "{fate:?}");
        runtime.block_on(world.is_clean("dropped outside"));
    }
}

// R1.7
#[test]
fn a_guard_dropped_by_a_panic_is_given_back() {
    test("panic", async {
        let world = World::new();
        world.mine.gates.set(Kind::Release, Fate::Wire);
        let guard = world.mine.holds().await;
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _guard = guard;
            std::panic::resume_unwind(Box::new("the work failed"));
        }));
        assert!(panic.is_err());
        world.pass(50 * MS).await;
        assert_eq!(world.seen(), (0, 0));
        world.is_clean("panic").await;
    });
}

// R3.5
#[test]
fn a_guard_dropped_on_another_runtime_is_given_back() {
    for is_gone in [true, false] {
        let (world, first, second) = (World::new(), current_thread(), current_thread());
        world.mine.gates.set(Kind::Release, Fate::Wire);
        let guard = first.block_on(world.mine.holds());
        let first = (!is_gone).then_some(first);
        second.block_on(async {
            drop(guard);
            world.pass(50 * MS).await;
            assert_eq!(world.seen(), (0, 0), "its first runtime is gone: {is_gone}");
            world.is_clean("another runtime").await;
        });
        drop(first);
    }
}

// I5: with a guard, with those who wait for it, and with a request of theirs on its way.
#[test]
fn a_runtime_goes_down_with_everything_on_it() {
    for (make, name) in [(current_thread as fn() -> _, "current_thread"), (multi_thread, "multi_thread")] {
        for fate in [Fate::AtOnce, Fate::Wire, Fate::Never(Run::Not), Fate::Never(Run::First)] {
            let (world, runtime) = (World::new(), make());
            let held = runtime.block_on(world.other.holds());
            for kind in [Kind::Join, Kind::Beat] {
                world.mine.gates.set(kind, fate);
            }
            let waiters = [&world.mine, &world.mine, &world.other].map(|party| {
                let lock = party.lock();
                runtime.spawn(async move { lock.acquire().await.map(drop) })
            });
            runtime.block_on(async {
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
            });
            drop(runtime);
            drop((waiters, held));
            let cell = format!("{name}, {fate:?}");
            test(&cell, world.is_clean(&cell));
        }
    }
}

// I5: the release was sent and not executed, or not even sent, when its runtime went down.
#[test]
fn a_runtime_goes_down_with_a_release() {
    for (make, name) in [(current_thread as fn() -> _, "current_thread"), (multi_thread, "multi_thread")] {
        for fate in [Fate::Wire, Fate::Slow(100 * MS), Fate::Down, Fate::Never(Run::Not)] {
            let (world, runtime) = (World::new(), make());
            let guard = runtime.block_on(world.mine.holds());
            world.mine.gates.set(Kind::Release, fate);
            let inside = runtime.enter();
            drop(guard);
            drop(inside);
            drop(runtime);
            let cell = format!("{name}, {fate:?}");
            test(&cell, async {
                // The last millisecond of a lease still belongs to it.
                world.pass(10 * MS).await;
                world.is_clean(&cell).await;
            });
        }
    }
}

// R1.5: nobody drives this runtime but its own workers.
#[test]
fn a_lease_is_renewed_by_the_workers_of_its_runtime() {
    let (world, runtime) = (World::new(), multi_thread());
    let guard = runtime.block_on(world.mine.holds());
    for renewals in 1..5 {
        world.clock.jump(TTL / 3 + 10 * MS);
        eventually("it is not renewed", || world.mine.domain.metrics().renewals >= renewals);
        assert!(guard.is_held());
    }
}
