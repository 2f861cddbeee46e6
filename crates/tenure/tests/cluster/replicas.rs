//! `?replicas=` on a cluster: what is held is known to the replica of its master, or it is not held.

use std::time::Duration;

use tenure::{Domain, ErrorKind};

use crate::cluster::scene::{NAME, key, patient, slot, until_waiting};

// B1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_holds_is_known_to_the_replica() {
    let cluster = patient();
    let url = format!("{}?ttl=2s&timeout=1s&replicas=all", cluster.url());
    let (one, other) = (Domain::open(&url).await.expect("a cluster"), Domain::open(&url).await.expect("one"));
    let slot = slot(&cluster, NAME);
    let replica = cluster.replica_of(slot);
    let known = || {
        let mut client = replica.client().expect("a connection");
        client.command(&["READONLY"]).expect("an answer");
        client.command(&["GET", &key(NAME)]).expect("an answer").text()
    };
    let mut held = one.lock(NAME).acquire().await.expect("a replica");
    for domain in [&other, &one].into_iter().cycle().take(6) {
        assert_eq!(known(), held.token());
        let waiting = domain.clone();
        let next = tokio::spawn(async move { waiting.lock(NAME).acquire().await });
        until_waiting(&one, NAME, 1).await;
        held.release().await.expect("a cluster");
        held = next.await.expect("no panic").expect("a replica");
    }
    assert_eq!(known(), held.token());

    // Also while it is on its way to another node.
    let to = cluster.another_than(slot);
    cluster.open_slot(slot, to);
    cluster.move_keys(slot, to);
    held.renew().await.expect("the replica of the new node");
    cluster.close_slot(slot, to);
    held.release().await.expect("a cluster");

    let replica = cluster.replica_of(slot);
    replica.stop();
    let lasting = one.lock(NAME).ttl(Duration::from_secs(60));
    let error = lasting.acquire().await.expect_err("the replica is away");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().starts_with("0 of 1 replicas acknowledged"), "{error}");
    replica.cont();
}
