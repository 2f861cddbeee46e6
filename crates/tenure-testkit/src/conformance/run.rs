//! The scoped form: acquires, works, gives back, whatever happens in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure::{Attempt, ErrorKind, Release};

use super::fixture::{Client, Fixture};
use super::time::{
    LONG, NAME, SHORT, drive, eventually, hold, is_free, lock, look, pending_until, queue, soon,
};

// R1.7
pub(super) async fn run_gives_back_at_the_end(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let ran = lock(&a)
        .run(async |lease| {
            assert!(lease.is_held());
            assert!(!lock(&b).try_acquire().await.expect("no error").is_acquired());
            lease
        })
        .await
        .expect("to run");
    assert_eq!(ran.report.release.expect("to be told"), Release::Released);
    assert_eq!(ran.report.fence, ran.value.fence());
    assert!(!ran.value.is_held());
    assert!(!look(b.domain()).await.is_held(), "the release is awaited");
}

// R1.7: an error of the work is the work's value.
pub(super) async fn run_gives_back_on_error(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let ran = lock(&a).run(async |_| Err::<(), _>("the work's own")).await.expect("to run");
    assert_eq!(ran.value, Err("the work's own"));
    assert!(!look(b.domain()).await.is_held());
}

// R1.7
pub(super) async fn run_gives_back_on_panic(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let lock = lock(&a);
    let task = tokio::spawn(async move { lock.run(async |_| panic!("on purpose")).await.map(|_| ()) });
    assert!(drive(f, task).await.expect_err("it panics").is_panic());
    is_free(f, b.domain()).await;
}

// R1.7
pub(super) async fn run_gives_back_on_cancellation(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let (lock, is_stopped) = (lock(&a), Arc::<AtomicBool>::default());
    let told = Stopped(Arc::clone(&is_stopped));
    let task = tokio::spawn(async move {
        let work = async move |_| {
            let _told = told;
            std::future::pending::<()>().await
        };
        lock.run(work).await.map(|_| ())
    });
    eventually(f, async || look(b.domain()).await.is_held()).await;
    task.abort();
    is_free(f, b.domain()).await;
    assert!(is_stopped.load(Ordering::SeqCst), "given back while the work is alive");
}

// R1.7: cancelled while it waits, it never runs.
pub(super) async fn run_that_is_cancelled_in_the_queue_never_works(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&a).await;
    let lock = lock(&b);
    let task =
        tokio::spawn(async move { lock.run(async |_| unreachable!("it was cancelled")).await.map(|_| ()) });
    eventually(f, async || queue(a.domain()).await.len() == 1).await;
    task.abort();
    soon(f, async || queue(a.domain()).await.is_empty()).await;
    drop(guard);
    assert!(drive(f, task).await.expect_err("aborted").is_cancelled());
    is_free(f, a.domain()).await;
}

// R1.8
pub(super) async fn run_reports_how_long_it_waited_and_held(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let (wait, work) = (Duration::from_millis(400), Duration::from_millis(200));
    let guard = hold(&a).await;
    let lock = lock(&b);
    let mut running = Box::pin(lock.run(async |lease| {
        f.let_pass(work).await;
        lease.since()
    }));
    pending_until(f, running.as_mut(), async || queue(a.domain()).await.len() == 1).await;
    f.let_pass(wait).await;
    guard.release().await.expect("to release");
    let ran = running.await.expect("to run");
    assert!(ran.report.waited >= wait, "{:?}", ran.report);
    assert!(ran.report.held >= work, "{:?}", ran.report);
    assert!(ran.report.started >= ran.value, "{:?}", ran.report);
    let uncontended = lock.run(async |_| ()).await.expect("to run").report;
    assert!(uncontended.started > ran.report.started);
    assert!(uncontended.fence > ran.report.fence);
}

// R3.2: the work is stopped, and is gone when it is told.
pub(super) async fn run_stops_the_work_on_loss(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let (lock_a, is_stopped) = (a.domain().lock(NAME).ttl(2 * SHORT), Arc::<AtomicBool>::default());
    let told = Stopped(Arc::clone(&is_stopped));
    let task = tokio::spawn(async move {
        let work = async move |_| {
            let _told = told;
            std::future::pending::<()>().await
        };
        lock_a.run(work).await.map(|_| ())
    });
    // Whoever is not granted it yet waits for its next turn.
    eventually(f, async || a.domain().metrics().held == 1).await;
    let taker = lock(&b).take_over().await.expect("to take over");
    let error = drive(f, task).await.expect("no panic").expect_err("it is lost");
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(is_stopped.load(Ordering::SeqCst), "the work goes on");
    assert!(taker.is_held());
}

// R3.2: the same without force: its time is over.
pub(super) async fn run_stops_the_work_when_its_time_is_over(f: &impl Fixture) {
    let a = f.client().await;
    let lock = a.domain().lock(NAME).ttl(SHORT).max_hold(SHORT);
    let ran = drive(f, lock.run(async |_| std::future::pending::<()>().await)).await;
    assert_eq!(ran.expect_err("it is lost").kind(), ErrorKind::Lost);
    is_free(f, a.domain()).await;
}

// R4.1: busy is no error, and not what the work says either.
pub(super) async fn try_run_tells_busy_from_the_works_own_value(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let guard = hold(&a).await;
    let ran = lock(&b).try_run(async |_| None::<u8>).await.expect("no error");
    match ran {
        Attempt::Acquired(_) => panic!("two hold it"),
        Attempt::Busy(busy) => assert_eq!(busy.holder.expect("to be known").owner.label(), "holder"),
    }
    let limit = Duration::from_millis(100);
    let ran = drive(f, lock(&b).try_run_for(limit, async |_| 7)).await.expect("no error");
    assert!(!ran.is_acquired());
    guard.release().await.expect("to release");
    is_free(f, a.domain()).await;
    let ran = lock(&b).try_run(async |_| None::<u8>).await.expect("no error").ok();
    assert_eq!(ran.expect("to be run").value, None);
    let ran = lock(&b).try_run_for(LONG, async |_| 7).await.expect("no error").ok();
    assert_eq!(ran.expect("to be run").value, 7);
}

// R1.7, R2.5: what was done is not forgotten because the store could not be told.
pub(super) async fn run_keeps_the_value_when_the_release_fails(f: &impl Fixture) {
    let (a, b) = (f.client().await, f.client().await);
    let lock = lock(&a);
    let ran = lock.run(async |_| {
        a.cut_off().await;
        7
    });
    let ran = drive(f, ran).await.expect("to run");
    assert_eq!(ran.value, 7);
    assert!(ran.report.release.expect_err("the store is out of reach").is_transient());
    a.reconnect().await;
    is_free(f, b.domain()).await;
}

/// Says that the work it stands in is gone.
struct Stopped(Arc<AtomicBool>);

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
