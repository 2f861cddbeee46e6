//! Runs one case on one backend, or says why not.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use tenure::Capability;

use super::cases::INDEX;
use super::fixture::{Client, Fixture, Need};
use super::time::eventually;

/// How long a case may take, in real time. None comes near it.
const WATCHDOG: Duration = Duration::from_secs(30);

/// One backend's suite: how to make its fixture, and the cases that it can't do.
pub struct Suite<F> {
    backend: &'static str,
    fixture: fn() -> F,
    without: &'static [&'static str],
}

impl<F: Fixture> Suite<F> {
    /// A suite for the backend of this name; `without` are the cases that it can't do, as `theme::case`.
    pub fn new(backend: &'static str, fixture: fn() -> F, without: &'static [&'static str]) -> Self {
        Suite { backend, fixture, without }
    }

    /// Runs a case on a fixture of its own, and looks whether it left anything in the store.
    ///
    /// # Panics
    /// When the case fails, hangs, or is reported as not supported without being listed, or the other way round.
    pub fn check(
        self,
        case: &'static str,
        needs: &'static [Need],
        body: impl AsyncFnOnce(&F) + Send + 'static,
    ) {
        let Suite { backend, fixture, without } = self;
        let is_listed = without.contains(&case);
        within_reason(case, move || {
            let fixture = fixture();
            let runtime = fixture.runtime();
            runtime.block_on(async {
                if let Some(why) = why_not(&fixture, needs).await {
                    println!("not supported by {backend}: {case}: {why}");
                    assert!(
                        is_listed,
                        "{case} is not supported by {backend} ({why}), and not listed as such"
                    );
                    return;
                }
                assert!(!is_listed, "{case} is listed as not supported by {backend}, and is");
                body(&fixture).await;
                nothing_is_left(&fixture).await;
            });
            // What is still spawned must not keep the test from ending.
            runtime.shutdown_background();
        });
    }

    /// Says which cases the backend can't do, and that these are the ones on its list.
    ///
    /// # Panics
    /// When they are not.
    pub fn report(self) {
        let Suite { backend, fixture, without } = self;
        within_reason("the report", move || {
            let fixture = fixture();
            let runtime = fixture.runtime();
            let mut left_out = Vec::new();
            for (case, needs) in INDEX {
                if let Some(why) = runtime.block_on(why_not(&fixture, needs)) {
                    println!("not supported by {backend}: {case}: {why}");
                    left_out.push(*case);
                }
            }
            let (all, not) = (INDEX.len(), left_out.len());
            println!("{backend}: {all} cases, {} supported, {not} not supported", all - not);
            let (mut expected, mut found) = (without.to_vec(), left_out);
            expected.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, expected, "what {backend} does not support (left), and what it says (right)");
            runtime.shutdown_background();
        });
    }
}

/// Runs it on a thread of its own, and fails when that takes too long: also when it blocks its thread.
fn within_reason(case: &'static str, body: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let _done = done;
        body();
    });
    if let Err(RecvTimeoutError::Timeout) = is_done.recv_timeout(WATCHDOG) {
        panic!("{case} hangs: not done after {WATCHDOG:?}");
    }
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

async fn why_not(fixture: &impl Fixture, needs: &[Need]) -> Option<String> {
    let client = fixture.client().await;
    let store = client.domain().capabilities().await.expect("a store that says what it can do");
    needs.iter().find_map(|need| match need {
        Need::Store(capability) if !store.contains(capability) => {
            Some(format!("the store has no {capability:?}"))
        }
        Need::Store(Capability::Fifo) if fixture.breaks_connections() => {
            Some("a waiter that just connects again may be passed over".to_owned())
        }
        Need::Store(_) => None,
        Need::Fixture(ability) => {
            let lack = fixture.lacks().iter().find(|(lacking, _)| lacking == ability);
            lack.map(|(_, why)| (*why).to_owned())
        }
    })
}

/// L2: after every case, once its guards are gone, the store is as empty as before.
async fn nothing_is_left(f: &impl Fixture) {
    let client = f.client().await;
    let domain = client.domain();
    let can_list = domain.capabilities().await.expect("an open store").contains(&Capability::List);
    if can_list {
        let mut was_said = false;
        eventually(f, async || {
            let left = domain.list("").await.expect("to list");
            if !left.is_empty() && !std::mem::replace(&mut was_said, true) {
                println!("still there after the case: {left:?}");
            }
            left.is_empty()
        })
        .await;
    }
}
