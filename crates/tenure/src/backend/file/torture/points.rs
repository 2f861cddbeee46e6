//! A process that is stopped or killed at one point delays no other, and breaks nothing when it continues.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tenure_testkit::oracle::{History, Recorder, Report};

use super::test_process::{HANGS, TestProcess};
use super::{Scratch, names_of_one_stripe};
use crate::backend::file::faults::{Action, Point};
use crate::backend::file::open_directory::index_of;
use crate::types::name::Name;

/// How many times another process may be faster than the one that the test wants to stop, as on a busy machine.
const TRIES: usize = 10;
/// An idle machine needs 100 ms; tests share theirs.
const FINISHES: Duration = Duration::from_secs(20);

/// A stopped process that has the lock of the stripe.
fn stuck(scratch: &Scratch, name: &str) -> TestProcess {
    let mut process = TestProcess::start(scratch);
    process.arm(Point::Locked, Action::Stop);
    process.tell(&format!("acquire 60000 {name}"));
    process.until_stopped();
    process
}

/// A process that was stopped or killed at a point of an operation or of a replacement. Also the process whose stripe it replaced, and the
/// fence of its lease.
fn victim(
    scratch: &Scratch,
    point: Point,
    action: Action,
    name: &str,
    other: &str,
) -> (TestProcess, Option<TestProcess>, u64) {
    let mut victim = TestProcess::start(scratch);
    let fence = victim.acquire(name);
    let stuck = point.is_of_a_replacement().then(|| stuck(scratch, other));
    victim.arm(point, action);
    victim.tell(&format!("release {name}"));
    match action {
        Action::Stop => victim.until_stopped(),
        Action::Kill => victim.until_dead(),
        Action::Stall => {}
    }
    (victim, stuck, fence)
}

fn judge(scratch: &Scratch) {
    let history = History::read_dir(scratch.logs()).expect("logs");
    Report::of(&history).assert_clean();
}

#[test]
fn a_process_that_is_stopped_at_any_point_blocks_no_other() {
    let [name, other, third] = names_of_one_stripe();
    for point in Point::ALL {
        let scratch = Scratch::new();
        let mut bystander = TestProcess::start(&scratch);
        let (mut victim, stuck, fence) = victim(&scratch, point, Action::Stop, &name, &other);

        let begin = Instant::now();
        bystander.acquire(&third);
        let took = begin.elapsed();
        println!("stopped at {point:?}: another finished in {took:?}");
        assert!(took < FINISHES, "{point:?}: {took:?}");

        victim.signal(Signal::CONT);
        victim.expect("released Released");
        assert!(bystander.acquire(&name) > fence, "{point:?}");
        if let Some(mut stuck) = stuck {
            stuck.signal(Signal::CONT);
            let fence = stuck.expect_granted();
            stuck.release(&other);
            assert!(victim.acquire(&other) > fence, "{point:?}");
        }
        judge(&scratch);
    }
}

// R1.3
#[test]
fn a_process_that_is_killed_at_any_point_blocks_no_other() {
    let [name, other, third] = names_of_one_stripe();
    for point in Point::ALL {
        let scratch = Scratch::new();
        let mut bystander = TestProcess::start(&scratch);
        let (_victim, stuck, fence) = victim(&scratch, point, Action::Kill, &name, &other);

        let begin = Instant::now();
        bystander.acquire(&third);
        assert!(bystander.acquire(&name) > fence, "{point:?}");
        let took = begin.elapsed();
        println!("killed at {point:?}: another had its name in {took:?}");
        assert!(took < FINISHES, "{point:?}: {took:?}");

        if let Some(stuck) = stuck {
            stuck.signal(Signal::CONT);
            stuck.expect_granted();
        }
        judge(&scratch);
    }
}

/// A process is stopped while it replaces a stripe, and continues after others have replaced it several times.
#[test]
fn a_late_replacement_restores_no_old_state() {
    let mut points = vec![Point::MarkedDead, Point::Announced, Point::DraftWritten, Point::Replaced];
    let mut tries = TRIES;
    while let Some(point) = points.pop() {
        let [theirs, mine, first, second, third, blocked] = names_of_one_stripe();
        let scratch = Scratch::new();
        let mut honest = TestProcess::start(&scratch);
        let mut replacer = TestProcess::start(&scratch);
        let mut stuck_processes = vec![stuck(&scratch, &blocked)];
        replacer.arm(point, Action::Stop);
        replacer.tell(&format!("acquire 60000 {mine}"));
        if !replacer.stops() {
            tries = tries.checked_sub(1).expect("it stops there in one of the tries");
            points.push(point);
            continue;
        }

        let mut fences = Vec::new();
        for name in [&first, &second, &third] {
            fences.push(honest.acquire(name));
            let before = honest.acquire(&theirs);
            honest.release(&theirs);
            stuck_processes.push(stuck(&scratch, &blocked));
            let after = honest.acquire(&theirs);
            honest.release(&theirs);
            assert!(after > before, "{point:?}");
        }
        let before = honest.acquire(&theirs);

        replacer.signal(Signal::CONT);
        replacer.expect_granted_or_retry(&mine);
        for (name, fence) in
            [&first, &second, &third, &theirs].into_iter().zip(fences.iter().chain([&before]))
        {
            let said = replacer.ask(&format!("inspect {name}"));
            assert_eq!(said, format!("held by {} {fence}, waited for by 0", honest.pid()), "{point:?}");
        }
        let mut last = before;
        for mut process in stuck_processes {
            process.signal(Signal::CONT);
            let fence = process.expect_granted_or_retry(&blocked);
            process.release(&blocked);
            assert!(fence > last, "{point:?}");
            last = fence;
        }
        judge(&scratch);
        drop((honest, replacer));
        let _last = TestProcess::start(&scratch);
        // One stripe, a session and its pipe.
        scratch.files_once(|files| {
            files.len() == 3 && files.iter().filter(|name| name.starts_with("stripe-")).count() == 1
        });
    }
}

/// Two processes that replace the same file, and are stopped, block no other either.
#[test]
fn two_stopped_replacements_block_no_other() {
    let [blocked, first, second, third] = names_of_one_stripe();
    let mut pairs = vec![
        [Point::Announced, Point::DraftWritten],
        [Point::DraftWritten, Point::DraftWritten],
        [Point::MarkedDead, Point::Replaced],
    ];
    let mut tries = TRIES;
    while let Some(points) = pairs.pop() {
        let scratch = Scratch::new();
        let mut bystander = TestProcess::start(&scratch);
        let mut replacers = [&first, &second].map(|name| (TestProcess::start(&scratch), name));
        let mut stuck = stuck(&scratch, &blocked);
        let are_stopped = replacers.iter_mut().zip(points).all(|((replacer, name), point)| {
            replacer.arm(point, Action::Stop);
            replacer.tell(&format!("acquire 60000 {name}"));
            replacer.stops()
        });
        if !are_stopped {
            tries = tries.checked_sub(1).expect("both stop there in one of the tries");
            pairs.push(points);
            continue;
        }
        let begin = Instant::now();
        let fence = bystander.acquire(&third);
        println!("two stopped at {points:?}: another finished in {:?}", begin.elapsed());
        assert!(begin.elapsed() < FINISHES);
        // The last one continues first.
        for (replacer, name) in replacers.iter_mut().rev() {
            replacer.signal(Signal::CONT);
            replacer.expect_granted_or_retry(name);
        }
        stuck.signal(Signal::CONT);
        stuck.expect_granted_or_retry(&blocked);
        let said = replacers[0].0.ask(&format!("inspect {third}"));
        assert_eq!(said, format!("held by {} {fence}, waited for by 0", bystander.pid()));
        judge(&scratch);
    }
}

/// A disk that does not answer delays neither the operation that replaced a stripe, nor any other operation of that process. The old file stays
/// until the new one is on disk.
#[test]
fn a_disk_that_stalls_stops_no_renewal() {
    let scratch = Scratch::new();
    let [blocked, mine] = names_of_one_stripe();
    let mut replacer = TestProcess::start(&scratch);
    replacer.acquire("elsewhere");
    let _stuck = stuck(&scratch, &blocked);
    replacer.arm(Point::Syncing, Action::Stall);
    replacer.acquire(&mine);
    let points = scratch.logs().join("p0.points");
    let give_up = Instant::now() + HANGS;
    while !std::fs::read_to_string(&points).expect("a log").contains("Syncing stalled") {
        assert!(Instant::now() < give_up, "the new file is not synced");
        std::thread::sleep(Duration::from_millis(1));
    }
    for name in ["elsewhere", &mine] {
        assert_eq!(replacer.ask(&format!("renew {name}")), "renewed");
    }
    let stripe = format!("stripe-{:02x}.", index_of(&Name::new(&mine).expect("a name")));
    assert_eq!(scratch.files().iter().filter(|name| name.starts_with(&stripe)).count(), 2);
    replacer.release("elsewhere");
    replacer.release(&mine);
}

/// A stopped holder loses its name to the next waiter after its ttl, and knows when it continues.
#[test]
fn a_stopped_holder_loses_its_name_and_knows() {
    let scratch = Scratch::new();
    let log = Recorder::in_dir(scratch.logs(), "test").expect("a log");
    let (mut holder, mut waiter) = (TestProcess::start(&scratch), TestProcess::start(&scratch));
    holder.tell("acquire 300 orders/42");
    let fence = holder.expect_granted();
    log.fault("stop", Some("p0"), None);
    holder.signal(Signal::STOP);
    let begin = Instant::now();
    assert!(waiter.acquire("orders/42") > fence);
    println!("the ttl of 300 ms was over for the next one in {:?}", begin.elapsed());
    assert!(begin.elapsed() >= Duration::from_millis(200));
    holder.signal(Signal::CONT);
    let said = holder.ask("release orders/42");
    assert!(said.starts_with("released Taken"), "{said}");
    judge(&scratch);
}
