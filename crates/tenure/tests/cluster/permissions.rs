//! What a user of a cluster must be allowed: the rule of docs/backends/cluster.md.

use tenure::Domain;
use tenure_testkit::patience::until_async;
use tenure_testkit::redis::Cluster;

use crate::cluster::scene::{NAME, key, master, patient, slot, until_waiting};

/// Keys and channels of the prefix, and the commands of the scripts and of the cluster.
const NEEDED: &str = "~tenure:* ~{tenure:* &{tenure:* +evalsha +eval +time +get +set +del +exists +pttl +pexpire +zadd +zrem +zrange \
                      +zrevrange +zrank +zscore +zcard +hset +hget +hdel +spublish +ssubscribe +sunsubscribe +scan +info +hello \
                      +ping +asking +client|tracking +client|caching +cluster|slots +cluster|info";

fn allow(cluster: &Cluster, rules: &str) {
    let user = ["ACL", "SETUSER", "bob", "reset", "on", ">secret"];
    for node in cluster.nodes() {
        let rules: Vec<_> = user.into_iter().chain(rules.split_whitespace()).collect();
        assert_eq!(node.command(&rules).text(), "OK");
    }
}

async fn hand_over(one: &Domain, other: &Domain) {
    let held = one.lock(NAME).acquire().await.expect("a cluster");
    let waits = tokio::spawn({
        let other = other.clone();
        async move { other.lock(NAME).acquire().await.expect("a cluster") }
    });
    until_waiting(one, NAME, 1).await;
    held.release().await.expect("a cluster");
    drop(waits.await.expect("no panic").release().await.expect("a cluster"));
}

// R0.6: with these everything works, also while a slot moves, and nothing is warned of. Without channels waiters ask again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_needs_these() {
    let cluster = patient();
    allow(&cluster, NEEDED);
    let url = format!("{}?ttl=2s", cluster.url().replace("://", "://bob:secret@"));
    let (one, other) = (Domain::open(&url).await.expect("bob"), Domain::open(&url).await.expect("bob"));
    hand_over(&one, &other).await;
    let held = one.lock(NAME).acquire().await.expect("a cluster");
    let slot = slot(&cluster, NAME);
    let to = cluster.another_than(slot);
    cluster.open_slot(slot, to);
    cluster.move_keys(slot, to);
    held.renew().await.expect("by asking");
    cluster.close_slot(slot, to);
    held.release().await.expect("a cluster");
    hand_over(&one, &other).await;
    assert_eq!(one.list("").await.expect("a cluster").len(), 0);
    for domain in [&one, &other] {
        let warnings = domain.health().await.expect("a cluster").warnings;
        assert!(warnings.is_empty(), "{warnings:?}");
    }
    let findings = one.examine().await.expect("a cluster");
    assert!(findings.iter().all(|found| found.verdict < tenure::Verdict::Unfit), "{findings:?}");

    allow(&cluster, &NEEDED.replace("&{tenure:*", ""));
    let (one, other) = (Domain::open(&url).await.expect("bob"), Domain::open(&url).await.expect("bob"));
    hand_over(&one, &other).await;
    until_async("it is said", async || {
        let warnings = other.health().await.expect("a cluster").warnings;
        warnings.iter().any(|warning| warning.contains("they poll"))
    })
    .await;
    let findings = one.examine().await.expect("a cluster");
    let found = findings.iter().find(|found| found.check == "hand-over").expect("a finding");
    assert!(found.remedy.as_ref().is_some_and(|remedy| remedy.contains("'&{tenure:*'")), "{found}");
    assert_eq!(master(&cluster, NAME).command(&["EXISTS", &key(NAME)]).int(), 0);
}
