//! One server and its clients, each with a way to it of its own; and what can be seen of [`NAME`].

use std::future::Future;
use std::panic::Location;
use std::time::Duration;

use tenure::{Domain, Guard, Holder, Lock};
use tenure_testkit::redis::{Builder, Proxy, RedisServer, Reply, Step};
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub(crate) const NAME: &str = "orders/42";
/// What holds the token of [`NAME`].
pub(crate) const KEY: &str = "tenure:orders/42";
pub(crate) const FENCE: &str = "{tenure:orders/42}:fence";
pub(crate) const QUEUE: &str = "{tenure:orders/42}:queue";
pub(crate) const BEATS: &str = "{tenure:orders/42}:beats";

/// A ttl that neither ends nor is renewed within a test: a third of it is four times [`SOON`].
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// What must happen about at once, or within a second, has happened by then on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(5);
/// How long anything is waited for.
const LIMIT: Duration = Duration::from_secs(20);
const STEP: Duration = Duration::from_millis(5);

/// A server, and a client that only looks.
pub(crate) struct Scene {
    pub(crate) server: RedisServer,
    witness: Domain,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        Scene::with(RedisServer::builder()).await
    }

    /// On a server whose clock can be moved.
    pub(crate) async fn with_clock() -> Self {
        Scene::with(RedisServer::builder().clock()).await
    }

    pub(crate) async fn with(builder: Builder) -> Self {
        let server = builder.start();
        let witness = Domain::open(server.url()).await.expect("to open");
        // From here on the server knows the scripts: a test counts one command for each.
        let held = witness.lock("another").acquire().await.expect("to acquire");
        held.renew().await.expect("to renew");
        held.release().await.expect("to release");
        let held = witness.lock("another").take_over().await.expect("to take over");
        held.release().await.expect("to release");
        Scene { server, witness }
    }

    pub(crate) async fn peer(&self) -> Peer {
        self.peer_as("", "").await
    }

    /// With `user:password@` or nothing, and options as they stand in a URL.
    pub(crate) async fn peer_as(&self, credentials: &str, options: &str) -> Peer {
        let proxy = Proxy::new(&self.server);
        let url = format!("redis://{credentials}127.0.0.1:{}{options}", proxy.port());
        Peer { domain: Domain::open(url).await.expect("to open"), proxy }
    }

    /// A user who may do everything but this; its credentials.
    pub(crate) fn user_without(&self, denied: &[&str]) -> &'static str {
        let user = [&["ACL", "SETUSER", "poor", "on", ">secret", "~*", "&*", "+@all"], denied].concat();
        assert_eq!(self.server.command(&user).text(), "OK");
        "poor:secret@"
    }

    pub(crate) async fn holder(&self) -> Option<Holder> {
        self.witness.inspect(NAME).await.expect("to look").holder
    }

    /// The label of the holder.
    pub(crate) async fn held_by(&self) -> String {
        self.holder().await.expect("a holder").owner.label().to_owned()
    }

    /// The labels of those that wait and live, in order.
    pub(crate) async fn queue(&self) -> Vec<String> {
        let status = self.witness.inspect(NAME).await.expect("to look");
        status.waiters.iter().map(|waiter| waiter.owner.label().to_owned()).collect()
    }

    #[track_caller]
    pub(crate) fn is_queued(&self, labels: &[&str]) -> impl Future<Output = ()> {
        eventually(async move || self.queue().await == labels)
    }

    /// A task of this client that waits behind everyone who is there, and hears when it is granted the name.
    pub(crate) async fn enqueue(&self, peer: &Peer, label: &str) -> JoinHandle<Guard> {
        let task = peer.acquiring(label);
        eventually(async || self.queue().await.iter().any(|waiter| waiter == label)).await;
        self.all_hear().await;
        // The answer is there as well: what happens next is not repaired by a beat that was under way.
        let is_heard = |words: &[Vec<u8>]| is_acquire(words) && words[11] == b"0";
        peer.proxy.seen_async(Step::Delivered, is_heard).await;
        task
    }

    /// Until nobody who waits asks again and again any more, because all are subscribed.
    #[track_caller]
    pub(crate) fn all_hear(&self) -> impl Future<Output = ()> {
        eventually(async || {
            let beats = self.server.command(&["HVALS", BEATS]);
            beats.items().iter().all(|beat| beat.text().ends_with(" 0"))
        })
    }

    /// Executes a command on a connection of its own.
    pub(crate) fn command(&self, words: &[&str]) -> Reply {
        let reply = self.server.command(words);
        assert!(!reply.is_error(""), "{words:?}: {reply:?}");
        reply
    }

    /// A field of `INFO`, as a number.
    pub(crate) fn count(&self, section: &str, field: &str) -> u64 {
        let info = self.command(&["INFO", section]).text();
        let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let digits =
            line.map_or("0", |line| line.trim().trim_start_matches("calls=").split(',').next().unwrap());
        digits.parse().unwrap_or_else(|_| panic!("{field} is no number: {line:?}"))
    }
}

/// A client, and the network between it and the server.
pub(crate) struct Peer {
    pub(crate) domain: Domain,
    pub(crate) proxy: Proxy,
}

impl Peer {
    pub(crate) fn lock(&self, label: &str) -> Lock {
        self.domain.lock(NAME).ttl(LONG).label(label)
    }

    /// Takes [`NAME`], which is free.
    pub(crate) async fn hold(&self, label: &str) -> Guard {
        self.lock(label).acquire().await.expect("to acquire")
    }

    /// A task that acquires.
    pub(crate) fn acquiring(&self, label: &str) -> JoinHandle<Guard> {
        let lock = self.lock(label);
        tokio::spawn(async move { lock.acquire().await.expect("to be granted in the end") })
    }

    /// Until the server tells it of changes to what it holds.
    #[track_caller]
    pub(crate) fn is_told(&self) -> impl Future<Output = ()> {
        self.renews(0)
    }

    /// Until it has renewed more often than that: because it has a reason to, and not because a third of [`LONG`] is over.
    #[track_caller]
    pub(crate) fn renews(&self, before: u64) -> impl Future<Output = ()> {
        soon(eventually(async move || self.domain.metrics().renewals > before))
    }
}

/// The guard of a task that waits, about at once.
#[track_caller]
pub(crate) fn granted(task: JoinHandle<Guard>) -> impl Future<Output = Guard> {
    let granted = soon(task);
    async { granted.await.expect("a task that did not panic") }
}

/// What must come about at once, long before any ttl is over.
#[track_caller]
pub(crate) fn soon<T>(future: impl Future<Output = T>) -> impl Future<Output = T> {
    let caller = Location::caller();
    async move {
        let output = tokio::time::timeout(SOON, future).await;
        output.unwrap_or_else(|_| panic!("{caller}: still waiting after {SOON:?}"))
    }
}

/// Waits until it is so.
#[track_caller]
pub(crate) fn eventually(mut is_so: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    let caller = Location::caller();
    async move {
        let give_up = Instant::now() + LIMIT;
        while !is_so().await {
            assert!(Instant::now() < give_up, "{caller}: not so after {LIMIT:?}");
            tokio::time::sleep(STEP).await;
        }
    }
}

/// The commands that ask for a lease and wait for it: the first, which joins the queue, and the beats.
pub(crate) fn is_acquire(words: &[Vec<u8>]) -> bool {
    words.len() == 16 && (words[10] == b"join" || words[10].iter().all(u8::is_ascii_digit))
}

/// The commands that renew.
pub(crate) fn is_renewal(words: &[Vec<u8>]) -> bool {
    words.len() == 6 && words[2] == b"1" && words[3] == KEY.as_bytes()
}
