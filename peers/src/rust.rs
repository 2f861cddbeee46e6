//! The contenders that are crates.

use std::io::Write;
use std::time::Duration;

use distributed_lock_core::error::LockError;
use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_redis::RedisLockProvider;
use rslock::LockManager;

use crate::STALLING;
use crate::raw::{Raw, RawLock};
use crate::takers::{ready, tenure_turns};
use crate::tasks::Contender;
use crate::turns::{Turn, now};

const NAME: &str = "bench";
const TTL: Duration = Duration::from_secs(10);

/// What a worker is: the arguments are the server's URL and for how many µs it keeps what it got.
pub(crate) fn work(kind: &str, mut arguments: impl Iterator<Item = String>) {
    let url = arguments.next().expect("a URL");
    let hold = Duration::from_micros(arguments.next().and_then(|hold| hold.parse().ok()).expect("a number"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let turns = runtime.block_on(async {
        match kind {
            "tenure" => tenure_turns(&url, hold).await,
            "raw" => raw_turns(&url).await,
            "rslock" => rslock_turns(url, hold).await,
            "distributed-lock" => distributed_lock_turns(url, hold).await,
            STALLING => {
                ready();
                std::future::pending().await
            }
            other => panic!("no worker is called {other}"),
        }
    });
    let bytes: Vec<u8> = turns.into_iter().flat_map(Turn::to_bytes).collect();
    // A parent that is gone needs no answer.
    let _ = std::io::stdout().write_all(&bytes);
}

/// Nobody else may want the key.
async fn raw_turns(url: &str) -> Vec<Turn> {
    let lock = RawLock::new(Raw::connect(url).await, "raw");
    let (until, mut turns) = (ready(), Vec::new());
    while now() < until {
        let asked = now();
        lock.pair().await;
        let done = now();
        turns.push(Turn { order: asked, asked, acquired: done, released: done });
    }
    turns
}

async fn rslock_turns(url: String, hold: Duration) -> Vec<Turn> {
    // Several servers, where a majority is measured.
    let locks = LockManager::new(url.split(',').map(str::to_owned).collect());
    // The first use connects.
    locks.acquire("warm-up", TTL).await.expect("the server answers").release().await;
    turns(
        hold,
        || async { locks.acquire(NAME, TTL).await.expect("the server answers") },
        |guard| guard.release(),
    )
    .await
}

async fn distributed_lock_turns(url: String, hold: Duration) -> Vec<Turn> {
    let provider = RedisLockProvider::builder().url(url).build().await.expect("the server answers");
    let lock = provider.create_lock(NAME);
    // On one server its `acquire` does not wait, whatever the limit: whoever wants to has to ask again.
    let acquire = || async {
        loop {
            match lock.acquire(None).await {
                Ok(handle) => return handle,
                Err(LockError::Timeout(_)) => {}
                Err(error) => panic!("the server does not answer: {error}"),
            }
        }
    };
    turns(hold, acquire, |handle| async { handle.release().await.expect("the server answers") }).await
}

async fn turns<G, A: Future<Output = G>, R: Future<Output = ()>>(
    hold: Duration,
    acquire: impl Fn() -> A,
    release: impl Fn(G) -> R,
) -> Vec<Turn> {
    let (until, mut turns) = (ready(), Vec::new());
    while now() < until {
        let asked = now();
        // Whoever does not get it by the end of the round has no turn.
        let left = Duration::from_nanos(until.saturating_sub(asked));
        let Ok(guard) = tokio::time::timeout(left, acquire()).await else { break };
        let acquired = now();
        if !hold.is_zero() {
            tokio::time::sleep(hold).await;
        }
        let released = now();
        release(guard).await;
        // They have no fence: the turns are sorted by the time.
        turns.push(Turn { order: acquired, asked, acquired, released });
    }
    turns
}
