//! Waiting for what can be observed, while time passes.
//!
//! On a clock that tests own nothing happens unless it is moved, and on a real one nothing may be slept for: both are served by small
//! steps of [`Fixture::let_pass`] between two looks. The limit is far above anything that a store may take, and far below [`LONG`].

use std::future::Future;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tenure::{Domain, Guard, Lock, Status};
use tokio::task::JoinHandle;

use super::fixture::{Client, Fixture};

/// A ttl that never ends, and is not even renewed, within a case.
pub(super) const LONG: Duration = Duration::from_secs(120);
/// A ttl that ends within a case, and yet not because the machine is busy.
pub(super) const SHORT: Duration = Duration::from_secs(1);
/// How long anything is waited for.
const LIMIT: Duration = Duration::from_secs(20);
/// How long anything is waited for that must happen at once: sooner than a waiter lapses, or a lease that was handed over ends if its
/// waiter does not come for it. A machine that is busy makes this longer, not shorter: it is counted in steps.
const SOON: Duration = Duration::from_millis(800);
const STEP: Duration = Duration::from_millis(10);
/// The name of most cases.
pub(super) const NAME: &str = "orders/42";

/// How long what must happen at once may take: no reply may get lost on the way.
fn at_once(f: &impl Fixture) -> Duration {
    if f.breaks_connections() { LIMIT } else { SOON }
}

/// Waits for the future while time passes.
#[track_caller]
pub(super) fn drive<T>(f: &impl Fixture, future: impl Future<Output = T>) -> impl Future<Output = T> {
    drive_for(f, LIMIT, future)
}

#[track_caller]
fn drive_for<T>(
    f: &impl Fixture,
    limit: Duration,
    future: impl Future<Output = T>,
) -> impl Future<Output = T> {
    let caller = Location::caller();
    async move {
        let mut future = pin!(future);
        for _ in 0..limit.as_millis() / STEP.as_millis() {
            tokio::select! {
                biased;
                output = &mut future => return output,
                () = f.let_pass(STEP) => {}
            }
        }
        panic!("{caller}: still waiting after {limit:?}");
    }
}

/// Waits until it is so, while time passes.
#[track_caller]
pub(super) fn eventually(f: &impl Fixture, is_so: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    within(f, LIMIT, is_so)
}

/// Waits until it is so, which must be at once.
#[track_caller]
pub(super) fn soon(f: &impl Fixture, is_so: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    within(f, at_once(f), is_so)
}

#[track_caller]
fn within(
    f: &impl Fixture,
    limit: Duration,
    mut is_so: impl AsyncFnMut() -> bool,
) -> impl Future<Output = ()> {
    let caller = Location::caller();
    async move {
        for _ in 0..limit.as_millis() / STEP.as_millis() {
            if is_so().await {
                return;
            }
            f.let_pass(STEP).await;
        }
        panic!("{caller}: not so after {limit:?}");
    }
}

/// Polls a future that must not finish until it is so.
#[track_caller]
pub(super) fn pending_until<T>(
    f: &impl Fixture,
    future: Pin<&mut impl Future<Output = T>>,
    is_so: impl AsyncFnMut() -> bool,
) -> impl Future<Output = ()> {
    let caller = Location::caller();
    let is_so = eventually(f, is_so);
    async move {
        tokio::select! {
            biased;
            () = is_so => {}
            _ = future => panic!("{caller}: finished too early"),
        }
    }
}

/// Whether the future is ready without any waiting.
pub(super) async fn is_ready<T>(future: impl Future<Output = T>) -> bool {
    now_or_never(future).await.is_some()
}

/// What the future has by now.
pub(super) async fn now_or_never<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// What the store shows of [`NAME`].
pub(super) async fn look(domain: &Domain) -> Status {
    domain.inspect(NAME).await.expect("to look")
}

/// The labels of those that wait for [`NAME`], in order.
pub(super) async fn queue(domain: &Domain) -> Vec<String> {
    let status = look(domain).await;
    status.waiters.iter().map(|waiter| waiter.owner.label().to_owned()).collect()
}

/// Waits until nobody holds or awaits [`NAME`].
#[track_caller]
pub(super) fn is_free(f: &impl Fixture, domain: &Domain) -> impl Future<Output = ()> {
    eventually(f, async || look_is_free(domain).await)
}

/// The same, at once.
#[track_caller]
pub(super) fn is_soon_free(f: &impl Fixture, domain: &Domain) -> impl Future<Output = ()> {
    soon(f, async || look_is_free(domain).await)
}

async fn look_is_free(domain: &Domain) -> bool {
    let status = look(domain).await;
    !status.is_held() && status.waiters.is_empty()
}

/// A claim on [`NAME`] that does not end by itself.
pub(super) fn lock(client: &impl Client) -> Lock {
    client.domain().lock(NAME).ttl(LONG)
}

/// Takes [`NAME`], which is free.
pub(super) async fn hold(client: &impl Client) -> Guard {
    lock(client).label("holder").acquire().await.expect("to acquire")
}

/// A task of its own that acquires.
pub(super) fn acquiring(lock: Lock) -> JoinHandle<Guard> {
    tokio::spawn(async move { lock.acquire().await.expect("to be granted in the end") })
}

/// A task of a client that has no other one waiting, in the queue for [`NAME`] behind everyone who is there.
pub(super) async fn enqueue(f: &impl Fixture, client: &impl Client, label: &str) -> JoinHandle<Guard> {
    enqueue_lock(f, client, lock(client).label(label)).await
}

/// The same, with terms of its own.
pub(super) async fn enqueue_lock(f: &impl Fixture, client: &impl Client, lock: Lock) -> JoinHandle<Guard> {
    let before = queue(client.domain()).await.len();
    let task = acquiring(lock);
    eventually(f, async || queue(client.domain()).await.len() > before).await;
    task
}

/// One more task of this client waits, behind those that wait in it.
pub(super) async fn sit(f: &impl Fixture, client: &impl Client, lock: Lock) -> JoinHandle<Guard> {
    let before = client.domain().metrics().waiting;
    let task = acquiring(lock);
    eventually(f, async || client.domain().metrics().waiting > before).await;
    task
}

/// The guard of a task that waits, once it is granted.
#[track_caller]
pub(super) fn granted(f: &impl Fixture, task: JoinHandle<Guard>) -> impl Future<Output = Guard> {
    let granted = drive(f, task);
    async { granted.await.expect("a task that did not panic") }
}

/// The same, at once.
#[track_caller]
pub(super) fn soon_granted(f: &impl Fixture, task: JoinHandle<Guard>) -> impl Future<Output = Guard> {
    let granted = drive_for(f, at_once(f), task);
    async { granted.await.expect("a task that did not panic") }
}
