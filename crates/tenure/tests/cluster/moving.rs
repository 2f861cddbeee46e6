//! A slot moves while its names are held and waited for.

use std::time::{Duration, Instant};

use tenure::{Domain, ErrorKind};
use tenure_testkit::patience::{PATIENCE, until};

use crate::cluster::scene::{NAME, key, master, open, patient, slot, until_waiting};

/// Waits for the name in the background, and gives it back at once; the fence that it had.
fn one_turn(domain: &Domain) -> tokio::task::JoinHandle<u64> {
    let domain = domain.clone();
    tokio::spawn(async move {
        // Whoever waits outlasts an outage of one ttl.
        let lock = domain.lock(NAME).ttl(Duration::from_secs(20));
        let guard = lock.acquire().await.expect("a cluster");
        let fence = guard.fence().get();
        guard.release().await.expect("a cluster");
        fence
    })
}

// R1.1, R3.4: whoever holds goes on holding, whoever waits keeps its place, and hears of its turn at the new node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_and_waiters_move_with_their_slot() {
    let cluster = patient();
    let domains = [open(&cluster).await, open(&cluster).await, open(&cluster).await];
    let slot = slot(&cluster, NAME);
    let held = domains[0].lock(NAME).acquire().await.expect("a cluster");
    let first = one_turn(&domains[1]);
    until_waiting(&domains[0], NAME, 1).await;
    let second = one_turn(&domains[2]);
    until_waiting(&domains[0], NAME, 2).await;

    // For longer than the lease lasts without a renewal.
    let to = cluster.another_than(slot);
    cluster.open_slot(slot, to);
    let begin = Instant::now();
    let beside = ["fence", "queue", "beats"].map(|what| format!("{{{}}}:{what}", key(NAME)));
    for key in [&key(NAME)].into_iter().chain(&beside) {
        while begin.elapsed() < Duration::from_millis(600) && key.ends_with("42") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        cluster.move_key(key, cluster.master_of(slot), to);
        let renewed = Instant::now();
        while renewed.elapsed() < Duration::from_millis(600) {
            assert!(held.is_held(), "{:?}", begin.elapsed());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    assert!(begin.elapsed() > Duration::from_secs(2), "longer than a ttl");
    cluster.close_slot(slot, to);

    // Both listen there before it is given back: a hand-over is one message.
    until("they listen at the new node", || to.command(&["PUBSUB", "SHARDCHANNELS", "*"]).items().len() == 2)
        .await;
    until_waiting(&domains[0], NAME, 2).await;
    let before = held.fence().get();
    held.release().await.expect("a cluster");
    let (first, second) = (first.await.expect("no panic"), second.await.expect("no panic"));
    assert!(before < first && first < second, "{before}, {first}, {second}");
}

// R3.1: a key that has moved is tracked where it is now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_is_told_after_a_move() {
    let cluster = patient();
    let domain = open(&cluster).await;
    let slot = slot(&cluster, NAME);
    // A renewal in the ordinary course of things is minutes away.
    let held = domain.lock(NAME).ttl(Duration::from_secs(600)).acquire().await.expect("a cluster");
    until("it is tracked", || {
        let clients = master(&cluster, NAME).question(&["INFO", "clients"]).text();
        clients.lines().any(|line| line.starts_with("tracking_clients:") && !line.ends_with(":0"))
            && held.remaining() > Duration::ZERO
    })
    .await;
    let to = cluster.another_than(slot);
    let keys = |node: &tenure_testkit::redis::RedisServer| {
        let stats = node.question(&["INFO", "stats"]).text();
        let line = stats.lines().find_map(|line| line.strip_prefix("tracking_total_keys:"));
        line.and_then(|keys| keys.trim().parse::<u64>().ok()).expect("a number")
    };
    until("its key is tracked", || keys(master(&cluster, NAME)) == 1).await;
    cluster.move_slot(slot, to);
    until("its key is tracked at the new node", || keys(to) == 1).await;
    assert!(held.is_held());
    to.command(&["DEL", &key(NAME)]);
    let lost = tokio::time::timeout(PATIENCE, held.lost()).await.expect("it is told");
    assert_eq!(lost.name(), NAME);
}

// R1.3: a channel is there for as long as somebody waits, and a moment longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_is_one_message() {
    let cluster = patient();
    let (one, other) = (open(&cluster).await, open(&cluster).await);
    let node = master(&cluster, NAME);
    let calls = |command: &str| {
        let stats = node.question(&["INFO", "commandstats"]).text();
        let start = format!("cmdstat_{command}:calls=");
        let line = stats.lines().find_map(|line| line.strip_prefix(&start).map(str::to_owned));
        line.and_then(|line| line.split(',').next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    // Until both of them listen.
    for domain in [&one, &other] {
        let holder = if std::ptr::eq(domain, &one) { &other } else { &one };
        let held = holder.lock(NAME).acquire().await.expect("a cluster");
        let waits = one_turn(domain);
        until("it listens", || calls("ssubscribe") > 0).await;
        until_waiting(holder, NAME, 1).await;
        held.release().await.expect("a cluster");
        waits.await.expect("no panic");
    }
    let (scripts, messages) = (calls("evalsha"), calls("spublish"));
    let mut held = one.lock(NAME).acquire().await.expect("a cluster");
    let mut handed_over = 0;
    for domain in [&other, &one].into_iter().cycle().take(40) {
        let waiting = domain.clone();
        let next = tokio::spawn(async move { waiting.lock(NAME).acquire().await.expect("a cluster") });
        let asked = calls("evalsha");
        until("it waits", || calls("evalsha") > asked || calls("evalsha") > scripts + handed_over * 2).await;
        held.release().await.expect("a cluster");
        held = next.await.expect("no panic");
        handed_over += 1;
    }
    let (scripts, messages) = (calls("evalsha") - scripts, calls("spublish") - messages);
    println!("{handed_over} hand-overs, {scripts} scripts, {messages} messages");
    assert!(scripts <= 4 * handed_over, "two for each, and some beats");
}

// R0.5: the node that a slot is being moved to is away, and that is said, at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_is_moved_to_a_node_that_is_away_says_so() {
    let cluster = patient();
    let domain = open(&cluster).await;
    let slot = slot(&cluster, NAME);
    let (from, to) = (cluster.master_of(slot), cluster.another_than(slot));
    cluster.open_slot(slot, to);
    to.kill();
    let error = domain.lock(NAME).acquire().await.expect_err("nobody can have it");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(error.what(), format!("cannot reach redis at 127.0.0.1:{}", to.port()));
    // As soon as it is decided that the slot stays, it is there.
    assert_eq!(from.command(&["CLUSTER", "SETSLOT", &slot.to_string(), "STABLE"]).text(), "OK");
    domain.lock(NAME).acquire().await.expect("it stays").release().await.expect("a cluster");
}
