//! The death of a process frees its names immediately, and leaves no files.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tenure_testkit::oracle::Recorder;

use super::*;
use crate::backend::file::faults::{Action, Point};

fn log(scratch: &Scratch) -> Recorder {
    Recorder::in_dir(scratch.logs(), "test").expect("a log")
}

/// Kills a process that a test process started, by the id in its answer.
fn kill_helper(said: &str) {
    let pid = said.strip_prefix("given ").and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
    kill_process(pid.expect("a process"), Signal::KILL).expect("a process of this test");
}

// R1.3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_holder_is_followed_at_once() {
    let scratch = Scratch::new();
    let (domain, log) = (open(&scratch).await, log(&scratch));
    for _ in 0..3 {
        let mut holder = TestProcess::start(&scratch);
        let fence = holder.acquire(NAME);
        let lock = domain.lock(NAME);
        let next = tokio::spawn(async move { (lock.acquire().await.expect("a guard"), Instant::now()) });
        until_waited_for(&domain, NAME, 1).await;
        let killed = Instant::now();
        holder.kill(&log);
        let (guard, granted) = next.await.expect("a task");
        println!("the next holder ran {:?} after the holder was killed", granted - killed);
        assert!(granted - killed < SEEN && guard.fence().get() > fence);
        guard.release().await.expect("an answer");
    }
}

// R1.3, R1.4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_waiters_are_skipped() {
    let scratch = Scratch::new();
    let (domain, log) = (open(&scratch).await, log(&scratch));
    let [mut holder, mut head, mut second, mut middle, mut last] =
        [(); 5].map(|()| TestProcess::start(&scratch));
    holder.acquire(NAME);
    let mut waiting = 0;
    for waiter in [&mut head, &mut second, &mut middle, &mut last] {
        waiter.tell(&format!("acquire 60000 {NAME}"));
        waiting += 1;
        until_waited_for(&domain, NAME, waiting).await;
    }
    head.kill(&log);
    middle.kill(&log);
    let begin = Instant::now();
    holder.release(NAME);
    second.expect_granted();
    println!("the head was killed: the second ran after {:?}", begin.elapsed());
    assert!(begin.elapsed() < SEEN);
    let begin = Instant::now();
    second.release(NAME);
    last.expect_granted();
    println!("the waiter ahead was killed: the next one ran after {:?}", begin.elapsed());
    assert!(begin.elapsed() < SEEN);
    assert_eq!(domain.inspect(NAME).await.expect("an answer").waiters, []);
}

/// Another process has the holder's pipe open, like a forked child.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_with_inherited_descriptors_keeps_no_lock() {
    let scratch = Scratch::new();
    let log = log(&scratch);
    let mut holder = TestProcess::start(&scratch);
    let pipe = scratch.files().into_iter().find(|name| name.starts_with("pipe-")).expect("its pipe");
    let domain = open(&scratch).await;
    holder.acquire(NAME);
    let said = holder.ask(&format!("leak {}", scratch.store().join(pipe).display()));
    let lock = domain.lock(NAME);
    let next = tokio::spawn(async move { lock.acquire().await.expect("a guard") });
    until_waited_for(&domain, NAME, 1).await;
    let begin = Instant::now();
    holder.kill(&log);
    drop(next.await.expect("a task"));
    println!("a child had the pipe open: the next holder ran after {:?}", begin.elapsed());
    assert!(begin.elapsed() < SEEN);
    kill_helper(&said);
}

/// A process that outlives the holder can keep its session and so its leases (`tenure run`).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lifeline_keeps_the_session_until_it_is_cut() {
    let scratch = Scratch::new();
    let (domain, log) = (open(&scratch).await, log(&scratch));
    let mut holder = TestProcess::start(&scratch);
    holder.acquire(NAME);
    let said = holder.ask("lifeline");
    let lock = domain.lock(NAME);
    let next = tokio::spawn(async move { lock.acquire().await.expect("a guard") });
    until_waited_for(&domain, NAME, 1).await;
    holder.kill(&log);
    // Far longer than others need to see a death.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!next.is_finished(), "its lifeline is held");
    assert!(domain.inspect(NAME).await.expect("an answer").is_held());
    // Opening removes dead sessions, and this one lives.
    let _another = TestProcess::start(&scratch);
    assert!(is_busy(&domain, NAME).await);
    let begin = Instant::now();
    kill_helper(&said);
    drop(next.await.expect("a task"));
    println!("the lifeline was cut: the next holder ran after {:?}", begin.elapsed());
    assert!(begin.elapsed() < SEEN);
}

/// A failed attempt, on a full disk, may have left a draft of the lifeline.
#[tokio::test]
async fn a_lifeline_can_be_made_after_a_failed_attempt() {
    let scratch = Scratch::new();
    let domain = open(&scratch).await;
    let id = scratch.files().into_iter().find_map(|name| name.strip_prefix("session-").map(str::to_owned));
    let draft = scratch.store().join(format!("draft-{}-lifeline", id.expect("a session")));
    std::fs::write(&draft, "").expect("a file");
    assert!(domain.lifeline().await.expect("a lifeline").is_some());
    assert!(!draft.exists());
}

// S1: a session whose files are gone with the whole directory is not dead. A client checks every 10 ms whether the directory is gone, and
// once more before it reaps a session.
#[tokio::test]
async fn no_session_is_reaped_in_a_removed_directory() {
    for _ in 0..10 {
        let scratch = Scratch::new();
        let mut holder = TestProcess::start(&scratch);
        holder.acquire(NAME);
        let domain = open(&scratch).await;
        assert!(is_busy(&domain, NAME).await);
        std::fs::remove_dir_all(scratch.store()).expect("to remove it");
        let attempt = domain.lock(NAME).try_acquire().await;
        assert!(!matches!(attempt, Ok(Attempt::Acquired(_))), "two hold it");
    }
}

#[test]
fn files_of_dead_sessions_are_removed() {
    let scratch = Scratch::new();
    let log = log(&scratch);
    let mut holder = TestProcess::start(&scratch);
    holder.acquire(NAME);
    let waiters: Vec<TestProcess> = (0..3)
        .map(|_| {
            let mut waiter = TestProcess::start(&scratch);
            waiter.tell(&format!("acquire 60000 {NAME}"));
            waiter
        })
        .collect();
    // A process that dies while it makes the file of a stripe, and the files of a pending session.
    let mut maker = TestProcess::start(&scratch);
    maker.arm(Point::DraftWritten, Action::Kill);
    maker.tell("acquire 60000 elsewhere");
    maker.until_dead();
    for name in ["unborn-0123456789abcdef", "pipe-0123456789abcdef", "draft-0123456789abcdef-00-0"] {
        std::fs::write(scratch.store().join(name), "").expect("a file");
    }
    for mut process in waiters.into_iter().chain([holder]) {
        process.kill(&log);
    }
    let before = scratch.files();
    assert!(before.iter().any(|name| name.starts_with("draft-")), "{before:?}");
    let mut heir = TestProcess::start(&scratch);
    let files = scratch.files();
    assert_eq!(files.iter().filter(|name| !name.starts_with("stripe-")).count(), 2, "{files:?}");
    assert_eq!(heir.ask(&format!("inspect {NAME}")), "held by nobody, waited for by 0");
}

/// A session is a lock of its process. Closing another session of the same process must not drop it.
#[tokio::test]
async fn domains_of_one_process_do_not_end_each_other() {
    let scratch = Scratch::new();
    let (first, second) = (open(&scratch).await, open(&scratch).await);
    let guard = hold(&first, NAME).await;
    assert!(is_busy(&second, NAME).await);
    second.close().await;
    drop(second);
    let third = open(&scratch).await;
    drop(hold(&third, "another").await);
    drop(third);
    let mut stranger = TestProcess::start(&scratch);
    let said = stranger.ask(&format!("try 60000 {NAME}"));
    assert!(said.starts_with("busy"), "{said}");
    assert!(guard.is_held());
    guard.release().await.expect("an answer");
    stranger.acquire(NAME);
}

// L2
#[test]
fn closing_frees_all_descriptors() {
    let scratch = Scratch::new();
    let mut process = TestProcess::start(&scratch);
    let said = process.ask("churn 1000");
    println!("{said} of descriptors over 1,000 domains");
    let (before, after) =
        said.strip_prefix("from ").and_then(|said| said.split_once(" to ")).expect("two numbers");
    assert_eq!(before, after);
    assert_eq!(scratch.files().iter().filter(|name| !name.starts_with("stripe-")).count(), 2);
}
