//! What the tests share: a cluster, clients of it, and where a name is.

use std::time::{Duration, Instant};

use tenure::{Domain, Fence, Guard};
use tenure_testkit::patience::until_async;
use tenure_testkit::redis::{Cluster, RedisServer};

pub(crate) const NAME: &str = "orders/42";
/// 3 s for the failover, the ttl of 2 s, and patience.
pub(crate) const BACK_AFTER: Duration = Duration::from_secs(3 + 2 + 15);

/// One whose masters are not replaced because the machine is busy.
pub(crate) fn patient() -> Cluster {
    Cluster::builder().node_timeout(Duration::from_secs(60)).start()
}

pub(crate) async fn open(cluster: &Cluster) -> Domain {
    open_with(cluster, "").await
}

pub(crate) async fn open_with(cluster: &Cluster, options: &str) -> Domain {
    Domain::open(format!("{}?ttl=2s&timeout=500ms{options}", cluster.url())).await.expect("a cluster")
}

pub(crate) fn key(name: &str) -> String {
    format!("tenure:{name}")
}

pub(crate) fn slot(cluster: &Cluster, name: &str) -> u16 {
    cluster.slot(&key(name))
}

pub(crate) fn master<'c>(cluster: &'c Cluster, name: &str) -> &'c RedisServer {
    cluster.master_of(slot(cluster, name))
}

/// Returns when so many wait for the name.
pub(crate) async fn until_waiting(domain: &Domain, name: &str, many: usize) {
    until_async("waiters", async || {
        domain.inspect(name).await.is_ok_and(|status| status.waiters.len() == many)
    })
    .await;
}

/// The first grant after now. Whatever comes before is an outage and says so.
pub(crate) async fn next_grant(domain: &Domain, name: &str) -> Guard {
    let begin = Instant::now();
    loop {
        match domain.lock(name).acquire().await {
            Ok(guard) => return guard,
            Err(error) => {
                assert!(error.is_transient(), "{error}");
                assert!(begin.elapsed() < BACK_AFTER, "not back after {:?}: {error}", begin.elapsed());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

/// Takes the name by turns, as many as are asked for; each fence is above the one before.
pub(crate) async fn turns(domains: [&Domain; 2], name: &str, many: usize) -> Fence {
    let mut last = None;
    for domain in domains.into_iter().cycle().take(many) {
        let guard = domain.lock(name).acquire().await.expect("a cluster");
        assert!(last < Some(guard.fence()), "{last:?} then {:?}", guard.fence());
        last = Some(guard.fence());
        guard.release().await.expect("a cluster");
    }
    last.expect("some turns")
}

/// How often a command of this kind was refused with this error, on all nodes.
pub(crate) fn refusals(cluster: &Cluster, code: &str) -> u64 {
    let count = |node: &RedisServer| {
        let stats = node.question(&["INFO", "errorstats"]).text();
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("errorstat_{code}:count=")));
        line.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    cluster.nodes().iter().map(count).sum()
}
