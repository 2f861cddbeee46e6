//! Without one of its checks the lock breaks, and the oracle sees it. With all of them, the same steps are harmless.

use std::time::Duration;

use rustix::process::Signal;
use tenure_testkit::oracle::{Check as Promise, History, Report};

use super::Scratch;
use super::puppet::{HANGS, Puppet};
use crate::backend::file::faults::{Action, Check, Point};

const NAME: &str = "orders/42";
/// How often the steps are gone through at most, where a check is left out and where none is. Once is enough to see that the check is
/// needed; on a busy machine a step may come too late to do harm.
const ROUNDS: usize = 8;
/// How long it is waited for a grant that should not be, where it would be a surprise.
const SURPRISE: Duration = Duration::from_millis(200);

/// Somebody is stopped inside a grant; another steals the stripe and is granted the name; the first one goes on.
fn stolen_from(plan: &str, patience: Duration) -> Vec<Promise> {
    let scratch = Scratch::new();
    let (mut robbed, mut thief) = (Puppet::start_as(&scratch, plan, &[]), Puppet::start(&scratch));
    robbed.arm(Point::Applied, Action::Stop);
    robbed.tell(&format!("acquire 60000 {NAME}"));
    robbed.until_stopped();
    thief.acquire(NAME);
    robbed.signal(Signal::CONT);
    let too_early = robbed.hear_within(patience);
    thief.release(NAME);
    if too_early.is_none() {
        robbed.expect_granted();
    }
    failed(&scratch)
}

/// Somebody is stopped inside a release that grants the name to a waiter; another takes the name over; the first one goes on, and
/// its message to the waiter is out of date.
fn told_too_late(plan: &str, patience: Duration) -> Vec<Promise> {
    let scratch = Scratch::new();
    let (mut sender, mut taker) = (Puppet::start(&scratch), Puppet::start(&scratch));
    let mut waiter = Puppet::start_as(&scratch, plan, &[]);
    sender.acquire(NAME);
    waiter.tell(&format!("acquire 60000 {NAME}"));
    while taker.ask(&format!("inspect {NAME}")).ends_with("by 0") {}
    sender.arm(Point::Applied, Action::Stop);
    sender.tell(&format!("release {NAME}"));
    sender.until_stopped();
    taker.tell(&format!("take-over 60000 {NAME}"));
    taker.expect_granted();
    sender.signal(Signal::CONT);
    // What it says depends on whether its first attempt counted: nobody can tell.
    sender.expect("released");
    let too_early = waiter.hear_within(patience);
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

fn bites(check: Check, steps: impl Fn(&str, Duration) -> Vec<Promise>) {
    let is_broken = (0..ROUNDS).any(|_| {
        assert_eq!(steps("", SURPRISE), [], "with all checks");
        let failed = steps(&format!("without={check:?}"), HANGS / 4);
        failed.contains(&Promise::S1) || failed.contains(&Promise::S2)
    });
    assert!(is_broken, "without {check:?} nothing was broken in {ROUNDS} rounds");
}

// B7
#[test]
fn without_the_look_at_the_mark_two_hold() {
    bites(Check::StolenMeanwhile, stolen_from);
}

// B7
#[test]
fn without_the_look_at_the_stripe_an_old_message_grants() {
    bites(Check::Message, told_too_late);
}
