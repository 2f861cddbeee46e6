//! Rule 2, B2: whatever the number of waiters, a hand-over wakes one of them, and costs its release and nothing else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure::Domain;
use tenure_testkit::redis::Proxy;

use super::scene::{LONG, NAME, Scene, eventually, soon};

const WAITERS: usize = 24;
const BEAT: Duration = Duration::from_millis(400);

#[tokio::test]
async fn a_hand_over_wakes_nobody_else() {
    let scene = Scene::new().await;
    let a = scene.peer().await;
    let guard = a.hold("a").await;
    let proxy = Arc::new(Proxy::new(&scene.server));
    let mut tasks = Vec::new();
    for _ in 0..WAITERS {
        let lock = Domain::open(proxy.url()).await.expect("to open").lock(NAME).ttl(LONG);
        tasks.push(tokio::spawn(async move {
            let guard = lock.acquire().await.expect("to be granted");
            guard.release().await.expect("to release");
        }));
    }
    eventually(async || scene.queue().await.len() == WAITERS).await;
    scene.all_hear().await;
    let calls = || ["evalsha", "eval"].map(|name| scene.count("commandstats", &format!("cmdstat_{name}")));
    let (before, published) = (calls(), scene.count("commandstats", "cmdstat_publish"));
    let began = Instant::now();
    guard.release().await.expect("to release");
    for task in tasks {
        soon(task).await.expect("a task that did not panic");
    }
    let beats_each = began.elapsed().as_millis() / BEAT.as_millis() + 1;
    let sum = |calls: [u64; 2]| usize::try_from(calls.iter().sum::<u64>()).expect("a small number");
    let spent = sum(calls()) - sum(before);
    let releases = WAITERS + 1;
    let beats = WAITERS * usize::try_from(beats_each).expect("a small number");
    println!(
        "{WAITERS} hand-overs in {:?}: {spent} scripts, of which at most {beats} beats",
        began.elapsed()
    );
    assert!(spent <= 2 * releases + beats, "{spent} scripts for {WAITERS} hand-overs, {beats} beats");
    let told = scene.count("commandstats", "cmdstat_publish") - published;
    assert_eq!(told, WAITERS as u64, "each is told once, and nobody else is");
}
