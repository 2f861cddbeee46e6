//! Some servers are away: nobody waits for them, and they get what they missed.

use std::time::{Duration, Instant};

use tenure::{Domain, DomainUrl, LossKind, Release};
use tenure_testkit::patience::until;
use tenure_testkit::redis::{Fault, named};

use crate::quorum::scene::{KEY, LONG, NAME, Scene};

const TTL: Duration = Duration::from_secs(2);

// R3.9: acquire, renewal and release do not wait for a silent minority, which undoes its requests later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_of_five_may_be_silent() {
    let scene = Scene::new(5);
    let domain = scene.client(TTL).await;
    drop(domain.lock(NAME).acquire().await.expect("all are there"));
    scene.servers[0].stop();
    scene.servers[3].stop();
    for _ in 0..3 {
        let guard = domain.lock(NAME).acquire().await.expect("three of five");
        guard.renew().await.expect("three of five");
        assert_eq!(guard.release().await.expect("three of five"), Release::Released);
    }
    scene.servers[0].cont();
    scene.servers[3].cont();
    until("nothing is left behind", || scene.holders().is_empty()).await;
}

// R3.9, R1.5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_that_lost_the_lease_is_healed() {
    let scene = Scene::new(3);
    let domain = scene.client(LONG).await;
    let guard = domain.lock(NAME).acquire().await.expect("a free name");
    guard.renew().await.expect("it is tracked");
    until("all have it", || scene.holders() == [0, 1, 2]).await;
    assert_eq!(scene.servers[2].command(&["DEL", KEY]).int(), 1);
    until("it is healed", || scene.holders() == [0, 1, 2]).await;
    assert!(guard.is_held());
    scene.servers[1].kill();
    scene.servers[1].restart();
    until("it is healed", || scene.holders() == [0, 1, 2]).await;
    assert!(guard.is_held());
    assert_eq!(guard.release().await.expect("to release"), Release::Released);
    until("all let go", || scene.holders().is_empty()).await;
}

// R1.5, R3.2
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_a_majority_lost_is_lost() {
    let scene = Scene::new(3);
    let domain = scene.client(LONG).await;
    let guard = domain.lock(NAME).acquire().await.expect("a free name");
    guard.renew().await.expect("it is tracked");
    until("all have it", || scene.holders() == [0, 1, 2]).await;
    // While a majority has it, the client heals a server that lost it. So they lose it until a majority does at the same time.
    until("it is lost", || {
        scene.servers.iter().for_each(|server| drop(server.command(&["DEL", KEY])));
        !guard.is_held()
    })
    .await;
    guard.lost().await;
    drop(guard);
    drop(domain.lock(NAME).acquire().await.expect("it is free"));
}

// R1.5: cut off from a majority, a lease ends at its deadline, and then a client that reaches one gets it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_off_from_a_majority_it_is_lost_in_time() {
    let scene = Scene::new(3);
    let (cut, other) = (scene.peer(TTL).await, scene.client(TTL).await);
    let guard = cut.domain.lock(NAME).acquire().await.expect("a free name");
    cut.lines[0].cut();
    cut.lines[1].cut();
    let waiting = tokio::spawn(async move { other.lock(NAME).acquire().await });
    let loss = guard.lost().await;
    assert_eq!(*loss.kind(), LossKind::Unreachable);
    let next = waiting.await.expect("no panic").expect("two of three");
    assert!(!guard.is_held() && next.fence() > guard.fence());
}

// R3.9: a server that restarted without its data may have forgotten a lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_back_without_its_data_does_not_count_at_first() {
    let scene = Scene::new(3);
    let (holder, other) = (scene.peer(TTL).await, scene.client(TTL).await);
    // Held on the first and the third alone.
    holder.lines[1].cut();
    let guard = holder.domain.lock(NAME).acquire().await.expect("two of three");
    until("two have it", || scene.holders() == [0, 2]).await;
    // The holder does not notice it, and the two servers that another client reaches would be a majority.
    holder.lines[0].black_hole();
    scene.servers[0].kill();
    scene.servers[0].restart();
    let give_up = Instant::now() + TTL + Duration::from_secs(20);
    loop {
        let attempt = other.lock(NAME).try_acquire().await;
        if let Some(next) = attempt.ok().and_then(tenure::Attempt::ok) {
            assert!(!guard.is_held(), "two hold it");
            assert!(next.fence() > guard.fence());
            break;
        }
        assert!(Instant::now() < give_up, "nobody gets it any more");
    }
}

// R2.5, R3.9: unacknowledged requests are undone, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_that_are_lost_leave_nothing_behind() {
    let scene = Scene::new(3);
    let peer = scene.peer(LONG).await;
    for fault in [Fault::SwallowThenReset, Fault::Silence, Fault::DelayReply(Duration::from_millis(700))] {
        for line in &peer.lines[..2] {
            line.inject(fault, 1, named("EVALSHA"));
        }
        drop(tokio::time::timeout(Duration::from_millis(300), peer.domain.lock(NAME).acquire()).await);
        peer.lines.iter().for_each(tenure_testkit::redis::Proxy::clear);
        until("nothing is left behind", || scene.holders().is_empty()).await;
    }
}

// R0.2: every holder on a machine holds its directory and a majority.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_underneath() {
    let scene = Scene::new(3);
    let dir = std::env::temp_dir().join(format!("tenure-quorum-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let url = format!("{}&inner=file://{}/locks&degrade=allow", scene.url(TTL), dir.display());
    let url = DomainUrl::parse(&url).expect("a valid URL");
    let (one, other) =
        (Domain::open(url.clone()).await.expect("both"), Domain::open(url).await.expect("both"));
    let guard = one.lock(NAME).acquire().await.expect("a free name");
    assert!(!guard.is_degraded());
    let fence = guard.fence();
    assert!(other.lock(NAME).try_acquire().await.expect("an answer").ok().is_none());
    guard.release().await.expect("to release");
    scene.servers[..2].iter().for_each(tenure_testkit::redis::RedisServer::kill);
    let guard = other.lock(NAME).acquire().await.expect("the directory");
    assert!(guard.is_degraded() && guard.fence() > fence);
    drop(guard);
    drop((one, other));
    drop(std::fs::remove_dir_all(dir));
}
