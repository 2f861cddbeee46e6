//! A cluster with a directory of this machine underneath.

use tenure::{Degrade, Domain, DomainUrl};
use tenure_testkit::patience::until_async;

use crate::cluster::scene::{NAME, patient};

// R0.2, R0.5: what is not there when the domain is opened is found when it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_comes_later_is_used() {
    let cluster = patient();
    let dir = std::env::temp_dir().join(format!("tenure-cluster-{}", std::process::id()));
    let outer = format!("{}?ttl=2s&timeout=500ms", cluster.url());
    let url = |degrade| {
        DomainUrl::layered(outer.as_str(), format!("file://{}", dir.display()), degrade).expect("a URL")
    };
    let domain = Domain::open(url(Degrade::Never)).await.expect("a cluster");
    let held = domain.lock(NAME).acquire().await.expect("a cluster");
    assert!(!held.is_degraded());
    let elsewhere = Domain::open(outer.as_str()).await.expect("a cluster");
    assert!(!elsewhere.lock(NAME).try_acquire().await.expect("a cluster").is_acquired());
    held.release().await.expect("both");

    for node in cluster.nodes() {
        node.kill();
    }
    let error = Domain::open(url(Degrade::Never)).await.expect_err("nobody is there");
    assert!(error.is_transient(), "{error}");
    until_async("it is noticed", async || domain.lock(NAME).try_acquire().await.is_err()).await;
    let degraded = Domain::open(url(Degrade::Allow)).await.expect("the directory is there");
    let held = degraded.lock(NAME).acquire().await.expect("the directory");
    assert!(held.is_degraded());
    held.release().await.expect("the directory");

    for node in cluster.nodes() {
        node.restart();
    }
    cluster.wait_until_up();
    for domain in [&degraded, &domain] {
        until_async("both are used again", async || match domain.lock(NAME).acquire().await {
            Ok(guard) => !guard.is_degraded(),
            Err(error) => {
                assert!(error.is_transient(), "{error}");
                false
            }
        })
        .await;
    }
    drop(std::fs::remove_dir_all(dir));
}
