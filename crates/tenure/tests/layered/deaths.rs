//! A process dies: its machine sees that at once, and does not wait for its lease in Redis to end.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tenure::{Attempt, Degrade, Domain, DomainUrl, Ticket};

use crate::layered::scene::{LONG, Machine, NAME, Peer, Scene};

/// Far below the ttl of the dead.
const PATIENCE: Duration = Duration::from_secs(20);

/// Another process, which holds the name until it is killed, or leaves a ticket.
struct Doomed {
    child: Child,
    said: String,
}

impl Doomed {
    fn start(url: &DomainUrl, does: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("a test binary"))
            .args(["--exact", "layered::deaths::a_process_that_dies", "--ignored", "--nocapture"])
            .env("TENURE_LAYERED_URL", url.to_string())
            .env("TENURE_LAYERED_DOES", does)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let said = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("has ").map(str::to_owned));
        Doomed { said: said.expect("it has the name"), child }
    }

    fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Doomed {
    fn drop(&mut self) {
        self.kill();
    }
}

#[tokio::test]
#[ignore = "run by another test, as a process that it kills"]
async fn a_process_that_dies() {
    let var =
        |name: &str| std::env::var(format!("TENURE_LAYERED_{name}")).expect("to be run by another test");
    let domain = Domain::open(var("URL")).await.expect("to open");
    let guard = domain.lock(NAME).acquire().await.expect("to acquire");
    match var("DOES").as_str() {
        "detach" => println!("has {}", guard.detach().await.expect("to detach")),
        _ => {
            println!("has {}", guard.fence());
            guard.lost().await;
        }
    }
}

async fn acquired_before_the_ttl(peer: &Peer, above: u64) {
    let since = Instant::now();
    let guard = peer.acquire().await;
    assert!(since.elapsed() < PATIENCE, "waited for the lease of the dead: {:?}", since.elapsed());
    assert!(!guard.is_degraded() && guard.fence().get() > above);
    guard.release().await.expect("to release");
}

// R0.2, R1.3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_process_of_the_machine_does_not_wait_for_a_ttl() {
    for degrade in [Degrade::Never, Degrade::Allow] {
        let scene = Scene::new();
        let peer = scene.peer(degrade, LONG).await;
        let url = scene.url(&peer.proxy, degrade, LONG);

        // One that comes afterwards.
        let mut doomed = Doomed::start(&url, "hold");
        let fence = doomed.said.parse().expect("a fence");
        doomed.kill();
        acquired_before_the_ttl(&peer, fence).await;

        // One that was there before, and one of another machine that waits behind it.
        let mut doomed = Doomed::start(&url, "hold");
        let fence = doomed.said.parse().expect("a fence");
        let waiting = tokio::spawn({
            let lock = peer.domain.lock(NAME);
            async move { lock.acquire().await }
        });
        while peer.domain.inspect(NAME).await.expect("to look").waiters.is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let since = Instant::now();
        doomed.kill();
        let guard = waiting.await.expect("no panic").expect("its turn");
        assert!(since.elapsed() < PATIENCE && guard.fence().get() > fence && !guard.is_degraded());
        guard.release().await.expect("to release");

        // One that does not wait, and one that only looks.
        for looks in [false, true] {
            let mut doomed = Doomed::start(&url, "hold");
            doomed.kill();
            if looks {
                let status = peer.domain.inspect(NAME).await.expect("to look");
                assert_eq!(status.holder, None, "it is dead");
            }
            let attempt = peer.domain.lock(NAME).try_acquire().await.expect("an answer");
            assert!(matches!(attempt, Attempt::Acquired(_)), "{attempt:?}");
        }
    }
}

// R0.2: what its owner detached outlives its process, in both stores.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_was_detached_is_not_ended() {
    let scene = Scene::new();
    let peer = scene.peer(Degrade::Never, LONG).await;
    let mut doomed = Doomed::start(&scene.url(&peer.proxy, Degrade::Never, LONG), "detach");
    let ticket: Ticket = doomed.said.parse().expect("a ticket");
    doomed.kill();
    for _ in 0..3 {
        let attempt = peer.domain.lock(NAME).try_acquire().await.expect("an answer");
        assert!(matches!(attempt, Attempt::Busy(_)), "{attempt:?}");
        assert_eq!(scene.server.command(&["EXISTS", "tenure:orders/42"]).int(), 1);
    }
    let adopted = ticket.adopt(&peer.domain).await.expect("it lives on");
    adopted.release().await.expect("to release");
}

// R0.2: that a process can't be found in a directory is no proof of its death.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_living_keep_their_lease_when_the_directory_is_removed() {
    let scene = Scene::new();
    let (holder, other) = (scene.peer(Degrade::Never, LONG).await, scene.peer(Degrade::Never, LONG).await);
    let guard = holder.acquire().await;
    std::fs::remove_dir_all(scene.machine.path().join("locks")).expect("to remove it");
    let late = scene.peer(Degrade::Never, LONG).await;
    for peer in [&other, &late] {
        let attempt = peer.domain.lock(NAME).try_acquire_for(Duration::from_millis(300)).await;
        assert!(!matches!(attempt, Ok(Attempt::Acquired(_))), "{attempt:?}");
    }
    assert_eq!(scene.server.command(&["EXISTS", "tenure:orders/42"]).int(), 1);
    drop(guard);
}

// R0.2: nor is it known on another machine, which waits for the ttl.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_machine_does_not_end_it() {
    let (scene, machine) = (Scene::new(), Machine::new());
    std::fs::create_dir_all(machine.path()).expect("a directory");
    let peer = scene.peer(Degrade::Never, LONG).await;
    let mut doomed = Doomed::start(&scene.url(&peer.proxy, Degrade::Never, LONG), "hold");
    doomed.kill();
    let there = Domain::layered(scene.server.url(), machine.url(), Degrade::Never).await.expect("to open");
    let attempt = there.lock(NAME).try_acquire().await.expect("an answer");
    assert!(matches!(attempt, Attempt::Busy(_)), "{attempt:?}");
    // Until somebody on the machine of the dead looks.
    assert_eq!(peer.domain.inspect(NAME).await.expect("to look").holder, None);
    drop(there.lock(NAME).acquire().await.expect("it is free"));
}
