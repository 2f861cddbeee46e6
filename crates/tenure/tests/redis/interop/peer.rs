//! A lock of another library, in a process of its own, which is told line by line what to do and says how it went.
//!
//! `acquire NAME TTL` waits and says "acquired"; `try NAME TTL` says that or "busy"; `release` says "released", `extend TTL`
//! "extended", both "not owned" when the key is not theirs. A ttl is in milliseconds, or `none`, which redlock has not. The names are
//! keys: the prefix is part of them. It ends with its stdin, and so with the test.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use tenure_testkit::redis::{Client, RedisServer};

/// More than a busy machine needs for anything here.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Whose lock it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Library {
    /// `redis.lock.Lock` of redis-py.
    RedisPy,
    /// redlock, on one server.
    Redlock,
}

pub(super) struct Peer {
    library: Library,
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
    /// Its connection, as the server calls it.
    address: String,
}

impl Peer {
    pub(super) fn start(library: Library, server: &RedisServer) -> Self {
        let mut child = command(library, server.port())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a program that is installed");
        let (orders, said) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let (sender, answers) = channel();
        thread::spawn(move || {
            BufReader::new(said).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let mut peer = Peer { library, child, orders, answers, address: String::new() };
        peer.address = peer.answer();
        peer
    }

    /// Tells it what to do, and what it says to that.
    pub(super) fn ask(&mut self, order: &str) -> String {
        self.tell(order);
        self.answer()
    }

    pub(super) fn tell(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap_or_else(|error| panic!("{self:?} is gone: {error}"));
    }

    /// What it says to the order that it was told.
    pub(super) fn answer(&self) -> String {
        self.answers.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{self:?} says nothing: {error}"))
    }

    /// Whether it is still at what it was told.
    pub(super) fn is_at_it(&self) -> bool {
        match self.answers.try_recv() {
            Ok(_) => false,
            Err(TryRecvError::Empty) => true,
            Err(TryRecvError::Disconnected) => panic!("{self:?} is gone"),
        }
    }

    /// Returns when it has asked for this key so often; `monitor` began before it was told to.
    pub(super) fn wait_for_tries(&self, monitor: &mut Client, key: &str, tries: usize) {
        let (who, what) = (format!(" {}]", self.address), format!("\"{key}\""));
        let mut seen = 0;
        while seen < tries {
            let line = monitor.receive().expect("a server that tells what it is asked").text();
            seen += usize::from(line.contains(&who) && line.contains(&what));
        }
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the lock of {:?}", self.library)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A connection that hears every command from now on.
pub(super) fn monitor(server: &RedisServer) -> Client {
    let mut client = server.client().expect("a server that accepts");
    client.command(&["MONITOR"]).expect("a server that tells what it is asked");
    client
}

fn command(library: Library, port: u16) -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (programs, peers) = (root.join("tests/redis/interop"), root.join("../../target/peers"));
    let installed = std::fs::read_to_string(peers.join("installed")).unwrap_or_default();
    let pinned = ["requirements.txt", "package.json", "package-lock.json"]
        .map(|file| std::fs::read_to_string(programs.join(file)).expect("a file of this repository"));
    assert!(
        installed == pinned.concat(),
        "redis-py and redlock are not installed as pinned; run: make peers"
    );
    let program = |path: PathBuf| {
        let mut command = Command::new(path);
        command.env_remove("PYTHONPATH").env_remove("PYTHONHOME").env_remove("NODE_OPTIONS");
        command
    };
    let mut command = match library {
        Library::RedisPy => program(peers.join("python/bin/python3")),
        Library::Redlock => program(peers.join("node")),
    };
    match library {
        Library::RedisPy => command.arg(programs.join("lock.py")).arg(port.to_string()),
        Library::Redlock => command.arg(programs.join("lock.mjs")).arg(port.to_string()).arg(peers),
    };
    command
}
