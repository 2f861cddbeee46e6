//! A holder whose key is gone or overwritten is told at once.
//!
//! The ttl is so long that the next renewal is far away ([`LONG`]): what tells the holder is the server's push, and the renewal that
//! verifies it. What is tracked, and when that ends, has traps; each of them has its test here.

mod harm;
mod kinds;
mod moments;
mod quiet;
mod reconnect;

use tenure::{Guard, LossKind};

use crate::redis::waiting::scene::{LONG, Peer, SOON, soon};

/// A lease whose key the server tracks.
async fn hold_tracked(peer: &Peer) -> Guard {
    let before = peer.domain.metrics().renewals;
    let guard = peer.hold("a").await;
    peer.renews(before).await;
    guard
}

/// Leases on `many/0` to `many/19`, whose keys the server tracks.
async fn hold_many_tracked(peer: &Peer) -> Vec<Guard> {
    let mut guards = Vec::new();
    for number in 0..20 {
        let lock = peer.domain.lock(format!("many/{number}")).ttl(LONG);
        guards.push(lock.acquire().await.expect("to acquire"));
    }
    peer.renews(19).await;
    guards
}

/// Why it was lost, about at once.
#[track_caller]
fn told(guard: &Guard) -> impl Future<Output = LossKind> {
    assert!(!guard.is_held() || guard.remaining() > LONG / 3 + SOON, "a renewal could tell it, and no push");
    let lost = soon(guard.lost());
    async { lost.await.kind().clone() }
}
