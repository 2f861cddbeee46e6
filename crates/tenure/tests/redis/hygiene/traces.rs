//! What can be seen of clients from outside: their keys and their connections. Here, and not in the library, because what a client
//! believes that it has left behind is not what it has left behind.

use tenure::Guard;
use tenure_testkit::patience::until;
use tenure_testkit::redis::RedisServer;

/// The keys of locks that are held or waited for, under the usual prefix, in order.
pub(crate) fn keys(server: &RedisServer) -> Vec<String> {
    let mut keys = all_keys(server);
    let is_only_remembered = |key: &str| key.ends_with("}:fence") || key.ends_with("}:broken");
    keys.retain(|key| key.contains("tenure:") && !is_only_remembered(key));
    keys
}

/// All keys, in order.
pub(crate) fn all_keys(server: &RedisServer) -> Vec<String> {
    let mut keys: Vec<String> =
        server.command(&["KEYS", "*"]).items().iter().map(tenure_testkit::redis::Reply::text).collect();
    keys.sort();
    keys
}

/// Waits until nobody holds anything or waits for anything.
pub(crate) async fn until_clean(server: &RedisServer) {
    until("only what is remembered is left on the server", || keys(server).is_empty()).await;
}

/// Waits until the lease has been renewed in the background: what is left of it grows.
pub(crate) async fn until_renewed(guard: &Guard) {
    let mut least = guard.remaining();
    until("the lease is renewed", || {
        let left = guard.remaining();
        let has_grown = left > least;
        least = least.min(left);
        has_grown
    })
    .await;
}
