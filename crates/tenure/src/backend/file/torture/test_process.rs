//! A process that a test controls by lines to its standard input, and that answers on its output.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tenure_testkit::oracle::Recorder;

use super::Scratch;
use crate::backend::file::faults::{self, Action};

/// Far longer than any step takes: a process that takes this long hangs.
pub(in crate::backend::file) const HANGS: Duration = Duration::from_secs(60);
/// The prefix of its answers, which tells them from the lines of the test harness.
pub(super) const SAYS: &str = "test process: ";

pub(in crate::backend::file) struct TestProcess {
    process: Child,
    stdin: ChildStdin,
    said: Receiver<String>,
    me: String,
}

impl TestProcess {
    /// A process that has opened the directory.
    pub(in crate::backend::file) fn start(scratch: &Scratch) -> Self {
        TestProcess::start_as(scratch, "", &[])
    }

    /// The same, with a plan of faults, and started by another program.
    pub(in crate::backend::file) fn start_as(scratch: &Scratch, plan: &str, wrapper: &[&str]) -> Self {
        let mut process = TestProcess::spawn(scratch, plan, wrapper);
        process.tell("open");
        process.expect("opened");
        process
    }

    /// The same, and it has not opened the directory yet.
    pub(in crate::backend::file) fn spawn(scratch: &Scratch, plan: &str, wrapper: &[&str]) -> Self {
        let me = scratch.next_name();
        let exe = std::env::current_exe().expect("a test binary");
        let mut command = match wrapper {
            [] => Command::new(exe),
            [program, args @ ..] => {
                let mut command = Command::new(program);
                command.args(args).arg(exe);
                command
            }
        };
        command
            .args(["--exact", "backend::file::torture::commands::a_test_process", "--ignored", "--nocapture"])
            .env("TENURE_TEST_PROCESS", &me)
            .env("TENURE_TEST_PROCESS_DIR", scratch.store())
            .env("TENURE_TEST_PROCESS_LOGS", scratch.logs())
            .env(faults::VARIABLE, format!("log={},me={me},{plan}", scratch.logs().display()));
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("to start a process");
        let stdin = process.stdin.take().expect("a pipe");
        let lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let (say, said) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some((_, line)) = line.split_once(SAYS) {
                    let _ = say.send(line.to_owned());
                }
            }
        });
        TestProcess { process, stdin, said, me }
    }

    pub(in crate::backend::file) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(in crate::backend::file) fn tell(&mut self, what: &str) {
        writeln!(self.stdin, "{what}").expect("a process that reads");
    }

    /// Its next answer.
    pub(in crate::backend::file) fn answer(&self) -> String {
        self.said.recv_timeout(HANGS).unwrap_or_else(|_| panic!("{} does not answer", self.me))
    }

    /// Its next answer, if it comes within this time.
    pub(in crate::backend::file) fn answer_within(&self, time: Duration) -> Option<String> {
        self.said.recv_timeout(time).ok()
    }

    pub(in crate::backend::file) fn ask(&mut self, what: &str) -> String {
        self.tell(what);
        self.answer()
    }

    /// Expects an answer that begins like this, and returns the rest.
    pub(in crate::backend::file) fn expect(&self, begin: &str) -> String {
        let said = self.answer();
        let rest = said.strip_prefix(begin).unwrap_or_else(|| panic!("{} answers: {said}", self.me));
        rest.trim().to_owned()
    }

    /// Takes a lock; returns its fence.
    pub(in crate::backend::file) fn acquire(&mut self, name: &str) -> u64 {
        self.tell(&format!("acquire 60000 {name}"));
        self.expect_granted()
    }

    pub(in crate::backend::file) fn expect_granted(&self) -> u64 {
        self.expect("granted").parse().expect("a fence")
    }

    /// Expects a grant for a process that was stopped. On a busy machine, the stop may outlast the request: then the process asks again.
    pub(in crate::backend::file) fn expect_granted_or_retry(&mut self, name: &str) -> u64 {
        let said = self.answer();
        if said.starts_with("error Unavailable") {
            return self.acquire(name);
        }
        let fence = said.strip_prefix("granted ").unwrap_or_else(|| panic!("{} answers: {said}", self.me));
        fence.parse().expect("a fence")
    }

    pub(in crate::backend::file) fn release(&mut self, name: &str) {
        self.tell(&format!("release {name}"));
        self.expect("released Released");
    }

    pub(in crate::backend::file) fn arm(&mut self, point: faults::Point, action: Action) {
        self.tell(&format!("arm {point:?}:{action:?}:1"));
        self.expect("armed");
    }

    pub(in crate::backend::file) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).expect("a process of this test");
    }

    /// Waits until it has stopped.
    pub(in crate::backend::file) fn until_stopped(&self) {
        let give_up = Instant::now() + HANGS;
        while !is_stopped(self.pid()) {
            assert!(
                Instant::now() < give_up,
                "{} does not stop, and answers {:?}",
                self.me,
                self.answer_within(Duration::ZERO)
            );
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Whether it stops; false if it answered, because another process was faster.
    pub(in crate::backend::file) fn stops(&self) -> bool {
        let give_up = Instant::now() + HANGS;
        while !is_stopped(self.pid()) {
            assert!(Instant::now() < give_up, "{} neither stops nor answers", self.me);
            if self.answer_within(Duration::from_micros(200)).is_some() {
                return false;
            }
        }
        true
    }

    /// Waits until it is dead.
    pub(in crate::backend::file) fn until_dead(&mut self) {
        let give_up = Instant::now() + HANGS;
        while self.process.try_wait().expect("a child").is_none() {
            assert!(Instant::now() < give_up, "{} does not die", self.me);
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Kills it, and logs that for the oracle.
    pub(in crate::backend::file) fn kill(&mut self, log: &Recorder) {
        log.killed(&self.me);
        self.signal(Signal::KILL);
        self.until_dead();
    }
}

impl Drop for TestProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Whether a signal has stopped a process.
pub(in crate::backend::file) fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
}
