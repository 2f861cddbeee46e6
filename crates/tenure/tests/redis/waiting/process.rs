//! A process of its own, to be stopped and killed while it waits.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tenure::Domain;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::scene::{LONG, NAME};

/// A process that acquires [`NAME`], and says with which fence. It dies with this value.
pub(super) struct Process {
    child: Child,
    said: UnboundedReceiver<String>,
}

impl Process {
    pub(super) fn acquiring(url: &str, label: &str) -> Self {
        Process::acquiring_for(url, label, LONG)
    }

    pub(super) fn acquiring_for(url: &str, label: &str, ttl: Duration) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("a test binary"))
            .args(["--exact", "redis::waiting::process::a_process_that_acquires", "--ignored", "--nocapture"])
            .env("TENURE_PROCESS_URL", url)
            .env("TENURE_PROCESS_LABEL", label)
            .env("TENURE_PROCESS_TTL_MS", ttl.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let (tell, said) = unbounded_channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some(line) = line.strip_prefix("process: ") {
                    drop(tell.send(line.to_owned()));
                }
            }
        });
        Process { child, said }
    }

    /// The fence that it was granted.
    pub(super) async fn fence(&mut self) -> u64 {
        self.said.recv().await.expect("a process that lives").parse().expect("a fence")
    }

    /// Has it said that it was granted the name?
    pub(super) fn has_run(&self) -> bool {
        !self.said.is_empty()
    }

    /// Stops it; when this returns it has stopped.
    pub(super) fn stop(&self) {
        self.signal(Signal::STOP);
        let stat = format!("/proc/{}/stat", self.child.id());
        while !std::fs::read_to_string(&stat).expect("a process").contains(") T ") {
            std::thread::yield_now();
        }
    }

    pub(super) fn cont(&self) {
        self.signal(Signal::CONT);
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().expect("to kill it");
        self.child.wait().expect("to bury it");
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"));
        kill_process(pid.expect("a process id"), signal).expect("a child can be signalled");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What the process runs. It ends with whoever started it.
#[test]
#[ignore = "run by other tests, as a process that they stop and kill"]
fn a_process_that_acquires() {
    let var =
        |name: &str| std::env::var(format!("TENURE_PROCESS_{name}")).expect("to be run by another test");
    std::thread::spawn(|| {
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let domain = Domain::open(var("URL")).await.expect("to open");
        let ttl = Duration::from_millis(var("TTL_MS").parse().expect("a number"));
        let guard = domain.lock(NAME).ttl(ttl).label(var("LABEL")).acquire().await.expect("to acquire");
        println!("\nprocess: {}", guard.fence());
        guard.lost().await;
    });
}
