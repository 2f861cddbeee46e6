//! A process that forks while it holds a name. Here, and not beside the library, because a fork has no safe form.
#![expect(unsafe_code, reason = "a fork without an exec is what is tested")]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};
use tenure::{Attempt, Domain, Error, ErrorKind, Guard, Lease, LossKind, Release};
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
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let (pid, next) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Directory(std::env::temp_dir().join(format!("tenure-fork-{pid}-{next}")))
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
    assert_eq!(forked.hear("kind: "), format!("{:?}", ErrorKind::Forked));
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
    assert_eq!(forked.hear("kind: "), format!("{:?}", ErrorKind::Forked));
    let child: i32 = forked.hear("child: ").parse().expect("a process id");
    assert!(server.command(&["EXISTS", "tenure:orders/43"]).int() == 0, "nothing was asked for");
    assert!(
        server.command(&["EXISTS", "tenure:orders/42"]).int() == 1,
        "the child dropped its copy of the guard"
    );
    kill_process(Pid::from_raw(child).expect("a process id"), Signal::KILL).expect("it lived until now");
}

/// How often a busy process forks.
const FORKS: usize = 300;
/// A child that takes longer than this hangs; SIGALRM ends it.
const LONGEST_CHILD: u32 = 60;

/// Runs a busy process on this store, in a program of its own: its forks must not copy the threads of other tests.
fn busy(url: &str) {
    run_alone("a_busy_process_that_forks", url);
}

/// For a busy machine, on which a command may take long.
fn patient_url(server: &RedisServer) -> String {
    format!("{}?ttl=10m&timeout=1m", server.url())
}

fn run_alone(test: &str, url: &str) {
    let status = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env("TENURE_FORK_URL", url)
        .status()
        .expect("a process");
    assert!(status.success(), "what it printed says why");
}

/// Forks hundreds of times while its threads lock and unlock all the time, so that many a child begins with a mutex that is held by a
/// thread it does not have.
#[test]
#[ignore = "run by the other tests, as a process of its own"]
fn a_busy_process_that_forks() {
    let url = std::env::var("TENURE_FORK_URL").expect("to be run by another test");
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let domain = runtime.block_on(Domain::open(&url)).expect("a store of our own");
    // So long that no `lost` ends because its deadline has come.
    let held = domain.lock("orders/42").ttl(Duration::from_secs(600));
    let guard = runtime.block_on(held.acquire()).expect("nobody else wants it");
    let (ends, turns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let load: Vec<_> = (0..8)
        .map(|task| {
            let (lock, url) = (domain.lock(format!("load/{}", task % 3)), url.clone());
            let (ends, turns) = (Arc::clone(&ends), Arc::clone(&turns));
            runtime.spawn(async move {
                while !ends.load(Ordering::Relaxed) {
                    let guard = lock.acquire().await.expect("the store answers");
                    if url.starts_with("memory:") {
                        drop(Domain::open(&url).await.expect("memory"));
                    }
                    drop(guard);
                    turns.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let other = runtime.block_on(Domain::open(&url)).expect("the same store");
    let others = runtime.block_on(other.lock("orders/43").acquire()).expect("nobody else wants it");
    let lock = domain.lock("orders/42");
    let mut waiting: Waiting = Box::pin(async move { lock.acquire().await });
    assert!(runtime.block_on(poll_once(&mut waiting)).is_pending(), "it waits behind the guard");
    // The mutexes of the timers and of the lease are locked all the time as well.
    let load: Vec<_> =
        load.into_iter().chain((0..2).map(|_| watch(&runtime, guard.lease(), &ends))).collect();
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let unopened = silent_domain(&silent);
    let begun = runtime.block_on(begin(&domain, &unopened, &guard));
    let dropped = runtime.block_on(begin(&domain, &unopened, &guard));
    let unused = Domain::lazy(&url).expect("a valid URL");
    let mut copies = Some(Copies { guard, waiting, begun, dropped, other, others });
    let mut outcomes = std::collections::BTreeMap::new();
    for _ in 0..FORKS {
        // SAFETY: the child uses its own copies, makes a runtime of its own, and ends by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: both are async-signal-safe.
            unsafe {
                libc::alarm(LONGEST_CHILD);
                libc::_exit(Step::exit_code(in_the_child(&url, &domain, &unused, copies.take())));
            }
        }
        let child = Pid::from_raw(child).expect("a child");
        let (_, status) = waitpid(Some(child), WaitOptions::empty()).expect("a child").expect("it ended");
        *outcomes.entry(outcome(status)).or_insert(0) += 1;
    }
    let before = turns.load(Ordering::Relaxed);
    let start = Instant::now();
    while turns.load(Ordering::Relaxed) < before + 100 {
        assert!(start.elapsed() < Duration::from_secs(60), "the parent's own tasks stand still");
        std::thread::sleep(Duration::from_millis(1));
    }
    ends.store(true, Ordering::Relaxed);
    load.into_iter().for_each(|task| runtime.block_on(task).expect("the parent's tasks go on as ever"));
    println!("{url}: {outcomes:?} after {} turns of the parent", turns.load(Ordering::Relaxed));
    let Copies { guard, waiting, begun, dropped, other, others } = copies.expect("the parent's own");
    drop((waiting, begun, dropped));
    assert!(others.is_held() && other.metrics().lost == 0, "the parent holds what it held");
    assert!(guard.is_held() && domain.metrics().lost == 0, "the parent holds what it held");
    assert_eq!(runtime.block_on(guard.release()).expect("the store answers"), Release::Released);
    assert_eq!(outcomes.len(), 1, "each of {FORKS} children: {outcomes:?}");
    assert!(outcomes.contains_key(GOOD), "{outcomes:?}");
}

/// What a child is to come to.
const GOOD: &str = "refused, and its own domain works";

fn outcome(child: WaitStatus) -> String {
    match (child.exit_status(), child.terminating_signal()) {
        (Some(0), _) => GOOD.to_owned(),
        (Some(code), _) => format!("went wrong at step {code}: see `Step`"),
        (_, signal) => format!("hung: ended by signal {signal:?}"),
    }
}

/// Begins and ends waits for the loss of a lease, as fast as it can.
fn watch(runtime: &Runtime, lease: &Lease, ends: &Arc<AtomicBool>) -> tokio::task::JoinHandle<()> {
    let (lease, ends) = (lease.clone(), Arc::clone(ends));
    runtime.spawn(async move {
        while !ends.load(Ordering::Relaxed) {
            let mut lost = pin!(lease.lost());
            assert!(
                std::future::poll_fn(|cx| Poll::Ready(lost.as_mut().poll(cx))).await.is_pending(),
                "it is held"
            );
            tokio::task::yield_now().await;
        }
    })
}

type Waiting = Pin<Box<dyn Future<Output = Result<Guard, Error>>>>;

/// A future that was polled before the fork; what it fails with.
type Begun = Pin<Box<dyn Future<Output = Option<ErrorKind>>>>;

/// A domain whose server accepts connections and never answers.
fn silent_domain(silent: &TcpListener) -> Domain {
    let port = silent.local_addr().expect("an address").port();
    Domain::lazy(format!("redis://127.0.0.1:{port}").as_str()).expect("a valid URL")
}

/// Polls one of each kind of future that waits. A store that answers at once leaves out some.
async fn begin(domain: &Domain, unopened: &Domain, guard: &Guard) -> Vec<(Step, Begun)> {
    const LONG: Duration = Duration::from_secs(3_600);
    let (lease, held) = (guard.lease().clone(), domain.lock("orders/42"));
    let (limited, without_budget, free) = (held.clone(), held, domain.lock("orders/44"));
    let released = domain.lock("orders/45").acquire().await.expect("nobody else wants it");
    let (connecting, connecting_limited) = (unopened.lock("orders/42"), unopened.lock("orders/42"));
    let inspected = unopened.clone();
    let mut without_budget: Begun =
        Box::pin(async move { Some(without_budget.acquire().await.err()?.kind()) });
    std::future::poll_fn(|cx| {
        while pin!(tokio::task::coop::consume_budget()).poll(cx).is_ready() {}
        assert!(without_budget.as_mut().poll(cx).is_pending(), "others come first");
        Poll::Ready(())
    })
    .await;
    tokio::task::yield_now().await;
    let begun: [(Step, Begun); 7] = [
        (Step::BegunLost, Box::pin(async move { Some(Error::from(lease.lost().await).kind()) })),
        (
            Step::BegunLimited,
            Box::pin(async move { Some(limited.try_acquire_for(LONG).await.err()?.kind()) }),
        ),
        (Step::BegunAsking, Box::pin(async move { Some(free.acquire().await.err()?.kind()) })),
        (Step::BegunRelease, Box::pin(async move { Some(released.release().await.err()?.error.kind()) })),
        (
            Step::BegunInspect,
            Box::pin(async move { Some(inspected.inspect("orders/42").await.err()?.kind()) }),
        ),
        (Step::BegunConnecting, Box::pin(async move { Some(connecting.acquire().await.err()?.kind()) })),
        (
            Step::BegunConnectingLimited,
            Box::pin(async move { Some(connecting_limited.try_acquire_for(LONG).await.err()?.kind()) }),
        ),
    ];
    let mut pending = vec![(Step::BegunWithoutBudget, without_budget)];
    for (step, mut future) in begun {
        if poll_once(&mut future).await.is_pending() {
            pending.push((step, future));
        }
    }
    pending
}

/// What a child has copies of.
struct Copies {
    guard: Guard,
    /// Waits behind the guard.
    waiting: Waiting,
    /// Futures that the child polls, and others that it drops.
    begun: Vec<(Step, Begun)>,
    dropped: Vec<(Step, Begun)>,
    /// A client of which the child drops every handle.
    other: Domain,
    others: Guard,
}

async fn poll_once<T>(future: &mut Pin<Box<dyn Future<Output = T>>>) -> Poll<()> {
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).map(drop))).await
}

/// What a child tries, and what went wrong if it did not go as it should. The number is its exit code.
#[derive(Clone, Copy)]
enum Step {
    IsHeld = 10,
    Lost,
    AcquireGranted,
    AcquireKind,
    AcquireWaits,
    WaiterGranted,
    WaiterWaits,
    OtherVerbs,
    Metrics,
    Renew,
    Release,
    UseUnused,
    OpenOwn,
    UseOwn,
    Exclusion,
    BegunLost,
    BegunLimited,
    BegunAsking,
    BegunRelease,
    BegunInspect,
    BegunConnecting,
    BegunConnectingLimited,
    BegunWithoutBudget,
    WorkGoesOn,
    RunKind,
}

impl Step {
    fn exit_code(outcome: Result<(), Step>) -> i32 {
        outcome.err().map_or(0, |step| step as i32)
    }
}

/// Nothing here prints or panics: the locks of stdout may be held by a thread that the child does not have.
fn in_the_child(url: &str, domain: &Domain, unused: &Domain, copies: Option<Copies>) -> Result<(), Step> {
    let ensure = |is_good: bool, step: Step| if is_good { Ok(()) } else { Err(step) };
    let is_forked = |kind: ErrorKind| kind == ErrorKind::Forked;
    let Copies { guard: copy, mut waiting, begun, dropped, other, others } = copies.ok_or(Step::IsHeld)?;
    ensure(!copy.is_held() && copy.remaining().is_zero(), Step::IsHeld)?;
    runtime().block_on(async {
        let limit = Duration::from_secs(10);
        let lock = domain.clone().lock("orders/42");
        // It must not wait in the parent's queue, where the copy of the guard would serve it.
        let waiter = tokio::spawn(async move { lock.acquire().await });
        tokio::task::yield_now().await;
        let renewed = copy.renew();
        let renewed = tokio::time::timeout(limit, renewed).await.map_err(|_| Step::Renew)?;
        ensure(renewed.is_err_and(|error| is_forked(error.kind())), Step::Renew)?;
        let loss = tokio::time::timeout(limit, copy.lost()).await.map_err(|_| Step::Lost)?;
        ensure(*loss.kind() == LossKind::Forked, Step::Lost)?;
        let release = tokio::time::timeout(limit, copy.release()).await.map_err(|_| Step::Release)?;
        let returned = release.err().ok_or(Step::Release)?;
        ensure(is_forked(returned.error.kind()), Step::Release)?;
        drop(returned);
        match tokio::time::timeout(limit, waiter).await {
            Ok(Ok(Err(error))) => ensure(is_forked(error.kind()), Step::AcquireKind)?,
            Ok(_) => return Err(Step::AcquireGranted),
            Err(_) => return Err(Step::AcquireWaits),
        }
        match tokio::time::timeout(limit, &mut waiting).await {
            Ok(Err(error)) => ensure(is_forked(error.kind()), Step::AcquireKind)?,
            Ok(Ok(_)) => return Err(Step::WaiterGranted),
            Err(_) => return Err(Step::WaiterWaits),
        }
        drop(waiting);
        for (step, mut future) in begun {
            let kind = tokio::time::timeout(limit, &mut future).await.map_err(|_| step)?;
            ensure(kind.is_some_and(is_forked), step)?;
        }
        drop(dropped);
        // The last handles of their client.
        drop(others);
        drop(other);
        let verbs = async {
            let lock = domain.lock("load/0");
            let kinds = [
                lock.try_acquire().await.err(),
                lock.try_acquire_for(limit).await.err(),
                lock.run(async |_| ()).await.err(),
                lock.take_over().await.err(),
                domain.inspect("load/0").await.err(),
                domain.list("").await.err(),
                domain.health().await.err(),
                domain.examine().await.err(),
                domain.capabilities().await.err(),
                domain.lifeline().await.err(),
            ];
            domain.close().await;
            kinds.into_iter().all(|error| error.is_some_and(|error| is_forked(error.kind())))
        };
        let are_refused = tokio::time::timeout(limit, verbs).await.map_err(|_| Step::OtherVerbs)?;
        ensure(are_refused, Step::OtherVerbs)?;
        ensure(domain.metrics().acquired == 0, Step::Metrics)?;
        unused.inspect("orders/42").await.map_err(|_| Step::UseUnused)?;
        let own = Domain::open(url).await.map_err(|_| Step::OpenOwn)?;
        let mine =
            own.lock(format!("child/{}", std::process::id())).acquire().await.map_err(|_| Step::UseOwn)?;
        ensure(mine.is_held(), Step::UseOwn)?;
        ensure(matches!(mine.release().await, Ok(Release::Released)), Step::UseOwn)?;
        let parents = own.lock("orders/42").try_acquire().await.map_err(|_| Step::UseOwn)?;
        // Memory is a process's own; elsewhere the parent holds the name.
        ensure(parents.is_acquired() == url.starts_with("memory:"), Step::Exclusion)
    })
}

// R1.3, R3.5
#[test]
fn a_child_of_a_busy_process_is_refused_on_a_directory() {
    busy(&Directory::new().url());
}

// R1.3, R3.5
#[test]
fn a_child_of_a_busy_process_is_refused_on_redis() {
    busy(&patient_url(&RedisServer::start()));
}

// R1.3, R3.5
#[test]
fn a_child_of_a_busy_process_has_memory_of_its_own() {
    busy("memory:shared");
}

/// Forks again and again inside of a `run`, while other threads lock the mutexes of the lease and of the timers.
#[test]
#[ignore = "run by the other tests, as a process of its own"]
fn work_that_forks() {
    let url = std::env::var("TENURE_FORK_URL").expect("to be run by another test");
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let domain = runtime.block_on(Domain::open(&url)).expect("a store of our own");
    let (lock, parent) = (domain.lock("orders/42"), std::process::id());
    let ends = Arc::new(AtomicBool::new(false));
    let ran = runtime.block_on(async {
        let work = async |lease: Lease| {
            let load: Vec<_> = (0..2).map(|_| watch(&runtime, &lease, &ends)).collect();
            // The child has a copy of this as well.
            let mut sleep = pin!(tokio::time::sleep(Duration::from_secs(3_600)));
            assert!(std::future::poll_fn(|cx| Poll::Ready(sleep.as_mut().poll(cx))).await.is_pending());
            let mut outcomes = std::collections::BTreeMap::new();
            for _ in 0..FORKS {
                // What has woken this task before must not wake it in the child.
                tokio::task::yield_now().await;
                // SAFETY: the child does nothing but return from `run`, and ends by `_exit`.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    // SAFETY: both are async-signal-safe.
                    unsafe { libc::alarm(LONGEST_CHILD) };
                    std::future::pending::<()>().await;
                    // SAFETY: as above.
                    unsafe { libc::_exit(Step::exit_code(Err(Step::WorkGoesOn))) };
                }
                let child = Pid::from_raw(child).expect("a child");
                let (_, status) =
                    waitpid(Some(child), WaitOptions::empty()).expect("a child").expect("it ended");
                *outcomes.entry(outcome(status)).or_insert(0) += 1;
            }
            ends.store(true, Ordering::Relaxed);
            for task in load {
                task.await.expect("the parent's tasks go on as ever");
            }
            outcomes
        };
        let ran = lock.run(work).await;
        if std::process::id() != parent {
            let is_forked = ran.is_err_and(|error| error.kind() == ErrorKind::Forked);
            let outcome = if is_forked { Ok(()) } else { Err(Step::RunKind) };
            // SAFETY: it is async-signal-safe.
            unsafe { libc::_exit(Step::exit_code(outcome)) };
        }
        ran
    });
    let ran = ran.expect("the parent holds what it held");
    println!("{url}: {:?}", ran.value);
    assert_eq!(ran.report.release.expect("the store answers"), Release::Released);
    assert_eq!(ran.value.get(GOOD), Some(&FORKS), "each of {FORKS} children: {:?}", ran.value);
}

// R1.3, R3.5
#[test]
fn work_that_forks_stops_in_the_child_on_a_directory() {
    run_alone("work_that_forks", &Directory::new().url());
}

// R1.3, R3.5
#[test]
fn work_that_forks_stops_in_the_child_on_redis() {
    run_alone("work_that_forks", &patient_url(&RedisServer::start()));
}

/// Is cloned twice, each time as the first process of a pid namespace, as it is itself: so the copies of its memory can't be told apart by
/// their pid, as those of a machine that is restored twice from one snapshot.
#[test]
#[ignore = "run by another test, as the first process of a pid namespace"]
fn a_process_that_is_cloned() {
    assert_eq!(std::process::id(), 1, "to be run by another test");
    let domain = runtime().block_on(Domain::open("memory:")).expect("memory");
    drop(runtime().block_on(domain.lock("orders/42").acquire()).expect("nobody else wants it"));
    for _ in 0..2 {
        let flags = libc::CLONE_NEWPID | libc::SIGCHLD;
        // SAFETY: without a stack this is a fork, into a pid namespace of its own. Only this thread is at work.
        let child = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
        assert!(child >= 0, "a clone");
        if child == 0 {
            let guard = runtime()
                .block_on(domain.lock("orders/42").acquire())
                .expect("it takes itself for its parent");
            println!("\nclone: {}", guard.token());
            std::process::exit(0);
        }
        let child = Pid::from_raw(i32::try_from(child).expect("a pid")).expect("a child");
        let (_, status) = waitpid(Some(child), WaitOptions::empty()).expect("a child").expect("it ended");
        assert_eq!(status.exit_status(), Some(0), "the clone");
    }
}

// R2.1
#[test]
fn two_copies_of_one_memory_do_not_draw_the_same_token() {
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", "a_process_that_is_cloned", "--ignored", "--nocapture"])
        .output()
        .expect("unshare of util-linux");
    let said = String::from_utf8_lossy(&output.stdout);
    let tokens: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("clone: ")).collect();
    assert_eq!(tokens.len(), 2, "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert_ne!(tokens[0], tokens[1], "both would be granted the same lease");
}
