//! A process that gets a signal to end while it works under a lock: its names are free when it is gone.

use std::future::pending;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tenure::Domain;
use tenure_testkit::redis::RedisServer;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

const EXITS: usize = 25;
const NAMES: [&str; 3] = ["orders/41", "orders/42", "orders/43"];

/// Starts a process of this kind, ends it while it works, and says whether any of its names is held.
fn is_held_after_exit(server: &RedisServer, kind: &str, runtime: &str) -> bool {
    let mut child = Command::new(std::env::current_exe().expect("a test binary"))
        .args(["--exact", "redis::shutdown::a_process_that_ends", "--ignored", "--nocapture"])
        .envs([("TENURE_URL", server.url().as_str()), ("TENURE_KIND", kind), ("TENURE_RUNTIME", runtime)])
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    wait_until_it_works(&mut child);
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, Signal::TERM).expect("a child can be signalled");
    assert!(child.wait().expect("a child").success(), "it ends by itself");
    NAMES.iter().any(|name| server.command(&["EXISTS", &format!("tenure:{name}")]).int() == 1)
}

fn wait_until_it_works(child: &mut Child) {
    let lines = BufReader::new(child.stdout.as_mut().expect("a pipe")).lines();
    let mut at_work = lines.map_while(Result::ok).filter(|line| line == "process: at work");
    at_work.next().expect("a process that works");
}

fn all_are_free(kind: &str) {
    let server = RedisServer::start();
    for runtime in ["many threads", "one thread"] {
        let held = (0..EXITS).filter(|_| is_held_after_exit(&server, kind, runtime)).count();
        assert_eq!(held, 0, "names were held after {held} of {EXITS} exits, {kind}, {runtime}");
    }
}

// R1.7: the recipe of `Domain::close`.
#[test]
fn a_name_is_free_after_an_exit_in_the_middle_of_a_run() {
    all_are_free("select");
}

// R1.7: work in other tasks, which `close` stops.
#[test]
fn names_are_free_after_an_exit_with_work_in_other_tasks() {
    all_are_free("tasks");
}

/// What the process runs. Its runtime ends with it, as that of `#[tokio::main]` does.
#[test]
#[ignore = "run by other tests, as a process that they end"]
fn a_process_that_ends() {
    let var = |name| std::env::var(name).expect("to be run by another test");
    let runtime = match var("TENURE_RUNTIME").as_str() {
        "one thread" => Builder::new_current_thread().enable_all().build(),
        _ => Runtime::new(),
    };
    runtime.expect("a runtime").block_on(async {
        let domain = Domain::open(var("TENURE_URL")).await.expect("to open");
        match var("TENURE_KIND").as_str() {
            "select" => select(&domain).await,
            _ => tasks(&domain).await,
        }
    });
    std::process::exit(0);
}

async fn work() {
    println!("\nprocess: at work");
    pending().await
}

async fn select(domain: &Domain) {
    let mut sigterm = signal(SignalKind::terminate()).expect("a signal");
    let lock = domain.lock(NAMES[0]);
    let ended = tokio::select! {
        ran = lock.run(async |_| work().await) => ran.map(drop),
        _ = sigterm.recv() => Ok(()),
    };
    domain.close().await;
    ended.expect("no error");
}

async fn tasks(domain: &Domain) {
    let mut sigterm = signal(SignalKind::terminate()).expect("a signal");
    let (begun, mut all_work) = tokio::sync::mpsc::channel(NAMES.len());
    for name in NAMES {
        let (lock, begun) = (domain.lock(name), begun.clone());
        tokio::spawn(async move {
            let work = async |_| {
                begun.send(()).await.expect("the test waits for it");
                pending::<()>().await
            };
            lock.run(work).await.map(drop)
        });
    }
    for _ in NAMES {
        all_work.recv().await.expect("a task");
    }
    tokio::select! {
        () = work() => {}
        _ = sigterm.recv() => {}
    }
    domain.close().await;
}
