//! Waiting for what can be observed, under a limit that only a broken lock exceeds. Nobody sleeps for as long as something usually takes:
//! that is too long on an idle machine, and too short on a busy one.

use std::future::Future;
use std::panic::Location;
use std::time::{Duration, Instant};

/// More than a busy machine takes for what takes milliseconds.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until it is so.
///
/// # Panics
/// When it is not so for long, with the place of whoever called.
#[track_caller]
pub fn until<'a>(
    what: &'a str,
    mut is_so: impl FnMut() -> bool + Send + 'a,
) -> impl Future<Output = ()> + Send + 'a {
    let limit = Limit::new(what);
    async move {
        while !is_so() {
            limit.pause().await;
        }
    }
}

/// Waits until it is so, where a store must be asked.
///
/// # Panics
/// When it is not so for long, with the place of whoever called.
#[track_caller]
pub fn until_async<'a>(
    what: &'a str,
    mut is_so: impl AsyncFnMut() -> bool + 'a,
) -> impl Future<Output = ()> + 'a {
    let limit = Limit::new(what);
    async move {
        while !is_so().await {
            limit.pause().await;
        }
    }
}

/// Waits until it is so, where there is no runtime: for servers that must find each other, which takes seconds. `log` says why they
/// did not.
///
/// # Panics
/// When it is not so for long.
pub(crate) fn block_until(what: &str, is_so: impl Fn() -> bool, log: impl Fn() -> String) {
    let give_up = Instant::now() + 3 * PATIENCE;
    while !is_so() {
        assert!(Instant::now() < give_up, "no {what} within {:?}\n{}", 3 * PATIENCE, log());
        std::thread::sleep(Duration::from_millis(5));
    }
}

struct Limit<'a> {
    what: &'a str,
    caller: &'static Location<'static>,
    give_up: Instant,
}

impl<'a> Limit<'a> {
    #[track_caller]
    fn new(what: &'a str) -> Self {
        Limit { what, caller: Location::caller(), give_up: Instant::now() + PATIENCE }
    }

    async fn pause(&self) {
        let Limit { what, caller, give_up } = self;
        assert!(Instant::now() < *give_up, "waited {PATIENCE:?} in vain until {what}, at {caller}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
