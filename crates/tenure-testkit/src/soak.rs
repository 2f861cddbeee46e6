//! Processes that work under load until they are told that it is enough, while somebody does harm to them and to their servers.
//!
//! A worker is a test of the same program, ignored unless another one starts it with its orders: so what it does stands beside what is
//! done to it. Its tasks take names and give them back, and write down what they believe, for the oracle. It works until its standard
//! input is closed, which also happens when whoever started it dies.

mod orders;
mod task;

use crate::directory::Directory;
use crate::oracle::{History, Recorder};
use orders::Orders;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

pub use task::{Task, work};

/// Where chance begins: anew each time, unless `SEED` says where. It is printed, so that a run can be repeated.
///
/// # Panics
/// When `SEED` is not a number.
#[must_use]
pub fn seed(what: &str) -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock").subsec_nanos();
    let seed = std::env::var("SEED").map_or(u64::from(now) | 1, |seed| seed.parse().expect("a number"));
    println!("{what}: SEED={seed}");
    seed
}

/// How long harm is done: so many seconds in a test run, or as many as `TENURE_SOAK_SECONDS` asks for.
///
/// # Panics
/// When that is not a number.
#[must_use]
pub fn length(seconds: u64) -> Duration {
    let asked = std::env::var("TENURE_SOAK_SECONDS").map(|seconds| seconds.parse().expect("seconds"));
    Duration::from_secs(asked.unwrap_or(seconds))
}

/// The workers of one run, and the directory that they share. They are killed and it is removed when this is dropped.
#[derive(Debug)]
pub struct Crew {
    /// For what is done to them.
    pub log: Recorder,
    test: &'static str,
    seed: u64,
    started: u64,
    // Before the directory, so that nobody writes to it while it is removed.
    workers: Vec<Worker>,
    dir: Directory,
}

impl Crew {
    /// Nobody works yet. Whoever is started will run this test of this program, which calls [`work`].
    ///
    /// # Panics
    /// When there can't be a directory.
    #[must_use]
    pub fn new(test: &'static str, seed: u64) -> Self {
        let dir = Directory::new();
        let log = Recorder::in_dir(logs(dir.path()), "torturer").expect("a log");
        Crew { log, test, seed, started: 0, workers: Vec::new(), dir }
    }

    /// What the names protect is here.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Starts one more, on this domain.
    ///
    /// # Panics
    /// When it can't be started.
    pub fn start(&mut self, id: &str, url: &str) {
        let worker = self.launch(id, url);
        self.workers.push(worker);
    }

    /// How one of them is called.
    #[must_use]
    pub fn id(&self, number: usize) -> &str {
        &self.workers[number].id
    }

    /// Kills one, and starts another in its place. An id is never used again.
    ///
    /// # Panics
    /// When it can't be started.
    pub fn replace(&mut self, number: usize, id: &str, url: &str) {
        self.log.killed(self.id(number));
        self.workers[number].kill();
        self.workers[number] = self.launch(id, url);
    }

    fn launch(&mut self, id: &str, url: &str) -> Worker {
        self.started += 1;
        let mut command = Command::new(std::env::current_exe().expect("a test binary"));
        command.args(["--exact", self.test, "--ignored", "--nocapture"]);
        let seed = self.seed ^ self.started;
        Orders { url: url.to_owned(), dir: self.dir().to_owned(), id: id.to_owned(), seed }
            .give(&mut command);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a process");
        Worker { child, id: id.to_owned() }
    }

    /// Tells all of them that it is enough, and returns when they have ended.
    ///
    /// # Panics
    /// When one of them failed.
    pub fn end(&mut self) {
        for worker in &mut self.workers {
            drop(worker.child.stdin.take());
        }
        for worker in &mut self.workers {
            let status = worker.child.wait().expect("to bury it");
            assert!(status.success(), "{} ended with {status}", worker.id);
        }
    }

    /// What they wrote down.
    ///
    /// # Panics
    /// When that can't be read, or they did nothing.
    #[must_use]
    pub fn history(&self) -> History {
        let history = History::read_dir(logs(self.dir())).expect("the logs");
        assert!(history.grants() > 0, "no grants prove nothing: is there a test {}?", self.test);
        history
    }
}

fn logs(dir: &Path) -> std::path::PathBuf {
    dir.join("logs")
}

#[derive(Debug)]
struct Worker {
    child: Child,
    id: String,
}

impl Worker {
    fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}
