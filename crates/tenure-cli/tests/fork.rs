//! A process that forks while it holds a name. Here, and not beside the library, because a fork has no safe form.
#![expect(unsafe_code, reason = "a fork without an exec is what is tested")]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tenure::{Attempt, Domain, ErrorKind};
use tenure_testkit::redis::RedisServer;
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A process that holds `orders/42`, and has forked.
struct Forked {
    process: Child,
    /// What its child said, line by line.
    said: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Forked {
    /// The process is this program again, in the test `a_process_that_forks`.
    fn start(url: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "a_process_that_forks", "--ignored", "--nocapture"])
            .env("TENURE_FORK_URL", url)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let said = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        Forked { process, said }
    }

    fn hear(&mut self, what: &str) -> String {
        let mut lines = self.said.by_ref().map_while(Result::ok);
        lines.find_map(|line| line.strip_prefix(what).map(str::to_owned)).expect("it said what it was to say")
    }
}

/// A directory of this test, which goes away with it.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        Directory(std::env::temp_dir().join(format!("tenure-fork-{}", std::process::id())))
    }

    fn url(&self) -> String {
        format!("file://{}", self.0.display())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Holds a name, forks, and lets its child try what it may not.
#[test]
#[ignore = "run by the other tests, as a process that they kill"]
fn a_process_that_forks() {
    let url = std::env::var("TENURE_FORK_URL").expect("to be run by another test");
    let runtime = runtime();
    let domain = runtime.block_on(Domain::open(&url)).expect("a store of our own");
    let guard = runtime.block_on(domain.lock("orders/42").acquire()).expect("nobody else wants it");
    // SAFETY: this thread is the only one that the child needs: it uses the runtime of this thread, and its own copies of all else.
    if unsafe { libc::fork() } == 0 {
        let error = runtime
            .block_on(domain.lock("orders/43").acquire())
            .expect_err("a child has no rights of its parent");
        assert!(!guard.is_held(), "the lease is the parent's");
        println!("\nkind: {:?}", error.kind());
        drop(guard);
        println!("child: {}", std::process::id());
        std::thread::sleep(Duration::from_secs(60));
        std::process::exit(0);
    }
    std::thread::sleep(Duration::from_secs(60));
    drop(guard);
}

// R1.3
#[test]
fn a_forked_child_neither_uses_nor_keeps_the_lock() {
    let dir = Directory::new();
    let mut forked = Forked::start(&dir.url());
    assert_eq!(forked.hear("kind: "), format!("{:?}", ErrorKind::Unsupported));
    let child: i32 = forked.hear("child: ").parse().expect("a process id");
    let child = Pid::from_raw(child).expect("a process id");
    runtime().block_on(async {
        let domain = Domain::open(&dir.url()).await.expect("the same directory");
        let attempt = domain.lock("orders/42").try_acquire().await.expect("a store that answers");
        assert!(
            matches!(attempt, Attempt::Busy(_)),
            "the child dropped its copy of the guard, the parent holds on"
        );
        forked.process.kill().expect("to kill it");
        forked.process.wait().expect("to bury it");
        let start = Instant::now();
        let limit = Duration::from_secs(5);
        let attempt = domain.lock("orders/42").try_acquire_for(limit).await.expect("a store that answers");
        assert!(matches!(attempt, Attempt::Acquired(_)), "the child lives, and has every descriptor");
        println!("free {:?} after the death of its holder, whose child lives", start.elapsed());
    });
    kill_process(child, Signal::KILL).expect("the child lived until now");
}

// R3.5: it shares the socket and the tokens of its parent, and must use neither.
#[test]
fn a_forked_child_does_not_speak_for_its_parent() {
    let server = RedisServer::start();
    let mut forked = Forked::start(&server.url());
    assert_eq!(forked.hear("kind: "), format!("{:?}", ErrorKind::Unsupported));
    let child: i32 = forked.hear("child: ").parse().expect("a process id");
    assert!(server.command(&["EXISTS", "tenure:orders/43"]).int() == 0, "nothing was asked for");
    assert!(
        server.command(&["EXISTS", "tenure:orders/42"]).int() == 1,
        "the child dropped its copy of the guard"
    );
    kill_process(Pid::from_raw(child).expect("a process id"), Signal::KILL).expect("it lived until now");
}
