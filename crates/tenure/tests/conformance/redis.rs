//! A Redis server of its own for each case, and a proxy in front of it for each client: its line can be cut, and replies can be lost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tenure::{Domain, Ticket};
use tenure_testkit::conformance;
use tenure_testkit::conformance::{Client, Doing, Fixture};
use tenure_testkit::redis::{Fault, Proxy, RedisServer, Step, named};
use tokio::runtime::{Builder, Runtime};

use crate::file::Directory;
use crate::{doomed, without_order};

struct OneServer {
    server: Arc<RedisServer>,
    /// What is still at work for a case that is over may find the next one's server at its port: it finds other names there.
    prefix: String,
    credentials: &'static str,
    killer: Option<Killer>,
    /// A directory underneath, which every holder holds as well.
    inner: Option<Directory>,
    /// A guard or a task may outlive its client: nobody's line ends before the case.
    lines: Mutex<Vec<Arc<Proxy>>>,
}

impl OneServer {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        OneServer {
            server: Arc::new(RedisServer::start()),
            prefix: format!("case-{}-{}:", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)),
            credentials: "",
            killer: None,
            inner: None,
            lines: Mutex::default(),
        }
    }

    /// Every connection is killed, up to ten times a second.
    fn killed() -> Self {
        let mut fixture = OneServer::new();
        fixture.killer = Some(Killer::start(Arc::clone(&fixture.server)));
        fixture
    }

    /// The user may neither track keys, nor publish, nor subscribe.
    fn restricted() -> Self {
        let mut fixture = OneServer::new();
        let acl = ["ACL", "SETUSER", "plain", "on", ">secret", "~*", "resetchannels", "+@all", "-@pubsub"];
        // Before Redis 7 one of the commands of CLIENT can be allowed, and not denied.
        fixture.server.command(&[&acl[..], &["-client", "+client|caching"]].concat());
        fixture.credentials = "plain:secret@";
        fixture
    }

    /// With a directory underneath.
    fn layered() -> Self {
        OneServer { inner: Some(Directory::new()), ..OneServer::new() }
    }

    fn url(&self, port: u16) -> String {
        let inner = self.inner.as_ref().map(|inner| format!("&inner={}", inner.url())).unwrap_or_default();
        format!("redis://{}127.0.0.1:{port}?prefix={}{inner}", self.credentials, self.prefix)
    }
}

/// How long connections live that are of use.
const EVERY: Duration = Duration::from_millis(100);

/// How many clients are connected.
fn connected(server: &RedisServer) -> u64 {
    let clients = server.question(&["INFO", "clients"]).text();
    let number =
        clients.lines().find_map(|line| line.strip_prefix("connected_clients:")?.trim().parse().ok());
    number.expect("a number of clients")
}

/// How many scripts clients have called.
fn scripts_served(server: &RedisServer) -> u64 {
    let stats = server.question(&["INFO", "commandstats"]).text();
    let calls = |line: &str| {
        let counts =
            line.strip_prefix("cmdstat_eval:calls=").or(line.strip_prefix("cmdstat_evalsha:calls="))?;
        counts.split(',').next()?.parse::<u64>().ok()
    };
    stats.lines().filter_map(calls).sum()
}

/// Kills every connection but its own, again and again.
struct Killer {
    is_over: Arc<AtomicBool>,
    /// Held while it kills, and by whoever is cut off, which the server must not learn of.
    pauses: Arc<Mutex<bool>>,
    thread: Option<JoinHandle<()>>,
}

impl Killer {
    fn start(server: Arc<RedisServer>) -> Self {
        let (is_over, pauses) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(false)));
        let (ends, rests) = (Arc::clone(&is_over), Arc::clone(&pauses));
        let thread = std::thread::spawn(move || {
            let (mut served, mut clients, mut since) = (0, 0, Instant::now());
            while !ends.load(Ordering::SeqCst) {
                // On a busy machine a connection needs longer to be made, and to be of use. Who was killed before that again and again would
                // pause for longer and longer before it tries again.
                let is_of_use = connected(&server) >= clients && scripts_served(&server) > served + 1;
                if !is_of_use && since.elapsed() < 10 * EVERY {
                    std::thread::park_timeout(EVERY / 10);
                    continue;
                }
                std::thread::park_timeout(EVERY);
                let pauses = rests.lock().expect("no panic");
                (clients, served) = (connected(&server), scripts_served(&server));
                if !*pauses {
                    for kind in ["normal", "pubsub"] {
                        server.command(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
                    }
                }
                drop(pauses);
                since = Instant::now();
            }
        });
        Killer { is_over, pauses, thread: Some(thread) }
    }
}

impl Drop for Killer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            thread.join().expect("a killer that could kill");
        }
    }
}

/// A client behind a proxy of its own.
struct Proxied {
    domain: Domain,
    proxy: Arc<Proxy>,
    killer_pauses: Option<Arc<Mutex<bool>>>,
}

impl Proxied {
    fn pause_killer(&self, pauses: bool) {
        if let Some(killer) = &self.killer_pauses {
            *killer.lock().expect("no panic") = pauses;
        }
    }

    /// A waiter whose subscription was killed a moment ago is passed over, as it must be: it is given the time to say that it is there.
    async fn is_heard_again(&self) {
        if self.killer_pauses.is_none() || !self.proxy.has_seen(Step::Received, named("SUBSCRIBE")) {
            return;
        }
        self.proxy.forget();
        let beaten = async {
            while self.proxy.connections() < 2 || !self.proxy.has_seen(Step::Answered, named("EVALSHA")) {
                tokio::task::yield_now().await;
            }
        };
        // One that waits no longer says nothing.
        drop(tokio::time::timeout(Duration::from_secs(1), beaten).await);
    }
}

impl Client for Proxied {
    fn domain(&self) -> &Domain {
        &self.domain
    }

    async fn cut_off(&self) {
        self.pause_killer(true);
        self.is_heard_again().await;
        self.proxy.cut();
    }

    async fn reconnect(&self) {
        self.proxy.heal();
        self.pause_killer(false);
        while self.domain.health().await.is_err() {
            tokio::task::yield_now().await;
        }
    }

    async fn lose_next_reply(&self) {
        self.proxy.inject(Fault::SwallowThenReset, 1, named("EVALSHA"));
    }
}

impl Fixture for OneServer {
    type Client = Proxied;

    fn runtime(&self) -> Runtime {
        Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
    }

    async fn client(&self) -> Proxied {
        let proxy = Arc::new(Proxy::new(&self.server));
        self.lines.lock().expect("no panic").push(Arc::clone(&proxy));
        let url = self.url(proxy.port());
        loop {
            match Domain::open(&url).await {
                Ok(domain) => {
                    let killer_pauses = self.killer.as_ref().map(|killer| Arc::clone(&killer.pauses));
                    return Proxied { domain, proxy, killer_pauses };
                }
                Err(error) if error.is_transient() && self.killer.is_some() => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    async fn let_pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    fn breaks_connections(&self) -> bool {
        self.killer.is_some()
    }

    async fn die(&self, doing: Doing, name: &str, ttl: Duration) -> Option<Ticket> {
        doomed::kill(&self.url(self.server.port()), doing, name, ttl)
    }
}

conformance!(redis, OneServer::new(), without []);
without_order!(redis_killed, OneServer::killed());
conformance!(redis_restricted, OneServer::restricted(), without[loss::a_loss_is_pushed_to_its_holder]);
conformance!(layered, OneServer::layered(), without []);
