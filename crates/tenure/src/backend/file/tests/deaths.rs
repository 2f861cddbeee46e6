//! Whoever dies frees what it had at once, and leaves nothing.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tenure_testkit::oracle::Recorder;

use super::*;
use crate::backend::file::faults::{Action, Point};

fn log(scratch: &Scratch) -> Recorder {
    Recorder::in_dir(scratch.logs(), "test").expect("a log")
}

/// Kills a process that a puppet started, by the number that it said.
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
        let mut holder = Puppet::start(&scratch);
        let fence = holder.acquire(NAME);
        let lock = domain.lock(NAME);
        let next = tokio::spawn(async move { (lock.acquire().await.expect("a guard"), Instant::now()) });
        until_waited_for(&domain, NAME, 1).await;
        let killed = Instant::now();
        holder.kill(&log);
        let (guard, granted) = next.await.expect("a task");
        println!("the next one ran {:?} after the holder was killed", granted - killed);
        assert!(granted - killed < SEEN && guard.fence().get() > fence);
        guard.release().await.expect("an answer");
    }
}

// R1.3, R1.4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_waiters_are_skipped() {
    let scratch = Scratch::new();
    let (domain, log) = (open(&scratch).await, log(&scratch));
    let [mut holder, mut head, mut second, mut middle, mut last] = [(); 5].map(|()| Puppet::start(&scratch));
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
    println!("the one between was killed: the next ran after {:?}", begin.elapsed());
    assert!(begin.elapsed() < SEEN);
    assert_eq!(domain.inspect(NAME).await.expect("an answer").waiters, []);
}

/// As a forked child would, another process has the holder's pipe open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_kept_descriptors_keeps_no_lock() {
    let scratch = Scratch::new();
    let log = log(&scratch);
    let mut holder = Puppet::start(&scratch);
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
    println!("its pipe was kept open: the next one ran after {:?}", begin.elapsed());
    assert!(begin.elapsed() < SEEN);
    kill_helper(&said);
}

/// What outlives a process can keep its session, and so what it holds (`tenure run`).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lifeline_keeps_the_session_until_it_is_cut() {
    let scratch = Scratch::new();
    let (domain, log) = (open(&scratch).await, log(&scratch));
    let mut holder = Puppet::start(&scratch);
    holder.acquire(NAME);
    let said = holder.ask("lifeline");
    let lock = domain.lock(NAME);
    let next = tokio::spawn(async move { lock.acquire().await.expect("a guard") });
    until_waited_for(&domain, NAME, 1).await;
    holder.kill(&log);
    // Many times as long as a death takes to be seen.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!next.is_finished(), "its lifeline is held");
    assert!(domain.inspect(NAME).await.expect("an answer").is_held());
    // Opening sweeps what is dead, and this is not.
    let _another = Puppet::start(&scratch);
    assert!(is_busy(&domain, NAME).await);
    let begin = Instant::now();
    kill_helper(&said);
    drop(next.await.expect("a task"));
    println!("the lifeline was cut: the next one ran after {:?}", begin.elapsed());
    assert!(begin.elapsed() < SEEN);
}

/// An attempt that failed, on a full disk, may have left the file that becomes the lifeline.
#[tokio::test]
async fn a_lifeline_can_be_had_after_an_attempt_that_failed() {
    let scratch = Scratch::new();
    let domain = open(&scratch).await;
    let id = scratch.files().into_iter().find_map(|name| name.strip_prefix("session-").map(str::to_owned));
    let draft = scratch.store().join(format!("draft-{}-lifeline", id.expect("a session")));
    std::fs::write(&draft, "").expect("a file");
    assert!(domain.lifeline().await.expect("a lifeline").is_some());
    assert!(!draft.exists());
}

// S1: whose files are gone with the whole directory is not dead. That the directory is gone is looked at every 10 ms; before a
// death is believed, it is looked at once more.
#[tokio::test]
async fn nobody_is_buried_in_a_directory_that_was_removed() {
    for _ in 0..10 {
        let scratch = Scratch::new();
        let mut holder = Puppet::start(&scratch);
        holder.acquire(NAME);
        let domain = open(&scratch).await;
        assert!(is_busy(&domain, NAME).await);
        std::fs::remove_dir_all(scratch.store()).expect("to remove it");
        let attempt = domain.lock(NAME).try_acquire().await;
        assert!(!matches!(attempt, Ok(Attempt::Acquired(_))), "two hold it");
    }
}

#[test]
fn what_the_dead_leave_is_swept() {
    let scratch = Scratch::new();
    let log = log(&scratch);
    let mut holder = Puppet::start(&scratch);
    holder.acquire(NAME);
    let waiters: Vec<Puppet> = (0..3)
        .map(|_| {
            let mut waiter = Puppet::start(&scratch);
            waiter.tell(&format!("acquire 60000 {NAME}"));
            waiter
        })
        .collect();
    // One that dies while it makes the file of a stripe, and the beginnings of a session that was never born.
    let mut maker = Puppet::start(&scratch);
    maker.arm(Point::Copied, Action::Kill);
    maker.tell("acquire 60000 elsewhere");
    maker.until_dead();
    for name in ["unborn-0123456789abcdef", "pipe-0123456789abcdef", "draft-0123456789abcdef-00-0"] {
        std::fs::write(scratch.store().join(name), "").expect("a file");
    }
    for mut puppet in waiters.into_iter().chain([holder]) {
        puppet.kill(&log);
    }
    let before = scratch.files();
    assert!(before.iter().any(|name| name.starts_with("draft-")), "{before:?}");
    let mut heir = Puppet::start(&scratch);
    let files = scratch.files();
    assert_eq!(files.iter().filter(|name| !name.starts_with("stripe-")).count(), 2, "{files:?}");
    assert_eq!(heir.ask(&format!("inspect {NAME}")), "held by nobody, waited for by 0");
}

/// A session is a lock of its process, which closing another one of the same process must not drop.
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
    let mut stranger = Puppet::start(&scratch);
    let said = stranger.ask(&format!("try 60000 {NAME}"));
    assert!(said.starts_with("busy"), "{said}");
    assert!(guard.is_held());
    guard.release().await.expect("an answer");
    stranger.acquire(NAME);
}

// L2
#[test]
fn closing_gives_all_descriptors_back() {
    let scratch = Scratch::new();
    let mut puppet = Puppet::start(&scratch);
    let said = puppet.ask("churn 1000");
    println!("{said} of descriptors over 1,000 domains");
    let (before, after) =
        said.strip_prefix("from ").and_then(|said| said.split_once(" to ")).expect("two numbers");
    assert_eq!(before, after);
    assert_eq!(scratch.files().iter().filter(|name| !name.starts_with("stripe-")).count(), 2);
}
