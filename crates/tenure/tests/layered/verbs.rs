//! Every verb on a degraded lease: while Redis is away, and when it is back.

use std::time::Duration;

use tenure::{Degrade, Domain, Guard, LossKind, Release};

use crate::layered::scene::{LONG, NAME, Peer, Scene};

/// Two processes of a machine, and what becomes of Redis between their acts.
struct Stage {
    scene: Scene,
    a: Peer,
    b: Peer,
    comes_back: bool,
}

impl Stage {
    async fn new(comes_back: bool) -> Self {
        let scene = Scene::new();
        let (a, b) = (scene.peer(Degrade::Allow, LONG).await, scene.peer(Degrade::Allow, LONG).await);
        scene.server.kill();
        Stage { scene, a, b, comes_back }
    }

    /// A lease that is degraded; after this Redis is back, if it comes back.
    async fn degraded(&self) -> Guard {
        let guard = self.a.acquire().await;
        assert!(guard.is_degraded());
        if self.comes_back {
            self.back().await;
        }
        guard
    }

    async fn back(&self) {
        self.scene.server.restart();
        for domain in [&self.a.domain, &self.b.domain] {
            while !domain.health().await.is_ok_and(|health| health.warnings.is_empty()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }

    /// Another has it now, in both stores where there are both.
    async fn is_free(&self, above: u64) {
        let guard = self.b.acquire().await;
        assert_eq!(guard.is_degraded(), !self.comes_back);
        assert!(guard.fence().get() > above);
        guard.release().await.expect("to release");
        assert!(self.b.domain.list("").await.expect("to list").is_empty());
    }
}

async fn release_and_drop(comes_back: bool) {
    for drops in [false, true] {
        let stage = Stage::new(comes_back).await;
        let guard = stage.degraded().await;
        let fence = guard.fence().get();
        guard.renew().await.expect("to renew");
        assert!(guard.is_held() && guard.is_degraded());
        match drops {
            true => drop(guard),
            false => assert_eq!(guard.release().await.expect("to release"), Release::Released),
        }
        stage.is_free(fence).await;
    }
}

async fn inspect_list_and_break(comes_back: bool) {
    let stage = Stage::new(comes_back).await;
    let guard = stage.degraded().await;
    let fence = guard.fence();
    let status = stage.b.domain.inspect(NAME).await.expect("to look");
    let holder = status.holder.expect("it is held");
    assert_eq!(holder.fence, fence);
    let listed = stage.b.domain.list("").await.expect("to list");
    assert!(matches!(&listed[..], [status] if status.name == NAME && status.is_held()), "{listed:?}");
    assert_eq!(stage.b.domain.break_lock(NAME, &holder).await.expect("to break"), Release::Released);
    guard.lost().await;
    drop(guard);
    stage.is_free(fence.get()).await;
}

async fn take_over(comes_back: bool) {
    let stage = Stage::new(comes_back).await;
    let guard = stage.degraded().await;
    let taken = stage.b.domain.lock(NAME).take_over().await.expect("to take over");
    assert!(taken.fence() > guard.fence());
    assert_eq!(taken.is_degraded(), !comes_back);
    assert!(matches!(guard.lost().await.kind(), LossKind::Taken { .. }));
    drop(guard);
    let fence = taken.fence().get();
    assert!(taken.is_held());
    taken.release().await.expect("to release");
    stage.is_free(fence).await;
}

async fn tickets(comes_back: bool) {
    let stage = Stage::new(comes_back).await;
    let guard = stage.degraded().await;
    let fence = guard.fence();
    let ticket = guard.detach().await.expect("to detach");
    // A process that does not know that it is degraded.
    ticket.renew(&stage.b.domain).await.expect("to renew");
    let adopted = ticket.adopt(&stage.b.domain).await.expect("to adopt");
    assert!(adopted.fence() > fence && adopted.is_held() && adopted.is_degraded());
    assert!(ticket.adopt(&stage.a.domain).await.is_err(), "a ticket is good for once");
    let ticket = adopted.detach().await.expect("to detach");
    assert_eq!(ticket.release(&stage.a.domain).await.expect("to release"), Release::Released);
    stage.is_free(fence.get()).await;
}

async fn cancel(comes_back: bool) {
    let stage = Stage::new(comes_back).await;
    let guard = stage.degraded().await;
    let waiting = tokio::spawn({
        let lock = stage.b.domain.lock(NAME);
        async move { lock.acquire().await }
    });
    let waits = async || stage.a.domain.inspect(NAME).await.expect("to look").waiters.len();
    while waits().await == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    waiting.abort();
    while waits().await > 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let fence = guard.fence().get();
    drop(guard);
    stage.is_free(fence).await;
}

macro_rules! in_each_state {
    ($($verb:ident),*) => {
        mod away {
            $(
                // R0.2
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $verb() {
                    super::$verb(false).await;
                }
            )*
        }
        mod back {
            $(
                // R0.2
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $verb() {
                    super::$verb(true).await;
                }
            )*
        }
    };
}

in_each_state!(release_and_drop, inspect_list_and_break, take_over, tickets, cancel);

// R0.2: a client of Redis alone is excluded by a lease in both, and sees it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_redis_alone_is_excluded() {
    let scene = Scene::new();
    let peer = scene.peer(Degrade::Never, LONG).await;
    let alone = Domain::open(scene.server.url()).await.expect("to open");
    let guard = peer.acquire().await;
    assert!(alone.lock(NAME).try_acquire().await.expect("an answer").ok().is_none());
    let holder = alone.inspect(NAME).await.expect("to look").holder.expect("it is held");
    assert_eq!(holder.fence, guard.fence());
    assert_eq!(alone.break_lock(NAME, &holder).await.expect("to break"), Release::Released);
    guard.lost().await;
    drop(guard);
    let theirs = alone.lock(NAME).acquire().await.expect("a free name");
    assert!(peer.domain.lock(NAME).try_acquire().await.expect("an answer").ok().is_none());
    drop(theirs);
    drop(peer.acquire().await);
}
