//! Locks of other libraries on the same key and ours exclude each other (B6): shown with the real libraries, redis-py and redlock,
//! each in its own process. They are told step by step what to do, so that every state is one that was seen, not one that was
//! slept for.

mod counting;
mod peer;

use std::time::{Duration, Instant};

use tenure::{Attempt, Busy, Domain, ErrorKind, Guard, Release};
use tenure_testkit::redis::RedisServer;

use self::Library::{RedisPy, Redlock};
use self::peer::{Library, PATIENCE, Peer, monitor};

/// Longer than any test.
const LONG: &str = "600000";

/// A server, a lock of another library and a domain of ours, which call the same key by the same name.
struct World {
    peer: Peer,
    domain: Domain,
    server: RedisServer,
    key: String,
}

impl World {
    async fn new(library: Library, prefix: &str) -> Self {
        let server = RedisServer::start();
        let peer = Peer::start(library, &server);
        let domain = Domain::open(&format!("{}?prefix={prefix}", server.url())).await.unwrap();
        World { peer, domain, server, key: format!("{prefix}job") }
    }

    /// Of each library one, with either kind of prefix.
    async fn of_each() -> [Self; 2] {
        [World::new(RedisPy, "app:").await, World::new(Redlock, "").await]
    }

    fn they(&mut self, verb: &str, ttl: &str) -> String {
        self.peer.ask(&format!("{verb} {} {ttl}", self.key))
    }

    async fn busy(&self) -> Busy {
        match self.domain.lock("job").try_acquire().await.unwrap() {
            Attempt::Busy(busy) => busy,
            Attempt::Acquired(_) => panic!("{:?} is held, and so are we", self.peer),
        }
    }

    async fn we_take(&self) -> Guard {
        self.domain.lock("job").try_acquire().await.unwrap().ok().expect("a free name")
    }

    /// Our acquire, once it waits.
    async fn we_wait(&self) -> tokio::task::JoinHandle<Guard> {
        let lock = self.domain.lock("job");
        let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
        let begun = Instant::now();
        while self.domain.inspect("job").await.unwrap().waiters.len() != 1 {
            assert!(begun.elapsed() < PATIENCE, "we don't wait for {:?}", self.peer);
        }
        waiting
    }

    fn value(&self) -> String {
        self.server.command(&["GET", &self.key]).text()
    }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it happens")
}

// B6, R2.3, R4.2
#[tokio::test(flavor = "multi_thread")]
async fn while_they_hold_we_are_told_so() {
    for (library, prefix) in [(RedisPy, ""), (RedisPy, "app:"), (Redlock, ""), (Redlock, "app:")] {
        let mut world = World::new(library, prefix).await;
        assert_eq!(world.they("acquire", LONG), "acquired");

        let busy = world.busy().await;
        let status = world.domain.inspect("job").await.unwrap();
        let listed = world.domain.list("").await.unwrap();
        assert_eq!(listed.iter().map(|status| &*status.name).collect::<Vec<_>>(), ["job"]);
        for holder in [busy.holder.clone(), status.holder, listed[0].holder.clone()] {
            let holder = holder.expect("someone holds it");
            assert!(holder.owner.is_foreign());
            assert!(holder.remaining > Duration::ZERO && holder.remaining <= Duration::from_secs(600));
        }
        let said = busy.to_string();
        let is_told =
            ["10 min", "9 min 5"].map(|left| format!("held by a lock of another library, for {left}"));
        assert!(is_told.iter().any(|told| said.starts_with(told)), "{said}");
        assert!(said.ends_with(" still; 0 waiting"), "{said}");

        assert_eq!(world.peer.ask("release"), "released");
        assert!(!world.domain.inspect("job").await.unwrap().is_held());
        assert_eq!(world.we_take().await.release().await.unwrap(), Release::Released);
    }
}

// B6
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_theirs_without_expiry_is_held_for_ever() {
    let mut world = World::new(RedisPy, "app:").await;
    assert_eq!(world.they("acquire", "none"), "acquired");
    let busy = world.busy().await;
    assert_eq!(busy.to_string(), "held by a lock of another library, without expiry; 0 waiting");
    assert_eq!(busy.holder.unwrap().remaining, Duration::MAX);

    let waiting = world.we_wait().await;
    assert!(!waiting.is_finished());
    assert_eq!(world.peer.ask("release"), "released");
    assert!(soon(waiting).await.unwrap().is_held());
}

// B6
#[tokio::test(flavor = "multi_thread")]
async fn we_wait_until_they_release() {
    for mut world in World::of_each().await {
        assert_eq!(world.they("acquire", LONG), "acquired");
        let waiting = world.we_wait().await;
        assert_eq!(world.peer.ask(&format!("extend {LONG}")), "extended");
        assert!(world.domain.inspect("job").await.unwrap().holder.unwrap().owner.is_foreign());
        assert!(!waiting.is_finished());

        assert_eq!(world.peer.ask("release"), "released");
        let guard = soon(waiting).await.unwrap();
        assert_eq!(world.they("try", LONG), "busy");
        assert_eq!(guard.release().await.unwrap(), Release::Released);
    }
}

// B6
#[tokio::test(flavor = "multi_thread")]
async fn we_wait_until_theirs_expires() {
    for mut world in World::of_each().await {
        let begun = Instant::now();
        assert_eq!(world.they("acquire", "1500"), "acquired");
        let guard = soon(world.domain.lock("job").acquire()).await.unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(1500), "we did not wait for {:?}", world.peer);
        assert!(guard.is_held());
        assert_eq!(world.peer.ask("release"), "not owned");
        assert!(guard.is_held());
    }
}

// B6
#[tokio::test(flavor = "multi_thread")]
async fn they_wait_until_we_release_or_our_lease_ends() {
    for mut world in World::of_each().await {
        let guard = world.we_take().await;
        assert_eq!(world.they("try", LONG), "busy");
        let mut seen = monitor(&world.server);
        world.peer.tell(&format!("acquire {} {LONG}", world.key));
        world.peer.wait_for_tries(&mut seen, &world.key, 3);
        assert!(world.peer.is_at_it() && guard.is_held());
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        assert_eq!(world.peer.answer(), "acquired");
        world.busy().await;
        assert_eq!(world.peer.ask("release"), "released");

        let lock = world.domain.lock("job").ttl(Duration::from_secs(1)).no_renewal();
        let begun = Instant::now();
        let guard = lock.acquire().await.unwrap();
        assert_eq!(world.they("acquire", LONG), "acquired");
        assert!(begun.elapsed() >= Duration::from_secs(1), "{:?} did not wait for us", world.peer);
        assert!(!guard.is_held());
    }
}

// B6, R2.4
#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_theirs_can_be_broken_and_then_touches_ours_no_more() {
    for mut world in World::of_each().await {
        assert_eq!(world.they("acquire", LONG), "acquired");
        let holder = world.domain.inspect("job").await.unwrap().holder.unwrap();
        assert_eq!(world.domain.break_lock("job", &holder).await.unwrap(), Release::Released);
        let guard = world.we_take().await;
        let (ours, before) = (world.value(), guard.fence());

        assert_eq!(world.peer.ask(&format!("extend {LONG}")), "not owned");
        assert_eq!(world.peer.ask("release"), "not owned");
        let again = world.domain.break_lock("job", &holder).await.unwrap();
        assert!(matches!(again, Release::Taken { by } if !by.is_foreign()), "it was ours by then");
        assert_eq!(world.value(), ours);
        assert!(world.server.command(&["PTTL", &world.key]).int() <= 10_000, "nobody made it longer");
        guard.renew().await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Release::Released);
        assert!(world.we_take().await.fence() > before);
    }
}

// B6, R2.4, R3.1
#[tokio::test(flavor = "multi_thread")]
async fn what_was_ours_never_touches_theirs() {
    for mut world in World::of_each().await {
        let (held, dropped) = (world.we_take().await, world.domain.lock("other").acquire().await.unwrap());
        world.server.command(&["DEL", &world.key, &world.key.replace("job", "other")]);
        assert_eq!(world.they("acquire", LONG), "acquired");
        let theirs = world.value();

        soon(held.lost()).await;
        assert_eq!(held.renew().await.unwrap_err().kind(), ErrorKind::Lost);
        let release = held.release().await.unwrap();
        assert!(matches!(&release, Release::Taken { by } if by.is_foreign()), "{release:?}");
        drop(dropped);
        assert_eq!(world.value(), theirs);
        assert!(world.server.command(&["PTTL", &world.key]).int() > 60_000, "nobody made it shorter");
        assert_eq!(world.peer.ask("release"), "released");
    }
}

// B6
#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_any_bytes_excludes_us() {
    let server = RedisServer::start();
    let domain = Domain::open(&server.url()).await.unwrap();
    let theirs: [&[u8]; 5] = [b"SET", b"tenure:job", b"\xff\0 any: bytes\n", b"PX", b"600000"];
    server.command(&theirs);
    let holder = domain.inspect("job").await.unwrap().holder.unwrap();
    assert!(holder.owner.is_foreign());
    assert!(domain.lock("job").try_acquire().await.unwrap().ok().is_none());
    // What was read of it is not what is there: it is compared, and stays.
    let broken = domain.break_lock("job", &holder).await.unwrap();
    assert!(matches!(broken, Release::Taken { by } if by.is_foreign()));
    assert!(domain.lock("job").take_over().await.unwrap().is_held());
}

// B6
#[test]
fn the_packages_are_pinned_and_come_from_nowhere_in_particular() {
    let lock = include_str!("interop/package-lock.json");
    assert!(lock.contains("\"integrity\"") && !lock.contains("\"resolved\""));
}
