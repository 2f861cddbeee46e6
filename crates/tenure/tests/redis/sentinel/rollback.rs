//! What too few replicas acknowledged is given back, whatever it was asked by, and not left to run out.

use std::time::Duration;

use tenure::{Domain, Error};
use tenure_testkit::patience::{PATIENCE, until};
use tenure_testkit::redis::Trio;

use super::pace::waits;
use crate::redis::hygiene::traces::{keys, until_clean};

const NAME: &str = "orders/42";

struct Scene {
    trio: Trio,
    /// Wants both replicas, and one.
    all: Domain,
    one: Domain,
}

impl Scene {
    /// Leases are far longer than a test: what is gone was given back.
    async fn new() -> Self {
        let trio = Trio::builder().down_after(Duration::from_secs(600)).start();
        let url = format!("{}?ttl=10m&timeout=1s&replicas=", trio.url());
        let open = async |replicas: &str| Domain::open(format!("{url}{replicas}")).await.expect("a master");
        Scene { all: open("all").await, one: open("1").await, trio }
    }

    fn pause(&self) {
        self.trio.replicas()[0].stop();
    }

    /// Lets it go on, and waits until it has caught up.
    async fn resume(&self) {
        self.trio.replicas()[0].cont();
        let both = async || self.all.lock("orders/1").run(async |_| ()).await;
        while both().await.is_err() {}
    }

    async fn until_clean(&self) {
        until_clean(self.trio.master()).await;
    }
}

#[track_caller]
fn assert_short(error: &Error) {
    let shortage = error.too_few_replicas().unwrap_or_else(|| panic!("not for want of replicas: {error}"));
    assert_eq!((shortage.acknowledged(), shortage.needed()), (1, 2));
    assert!(error.is_transient(), "{error}");
}

// R4.4, I5: whoever asks for a name that is free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_free_is_free_again() {
    let scene = Scene::new().await;
    scene.pause();
    let lock = scene.all.lock(NAME);
    assert_short(&lock.try_acquire().await.expect_err("one is away"));
    scene.until_clean().await;
    assert_short(&lock.acquire().await.expect_err("one is away"));
    scene.until_clean().await;
    for limit in [Duration::from_millis(600), Duration::from_secs(5)] {
        assert_short(&lock.try_acquire_for(limit).await.expect_err("one is away"));
        scene.until_clean().await;
    }
    let dropped = tokio::time::timeout(Duration::from_millis(50), lock.acquire()).await;
    assert!(dropped.is_err(), "dropped while replicas are waited for");
    scene.until_clean().await;
    assert_short(&lock.run(async |_| ()).await.expect_err("one is away"));
    scene.until_clean().await;
    scene.resume().await;
    drop(lock.try_acquire().await.expect("both are there").ok().expect("nobody has it"));
}

// R4.4, I5: whoever takes what somebody has. That one's lease is over nevertheless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_taken_is_free() {
    let scene = Scene::new().await;
    scene.pause();
    let held = scene.one.lock(NAME).acquire().await.expect("one is there");
    assert_short(&scene.all.lock(NAME).take_over().await.expect_err("one is away"));
    scene.until_clean().await;
    tokio::time::timeout(PATIENCE, held.lost()).await.expect("it is told");
    drop(held);

    let ticket =
        scene.one.lock(NAME).acquire().await.expect("one is there").detach().await.expect("a ticket");
    assert_short(&ticket.adopt(&scene.all).await.expect_err("one is away"));
    scene.until_clean().await;
    let used = ticket.adopt(&scene.one).await.expect_err("a ticket is good for once");
    assert!(used.loss().is_some(), "{used}");
    scene.resume().await;
}

// R1.4, R4.4: whoever was handed a name has it when all replicas know; if it gives up before, it goes to the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_handed_over_goes_on() {
    let scene = Scene::new().await;
    let held = scene.one.lock(NAME).acquire().await.expect("one is there");
    let all = scene.all.clone();
    let first = tokio::spawn(async move { all.lock(NAME).acquire().await });
    let waiters = async || scene.one.inspect(NAME).await.expect("a master").waiters.len();
    while waiters().await < 1 {
        tokio::task::yield_now().await;
    }
    let other =
        Domain::open(format!("{}?ttl=10m&timeout=1s&replicas=1", scene.trio.url())).await.expect("a master");
    let second = tokio::spawn(async move { other.lock(NAME).acquire().await });
    while waiters().await < 2 {
        tokio::task::yield_now().await;
    }
    scene.pause();
    held.release().await.expect("a master");
    while waiters().await > 1 {
        tokio::task::yield_now().await;
    }
    let before = waits(&scene.trio);
    until("it was tried again", || waits(&scene.trio) >= before + 2).await;
    assert!(!first.is_finished() && !second.is_finished(), "the first has it in the store, and does not run");
    first.abort();
    let next = tokio::time::timeout(PATIENCE, second).await.expect("at once").expect("no panic");
    drop(next.expect("one is there"));
    scene.until_clean().await;
    scene.resume().await;
}

// R2.5, R4.4: what is held stays held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_stays_held() {
    let scene = Scene::new().await;
    let held = scene.all.lock(NAME).acquire().await.expect("both are there");
    scene.pause();
    assert_short(&held.renew().await.expect_err("one is away"));
    assert!(held.is_held());
    let returned = held.detach().await.expect_err("one is away");
    assert_short(&returned.error);
    assert!(returned.guard.is_held());
    assert_eq!(keys(scene.trio.master()), ["tenure:orders/42"]);
    returned.guard.release().await.expect("a release needs no replicas");
    until("it is given back", || keys(scene.trio.master()).is_empty()).await;
    scene.resume().await;
}
