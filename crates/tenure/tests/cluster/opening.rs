//! From a URL with some nodes to a cluster, and what is wrong on the way.

use tenure::{Domain, Error, ErrorKind, Verdict};
use tenure_testkit::patience::{until, until_async};
use tenure_testkit::redis::{Cluster, RedisServer, Reply};

use crate::cluster::scene::{NAME, key, patient, slot};

async fn refused(url: &str, kind: ErrorKind, parts: &[&str]) -> Error {
    let error = Domain::open(url).await.expect_err("it can't be opened");
    assert_eq!(error.kind(), kind, "{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "`{part}` in: {error}");
    }
    error
}

// R0.5, R0.6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_that_answers_is_enough() {
    let cluster = patient();
    let nobody = "redis+cluster://127.0.0.1:1,127.0.0.1:2";
    let each = [
        "no node of the cluster says where names are",
        "cannot reach redis at 127.0.0.1:1",
        "cannot reach redis at 127.0.0.1:2",
    ];
    refused(nobody, ErrorKind::Unavailable, &each).await;

    for (seed, role) in [(0, "a master"), (5, "a replica")] {
        let seed = cluster.port(&cluster.nodes()[seed]);
        let url = format!("redis+cluster://127.0.0.1:1,127.0.0.1:{seed}?timeout=1s");
        let domain = Domain::open(&url).await.expect(role);
        for name in ["a", "b", "c", "d", "e"] {
            let _ = domain.lock(name).run(async |_| ()).await.expect("a cluster");
        }
    }

    // One that is part of no cluster, or of one that is not this.
    let (plain, alone) = (RedisServer::start(), RedisServer::builder().cluster_node().start());
    let plain_url = format!("redis+cluster://127.0.0.1:{}", plain.port());
    refused(&plain_url, ErrorKind::Invalid, &["is not part of a cluster", "write redis://"]).await;
    let alone_url = format!("redis+cluster://127.0.0.1:{}", alone.port());
    refused(&alone_url, ErrorKind::Unavailable, &["knows of no slots", "name a node that is part"]).await;
    let seed = cluster.port(&cluster.nodes()[0]);
    let both = format!("{plain_url},127.0.0.1:{},127.0.0.1:{seed}", alone.port());
    let domain = Domain::open(&both).await.expect("one of three");
    let _ = domain.lock(NAME).run(async |_| ()).await.expect("a cluster");

    // One server is not a cluster, nor the other way round: whoever asked one node alone would miss what others publish.
    let dir = std::env::temp_dir().join(format!("tenure-cluster-opening-{}", std::process::id()));
    for node in [cluster.master_of(slot(&cluster, NAME)), cluster.replica_of(slot(&cluster, NAME))] {
        let write = format!("write redis+cluster://127.0.0.1:{}", node.port());
        refused(&node.url(), ErrorKind::Invalid, &["is a node of a cluster", &write]).await;
        let layered = format!("{}?inner=file://{}&degrade=allow", node.url(), dir.display());
        refused(&layered, ErrorKind::Invalid, &["is a node of a cluster", &write]).await;
        let socket = format!("redis+unix://{}", node.socket_path().display());
        refused(&socket, ErrorKind::Invalid, &["a node of a cluster", "write redis+cluster://HOST:PORT"])
            .await;
        let majority =
            format!("redis+quorum://127.0.0.1:1,127.0.0.1:{},127.0.0.1:{}", plain.port(), node.port());
        refused(&majority, ErrorKind::Invalid, &["is a node of a cluster", &write]).await;
    }
    drop(std::fs::remove_dir_all(dir));

    // An examination looks at all of it, and leaves nothing behind.
    let findings = domain.examine().await.expect("a cluster");
    for finding in &findings {
        println!("{finding}");
        assert!(finding.verdict < Verdict::Unfit, "{finding}");
    }
    let reason =
        |check: &str| findings.iter().find(|found| found.check == check).expect(check).reason.clone();
    assert!(reason("cluster").starts_with("3 masters, 3 replicas, all slots"), "{}", reason("cluster"));
    assert!(reason("hand-over").contains("told"), "{}", reason("hand-over"));
    assert!(domain.list("tenure/doctor").await.expect("a cluster").is_empty());
}

// R0.6: nodes name each other by address, by host, or by port alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_found_by_whatever_name_they_have() {
    let cluster = patient();
    let slot = slot(&cluster, NAME);
    let seed = format!("redis+cluster://127.0.0.1:{}", cluster.nodes()[0].port());
    for (kind, named) in [("ip", "127.0.0.1:"), ("hostname", "localhost:"), ("unknown-endpoint", ":")] {
        for node in cluster.nodes() {
            node.command(&["CONFIG", "SET", "cluster-announce-hostname", "localhost"]);
            node.command(&["CONFIG", "SET", "cluster-preferred-endpoint-type", kind]);
        }
        let other = cluster.another_than(slot);
        let moved = |node: &RedisServer| match node.command(&["GET", &key(NAME)]) {
            Reply::Error(said) => said.split(' ').nth(2).unwrap_or_default().to_owned(),
            other => format!("{other:?}"),
        };
        until("they know their names", || moved(other).starts_with(named)).await;
        let domain = Domain::open(&seed).await.expect("a seed");
        for name in ["a", "b", "c", "d", "e"] {
            let _ = domain.lock(name).run(async |_| ()).await.expect("a cluster");
        }
        let held = domain.lock(NAME).acquire().await.expect("a cluster");
        cluster.move_slot(slot, other);
        held.renew().await.expect("it is sent on");
        held.release().await.expect("a cluster");
    }
}

// R0.6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_and_tls_are_for_all_nodes() {
    let cluster = Cluster::builder().password("hidden").tls().start();
    // A busy machine takes its time to encrypt.
    let ca = format!("?ttl=40s&timeout=20s&tls_ca={}", cluster.ca_path().display());
    let url = |whom: &str| format!("{}{ca}", cluster.url().replace("://", &format!("://{whom}")));
    let domain = Domain::open(url(":hidden@")).await.expect("both are right");
    for name in ["a", "b", "c", "d", "e"] {
        let _ = domain.lock(name).run(async |_| ()).await.expect("a cluster");
    }
    let node = cluster.port(&cluster.nodes()[0]);
    let alone = format!("rediss://:hidden@127.0.0.1:{node}{ca}");
    let write = format!("write rediss+cluster://127.0.0.1:{node}");
    refused(&alone, ErrorKind::Invalid, &["is a node of a cluster", &write]).await;
    let findings = domain.examine().await.expect("to examine");
    assert!(findings.iter().any(|found| found.check == "encryption" && found.to_string().contains("TLS")));
    for whom in ["", ":wrong@"] {
        let fix = "correct the user and the password";
        let error = refused(&url(whom), ErrorKind::Denied, &["no node of the cluster", fix]).await;
        assert!(!error.to_string().contains("hidden"), "{error}");
    }
    let error = refused(&cluster.url(), ErrorKind::Unavailable, &["no node of the cluster"]).await;
    assert!(error.to_string().contains("tls_ca") || error.to_string().contains("certificate"), "{error}");
}

// R0.5: a cluster that is down says so, executes nothing, and is used again when it is up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_down_says_so() {
    let cluster = patient();
    let domain = Domain::open(format!("{}?ttl=2s&timeout=500ms", cluster.url())).await.expect("a cluster");
    let slot = slot(&cluster, NAME);
    let node = cluster.another_than(slot);
    let range = node.command(&["CLUSTER", "SLOTS"]);
    let mine = range.items().iter().find(|range| range.items()[2].items()[1].int() == i64::from(node.port()));
    let [first, ..] = mine.expect("its slots").items() else { panic!("a range") };
    let lost = first.int().to_string();
    for each in cluster.nodes() {
        each.command(&["CLUSTER", "DELSLOTS", &lost]);
    }
    until("it is down", || {
        cluster.master_of(slot).command(&["CLUSTER", "INFO"]).text().contains("cluster_state:fail")
    })
    .await;
    let error = domain.lock(NAME).acquire().await.expect_err("it is down");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("cluster is down"), "{error}");
    let findings = domain.examine().await.expect("its nodes answer");
    assert!(findings.iter().any(|found| found.check == "cluster" && found.verdict == Verdict::Unfit));
    node.command(&["CLUSTER", "ADDSLOTS", &lost]);
    until_async("it is up again", async || domain.lock(NAME).run(async |_| ()).await.is_ok()).await;
    assert_eq!(cluster.master_of(slot).command(&["EXISTS", &key(NAME)]).int(), 0);
}
