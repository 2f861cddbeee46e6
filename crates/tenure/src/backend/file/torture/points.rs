//! A process that is stopped, or killed, at one chosen point: nobody waits for it, and when it goes on nothing breaks.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tenure_testkit::oracle::{History, Recorder, Report};

use super::puppet::{HANGS, Puppet};
use super::{Scratch, names_of_one_stripe};
use crate::backend::file::faults::{Action, Point};
use crate::backend::file::place::index_of;
use crate::types::name::Name;

/// How often somebody else may be first where a thief is to be stopped, as happens on a busy machine.
const TRIES: usize = 10;
/// On an idle machine it is 100 ms; tests share theirs.
const GETS_THROUGH: Duration = Duration::from_secs(20);

/// A process that has the lock of the stripe, and is stopped.
fn stuck(scratch: &Scratch, name: &str) -> Puppet {
    let mut puppet = Puppet::start(scratch);
    puppet.arm(Point::Locked, Action::Stop);
    puppet.tell(&format!("acquire 60000 {name}"));
    puppet.until_stopped();
    puppet
}

/// A process that was stopped, or killed, at a point of its own operation or, if that is what the point is of, of a steal. Also
/// whoever it stole from, and the fence that it had.
fn victim(
    scratch: &Scratch,
    point: Point,
    action: Action,
    name: &str,
    other: &str,
) -> (Puppet, Option<Puppet>, u64) {
    let mut victim = Puppet::start(scratch);
    let fence = victim.acquire(name);
    let stuck = point.is_of_a_steal().then(|| stuck(scratch, other));
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
fn one_that_is_stopped_at_any_point_is_in_nobodys_way() {
    let [name, other, third] = names_of_one_stripe();
    for point in Point::ALL {
        let scratch = Scratch::new();
        let mut bystander = Puppet::start(&scratch);
        let (mut victim, stuck, fence) = victim(&scratch, point, Action::Stop, &name, &other);

        let begin = Instant::now();
        bystander.acquire(&third);
        let took = begin.elapsed();
        println!("stopped at {point:?}: another got through in {took:?}");
        assert!(took < GETS_THROUGH, "{point:?}: {took:?}");

        victim.signal(Signal::CONT);
        victim.expect("released Done");
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
fn one_that_is_killed_at_any_point_is_in_nobodys_way() {
    let [name, other, third] = names_of_one_stripe();
    for point in Point::ALL {
        let scratch = Scratch::new();
        let mut bystander = Puppet::start(&scratch);
        let (_victim, stuck, fence) = victim(&scratch, point, Action::Kill, &name, &other);

        let begin = Instant::now();
        bystander.acquire(&third);
        assert!(bystander.acquire(&name) > fence, "{point:?}");
        let took = begin.elapsed();
        println!("killed at {point:?}: another had its name in {took:?}");
        assert!(took < GETS_THROUGH, "{point:?}: {took:?}");

        if let Some(stuck) = stuck {
            stuck.signal(Signal::CONT);
            stuck.expect_granted();
        }
        judge(&scratch);
    }
}

/// Whoever is stopped while it replaces a stripe comes back when that has been replaced by others, several times.
#[test]
fn a_thief_that_was_stopped_brings_nothing_old_back() {
    let mut points = vec![Point::Condemned, Point::Announced, Point::Copied, Point::Replaced];
    let mut tries = TRIES;
    while let Some(point) = points.pop() {
        let [theirs, mine, first, second, third, stolen] = names_of_one_stripe();
        let scratch = Scratch::new();
        let mut honest = Puppet::start(&scratch);
        let mut thief = Puppet::start(&scratch);
        let mut hindered = vec![stuck(&scratch, &stolen)];
        thief.arm(point, Action::Stop);
        thief.tell(&format!("acquire 60000 {mine}"));
        if !thief.stops() {
            tries = tries.checked_sub(1).expect("it is stopped there at some time");
            points.push(point);
            continue;
        }

        let mut fences = Vec::new();
        for name in [&first, &second, &third] {
            fences.push(honest.acquire(name));
            let before = honest.acquire(&theirs);
            honest.release(&theirs);
            hindered.push(stuck(&scratch, &stolen));
            let after = honest.acquire(&theirs);
            honest.release(&theirs);
            assert!(after > before, "{point:?}");
        }
        let before = honest.acquire(&theirs);

        thief.signal(Signal::CONT);
        thief.expect_granted();
        for (name, fence) in
            [&first, &second, &third, &theirs].into_iter().zip(fences.iter().chain([&before]))
        {
            let said = thief.ask(&format!("inspect {name}"));
            assert_eq!(said, format!("held by {} {fence}, waited for by 0", honest.pid()), "{point:?}");
        }
        let mut last = before;
        for mut puppet in hindered {
            puppet.signal(Signal::CONT);
            // On a busy machine it may have been stopped for longer than a request lasts.
            let said = puppet.hear();
            if said.contains("too late") {
                continue;
            }
            let fence = said.strip_prefix("granted ").expect("a grant").parse().expect("a fence");
            puppet.release(&stolen);
            assert!(fence > last, "{point:?}");
            last = fence;
        }
        judge(&scratch);
        drop((honest, thief));
        let _last = Puppet::start(&scratch);
        // One stripe, a session and its pipe.
        scratch.files_once(|files| {
            files.len() == 3 && files.iter().filter(|name| name.starts_with("stripe-")).count() == 1
        });
    }
}

/// Two that steal from the same one, and are stopped there, are in nobody's way either.
#[test]
fn two_thieves_that_are_stopped_are_in_nobodys_way() {
    let [stolen, first, second, third] = names_of_one_stripe();
    let mut pairs = vec![
        [Point::Announced, Point::Copied],
        [Point::Copied, Point::Copied],
        [Point::Condemned, Point::Replaced],
    ];
    let mut tries = TRIES;
    while let Some(points) = pairs.pop() {
        let scratch = Scratch::new();
        let mut bystander = Puppet::start(&scratch);
        let mut thieves = [&first, &second].map(|name| (Puppet::start(&scratch), name));
        let stuck = stuck(&scratch, &stolen);
        let are_stopped = thieves.iter_mut().zip(points).all(|((thief, name), point)| {
            thief.arm(point, Action::Stop);
            thief.tell(&format!("acquire 60000 {name}"));
            thief.stops()
        });
        if !are_stopped {
            tries = tries.checked_sub(1).expect("both are stopped there at some time");
            pairs.push(points);
            continue;
        }
        let begin = Instant::now();
        let fence = bystander.acquire(&third);
        println!("two stopped at {points:?}: another got through in {:?}", begin.elapsed());
        assert!(begin.elapsed() < GETS_THROUGH);
        // The last that stole goes on first.
        for (thief, _) in thieves.iter_mut().rev() {
            thief.signal(Signal::CONT);
            thief.expect_granted();
        }
        stuck.signal(Signal::CONT);
        stuck.expect_granted();
        let said = thieves[0].0.ask(&format!("inspect {third}"));
        assert_eq!(said, format!("held by {} {fence}, waited for by 0", bystander.pid()));
        judge(&scratch);
    }
}

/// A disk that does not answer holds up neither the operation that replaced a stripe, nor any other one of that process. What was
/// replaced stays until the copy is on disk.
#[test]
fn a_disk_that_stalls_stops_no_renewal() {
    let scratch = Scratch::new();
    let [stolen, mine] = names_of_one_stripe();
    let mut thief = Puppet::start(&scratch);
    thief.acquire("elsewhere");
    let _stuck = stuck(&scratch, &stolen);
    thief.arm(Point::Syncing, Action::Stall);
    thief.acquire(&mine);
    let points = scratch.logs().join("p0.points");
    let give_up = Instant::now() + HANGS;
    while !std::fs::read_to_string(&points).expect("a log").contains("Syncing stalled") {
        assert!(Instant::now() < give_up, "the copy is not written to disk");
        std::thread::sleep(Duration::from_millis(1));
    }
    for name in ["elsewhere", &mine] {
        assert_eq!(thief.ask(&format!("renew {name}")), "renewed");
    }
    let stripe = format!("stripe-{:02x}.", index_of(&Name::new(&mine).expect("a name")));
    assert_eq!(scratch.files().iter().filter(|name| name.starts_with(&stripe)).count(), 2);
    thief.release("elsewhere");
    thief.release(&mine);
}

/// A holder that is stopped loses its name to the next waiter after its ttl, and knows when it goes on.
#[test]
fn a_stopped_holder_loses_its_name_and_knows() {
    let scratch = Scratch::new();
    let log = Recorder::in_dir(scratch.logs(), "test").expect("a log");
    let (mut holder, mut waiter) = (Puppet::start(&scratch), Puppet::start(&scratch));
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
