//! What stays of a stripe after the end of all processes, after a reboot, and under another clock.

use super::*;
use crate::ErrorKind;
use crate::time::clock::Clock;
use crate::types::bytes::Bytes;

fn wall() -> u64 {
    Clock::Awake.wall_micros()
}

/// The clock of this boot in a time namespace that adds a second.
fn clock_of_another_namespace() -> ClockIdentity {
    let mut bytes = Vec::new();
    ClockIdentity::of_this_process().unwrap().put(&mut bytes);
    bytes[16..].copy_from_slice(&1_000_000_000_u64.to_le_bytes());
    ClockIdentity::take(&mut Bytes(&bytes)).unwrap()
}

// B1
#[tokio::test]
async fn a_reboot_ends_all_leases_and_keeps_the_fences() {
    let year = 365 * 24 * 3_600_000_000;
    // Even if the wall clock was set back since.
    for last in [wall(), wall() + year] {
        let scratch = Scratch::new();
        let mut before = ClockIdentity::of_this_process().unwrap();
        before.boot[0] ^= 1;
        put_stripe(&scratch, NAME, &stripe_with(before, &[NAME.to_owned()], last));
        let domain = open(&scratch).await;
        assert!(!domain.inspect(NAME).await.unwrap().is_held());
        assert_eq!(domain.list("").await.unwrap(), []);
        let guard = hold(&domain, NAME).await;
        assert!(guard.fence().get() > last, "{} after {last}", guard.fence());
        assert!(is_busy(&open(&scratch).await, NAME).await);
    }
}

// B1
#[tokio::test]
async fn fences_survive_all_processes_and_a_clock_that_was_set_back() {
    let scratch = Scratch::new();
    let last = wall() + 1_000_000_000;
    let clock = ClockIdentity::of_this_process().unwrap();
    let mut state = stripe_with(clock, &[NAME.to_owned()], last);
    // As after a release: only the highest fence is left.
    state.void(clock);
    put_stripe(&scratch, NAME, &state);
    let first = TestProcess::start(&scratch).acquire(NAME);
    assert!(first > last);
    let second = TestProcess::start(&scratch).acquire(NAME);
    assert!(second > first);
    let domain = open(&scratch).await;
    assert!(hold(&domain, NAME).await.fence().get() > second);
}

#[tokio::test]
async fn another_time_namespace_is_refused_while_it_is_in_use() {
    let scratch = Scratch::new();
    let mut state = stripe_with(clock_of_another_namespace(), &[NAME.to_owned()], wall());
    put_stripe(&scratch, NAME, &state);
    let domain = open(&scratch).await;
    let error = domain.lock(NAME).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("time namespace"), "{error}");
    // Even if a process of that namespace has the lock: its stripe is not replaced.
    let path = scratch.store().join(stripe_file(NAME));
    let (before, stuck) = (std::fs::read(&path).unwrap(), std::fs::File::open(&path).unwrap());
    stuck.lock().unwrap();
    assert_eq!(domain.lock(NAME).try_acquire().await.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(std::fs::read(&path).unwrap(), before);

    let scratch = Scratch::new();
    state.void(clock_of_another_namespace());
    put_stripe(&scratch, NAME, &state);
    drop(hold(&open(&scratch).await, NAME).await);
}
