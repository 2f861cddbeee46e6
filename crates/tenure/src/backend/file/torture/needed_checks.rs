//! If one of its checks is left out, the lock breaks and the oracle notices. With all checks, the same steps are harmless.

use std::time::Duration;

use rustix::process::Signal;
use tenure_testkit::oracle::{Check as Promise, History, Report};

use super::Scratch;
use super::test_process::{HANGS, TestProcess};
use crate::backend::file::faults::{Action, Check, Point};

const NAME: &str = "orders/42";
/// How many times the steps are repeated at most, with all checks and without one. Once is enough to show that the check is needed; on a busy
/// machine, a step may come too late to do harm.
const ROUNDS: usize = 8;
/// How long a test with all checks waits for a wrong grant.
const WRONG_GRANT: Duration = Duration::from_millis(200);

/// A process is stopped inside a grant; another one replaces the stripe and gets the name; the first one continues.
fn stripe_replaced(plan: &str, patience: Duration) -> Vec<Promise> {
    let scratch = Scratch::new();
    let (mut stopped, mut other) = (TestProcess::start_as(&scratch, plan, &[]), TestProcess::start(&scratch));
    stopped.arm(Point::Applied, Action::Stop);
    stopped.tell(&format!("acquire 60000 {NAME}"));
    stopped.until_stopped();
    other.acquire(NAME);
    stopped.signal(Signal::CONT);
    let too_early = stopped.answer_within(patience);
    other.release(NAME);
    if too_early.is_none() {
        stopped.expect_granted();
    }
    failed(&scratch)
}

/// A process is stopped inside a release that grants the name to a waiter; another one takes the name over; the first one continues, and
/// its message to the waiter is stale.
fn stale_message(plan: &str, patience: Duration) -> Vec<Promise> {
    let scratch = Scratch::new();
    let (mut sender, mut taker) = (TestProcess::start(&scratch), TestProcess::start(&scratch));
    let mut waiter = TestProcess::start_as(&scratch, plan, &[]);
    sender.acquire(NAME);
    waiter.tell(&format!("acquire 60000 {NAME}"));
    while taker.ask(&format!("inspect {NAME}")).ends_with("by 0") {}
    sender.arm(Point::Applied, Action::Stop);
    sender.tell(&format!("release {NAME}"));
    sender.until_stopped();
    taker.tell(&format!("take-over 60000 {NAME}"));
    taker.expect_granted();
    sender.signal(Signal::CONT);
    // The answer depends on whether its first attempt counted, which the test can't know.
    sender.expect("released");
    let too_early = waiter.answer_within(patience);
    taker.release(NAME);
    if too_early.is_none() {
        waiter.expect_granted();
    }
    failed(&scratch)
}

fn failed(scratch: &Scratch) -> Vec<Promise> {
    let history = History::read_dir(scratch.logs()).expect("logs");
    let report = Report::of(&history);
    println!("{report}");
    report.failed()
}

fn is_needed(check: Check, steps: impl Fn(&str, Duration) -> Vec<Promise>) {
    let is_broken = (0..ROUNDS).any(|_| {
        assert_eq!(steps("", WRONG_GRANT), [], "with all checks");
        let failed = steps(&format!("without={check:?}"), HANGS / 4);
        failed.contains(&Promise::S1) || failed.contains(&Promise::S2)
    });
    assert!(is_broken, "without {check:?}, {ROUNDS} rounds broke no promise");
}

// B7
#[test]
fn without_reading_the_mark_again_two_hold_a_name() {
    is_needed(Check::ReplacedMeanwhile, stripe_replaced);
}

// B7
#[test]
fn without_reading_the_stripe_a_stale_message_grants() {
    is_needed(Check::Message, stale_message);
}
