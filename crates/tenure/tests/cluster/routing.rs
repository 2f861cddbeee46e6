//! A request finds the node that has its slot, whatever it is told on the way.

use std::collections::HashSet;
use std::time::Duration;

use tenure::{Attempt, ErrorKind, Verdict};
use tenure_testkit::patience::{until, until_async};
use tenure_testkit::redis::RedisServer;

use crate::cluster::scene::{NAME, key, master, open, patient, refusals, slot, turns};

// R2.8, R3.8: all keys and channels of a name are in one slot, and its names are spread over all nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_of_a_name_is_in_one_slot() {
    let cluster = patient();
    let connections = || {
        let count = |node: &RedisServer| {
            let stats = node.question(&["INFO", "clients"]).text();
            let line =
                stats.lines().find_map(|line| line.strip_prefix("connected_clients:").map(str::to_owned));
            line.and_then(|line| line.trim().parse::<u64>().ok()).expect("a number")
        };
        cluster.nodes().iter().map(count).sum::<u64>()
    };
    let before = connections();
    let (one, other) = (open(&cluster).await, open(&cluster).await);
    let names = ["orders/42", "{braces}", "}{", "100%", "ü ñ", "a:fence", "tenure:a", "x y", "7", "8", "9"];
    let mut masters = HashSet::new();
    for name in names {
        let held = one.lock(name).acquire().await.expect("a cluster");
        let waits = tokio::spawn({
            let other = other.clone();
            async move { other.lock(name).acquire().await.expect("a cluster") }
        });
        crate::cluster::scene::until_waiting(&one, name, 1).await;
        let (encoded, token) =
            (name.replace('%', "%25").replace('{', "%7B").replace('}', "%7D"), held.token());
        let lock = key(&encoded);
        let beside = ["fence", "queue", "beats", "broken"].map(|what| format!("{{{lock}}}:{what}"));
        let channel = format!("{{{lock}}}:grants:{}", &token[33..49]);
        for key in beside.iter().chain([&channel]) {
            assert_eq!(cluster.slot(key), cluster.slot(&lock), "{key}");
        }
        let node = cluster.master_of(cluster.slot(&lock));
        masters.insert(node.port());
        let keys = beside[..3].iter().chain([&lock]);
        for key in keys {
            assert_eq!(node.command(&["EXISTS", key]).int(), 1, "{key}");
        }
        until("it listens", || !node.command(&["PUBSUB", "SHARDCHANNELS", "{tenure:*"]).items().is_empty())
            .await;
        let holder = one.inspect(name).await.expect("a cluster").holder.expect("one that holds");
        one.break_lock(name, &holder).await.expect("a cluster");
        drop(waits.await.expect("no panic"));
    }
    assert_eq!(masters.len(), 3, "all of them have some");
    assert_eq!(refusals(&cluster, "CROSSSLOT"), 0);
    until_async("nothing is held", async || one.list("").await.expect("a cluster").is_empty()).await;

    // R3.5: neither do connections outlive their domain, nor what listened.
    assert!(connections() > before);
    drop((one, other));
    until("all is closed", || connections() == before).await;
}

// R0.5: a slot that has moved is asked for at its new place, without a word to anyone; and a slot whose keys are on their way, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirections_are_followed() {
    let cluster = patient();
    let (one, other) = (open(&cluster).await, open(&cluster).await);
    let last = turns([&one, &other], NAME, 10).await;
    let slot = slot(&cluster, NAME);

    // MOVED
    let (from, to) = (cluster.master_of(slot), cluster.another_than(slot));
    cluster.move_slot(slot, to);
    assert!(turns([&one, &other], NAME, 10).await > last);
    assert!(refusals(&cluster, "MOVED") > 0);
    assert_eq!(to.command(&["EXISTS", &format!("{{{}}}:fence", key(NAME))]).int(), 1);

    // ASK, on a node that does not know the script any more.
    let held = one.lock(NAME).acquire().await.expect("a cluster");
    cluster.open_slot(slot, from);
    cluster.move_keys(slot, from);
    from.command(&["SCRIPT", "FLUSH"]);
    held.renew().await.expect("one key is on one side");
    assert!(refusals(&cluster, "ASK") > 0);
    assert_eq!(from.command(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]).int(), 2, "lock and fence");

    // TRYAGAIN: a name needs four keys, and those that do not exist could be on either side.
    let error = other.lock(NAME).try_acquire().await.expect_err("it can't be told who has it");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    for part in [&format!("slot {slot} is moving"), "redis-cli --cluster fix 127.0.0.1:"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    let waits = tokio::spawn({
        let other = other.clone();
        async move { other.lock(NAME).try_acquire_for(Duration::from_secs(20)).await }
    });
    until("it is asked", || refusals(&cluster, "TRYAGAIN") > 3).await;
    assert!(held.is_held(), "and nothing is lost");
    // B5
    let findings = one.examine().await.expect("a cluster");
    let found = findings.iter().find(|found| found.check == "cluster").expect("a finding");
    assert_eq!(found.verdict, Verdict::Doubtful, "{found}");
    assert!(found.reason.starts_with("a slot is moving"), "{found}");
    cluster.close_slot(slot, from);
    let last = held.fence();
    held.release().await.expect("a cluster");
    match waits.await.expect("no panic") {
        Ok(Attempt::Acquired(next)) => assert!(next.fence() > last),
        Ok(Attempt::Busy(busy)) => panic!("{busy:?}"),
        // One that was not in the queue yet is told of the outage when it has lasted too long.
        Err(error) => assert!(error.to_string().contains("is moving"), "{error}"),
    }
    assert_eq!(master(&cluster, NAME).port(), from.port());
    turns([&one, &other], NAME, 4).await;
}
