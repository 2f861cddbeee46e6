//! Two machines: a directory each, and one server.

use std::time::{Duration, Instant};

use tenure::{Degrade, Domain, DomainUrl, ErrorKind, Release};
use tenure_testkit::dice::Dice;
use tenure_testkit::oracle::{MemoryLog, Recorder, Report};
use tenure_testkit::redis::Proxy;

use crate::layered::scene::{LONG, Machine, NAME, Scene};

/// A client on another machine.
async fn elsewhere(scene: &Scene, machine: &Machine, degrade: Degrade) -> Domain {
    std::fs::create_dir_all(machine.path()).expect("a directory");
    let outer = format!("{}?ttl={}s", scene.server.url(), LONG.as_secs());
    let url = DomainUrl::layered(outer, machine.url(), degrade).expect("a valid URL");
    Domain::open(url).await.expect("to open")
}

// R0.2, R1.1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn they_exclude_each_other_and_hand_over() {
    let (scene, machine) = (Scene::new(), Machine::new());
    let here = scene.peer(Degrade::Never, LONG).await;
    let there = elsewhere(&scene, &machine, Degrade::Allow).await;
    let mut guard = here.acquire().await;
    for round in 0..6 {
        let next = if round % 2 == 0 { &there } else { &here.domain };
        assert!(next.lock(NAME).try_acquire().await.expect("an answer").ok().is_none(), "two hold it");
        let waiting = tokio::spawn({
            let lock = next.lock(NAME);
            async move { lock.acquire().await }
        });
        while next.inspect(NAME).await.expect("to look").waiters.is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let fence = guard.fence();
        guard.release().await.expect("to release");
        guard = waiting.await.expect("no panic").expect("its turn");
        assert!(guard.fence() > fence && !guard.is_degraded());
    }
}

// R2.8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn force_reaches_the_other_machine() {
    let (scene, machine) = (Scene::new(), Machine::new());
    let here = scene.peer(Degrade::Never, LONG).await;
    let there = elsewhere(&scene, &machine, Degrade::Never).await;
    let guard = here.acquire().await;
    let taken = there.lock(NAME).take_over().await.expect("to take over");
    assert!(taken.fence() > guard.fence());
    guard.lost().await;
    drop(guard);
    let holder = here.domain.inspect(NAME).await.expect("to look").holder.expect("it is held");
    assert_eq!(here.domain.break_lock(NAME, &holder).await.expect("to break"), Release::Released);
    taken.lost().await;
    drop(taken);
    drop(there.lock(NAME).acquire().await.expect("it is free"));
}

// R2.4: a ticket is good on its own machine, and is not used up by another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ticket_of_another_machine_is_refused_and_left_alone() {
    let (scene, machine) = (Scene::new(), Machine::new());
    let here = scene.peer(Degrade::Never, LONG).await;
    for degrade in [Degrade::Never, Degrade::Allow] {
        let there = elsewhere(&scene, &machine, degrade).await;
        let ticket = here.acquire().await.detach().await.expect("to detach");
        let error = ticket.adopt(&there).await.map(drop).expect_err("it is held elsewhere");
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        ticket.renew(&there).await.expect_err("it is held elsewhere");
        assert_eq!(ticket.release(&there).await.expect("an answer"), Release::Gone);
        let adopted = ticket.adopt(&here.domain).await.expect("nothing was changed");
        adopted.release().await.expect("to release");
    }
}

/// Takes the name again and again, and writes down for how long it was believed to be held, and not degraded.
async fn work(domain: Domain, log: Recorder, mut dice: Dice, end: Instant) -> (u64, u64) {
    let (mut whole, mut degraded) = (0, 0);
    while Instant::now() < end {
        log.requested(NAME);
        let patience = Duration::from_millis(100 + dice.roll(300));
        let attempt = domain.lock(NAME).try_acquire_for(patience).await;
        let Some(guard) = attempt.expect("a directory is there").ok() else {
            log.gave_up(NAME);
            continue;
        };
        let fence = guard.fence().get();
        // In this order: what is believed longer is known to be degraded.
        let proven = || Some(guard.remaining()).filter(|_| !guard.is_degraded() && guard.is_held());
        let mut is_whole = match proven() {
            Some(left) => {
                log.granted(NAME, fence, || left);
                true
            }
            None => {
                log.gave_up(NAME);
                false
            }
        };
        *(if is_whole { &mut whole } else { &mut degraded }) += 1;
        let long = dice.roll(12) == 0;
        let over =
            Instant::now() + Duration::from_millis(if long { dice.roll(1_800) } else { dice.roll(20) });
        while is_whole && Instant::now() < over {
            tokio::time::sleep(Duration::from_millis(5)).await;
            match proven() {
                Some(left) => log.renewed(NAME, fence, || left),
                None => {
                    log.lost(NAME, fence);
                    is_whole = false;
                }
            }
        }
        if is_whole {
            log.released(NAME, fence);
        }
        drop(guard);
    }
    (whole, degraded)
}

// R0.2: S1 and S2 between machines, for whoever does not say that it is degraded, while each loses sight of Redis.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_not_degraded_excludes_other_machines() {
    let (scene, machine, log) = (Scene::new(), Machine::new(), MemoryLog::new());
    std::fs::create_dir_all(machine.path()).expect("a directory");
    let (end, faults) = (Instant::now() + Duration::from_secs(6), log.recorder("network"));
    let (mut workers, mut proxies) = (Vec::new(), Vec::new());
    for (number, inner) in
        [scene.machine.url(), scene.machine.url(), machine.url(), machine.url()].iter().enumerate()
    {
        let proxy = Proxy::new(&scene.server);
        let domain =
            Domain::layered(format!("{}?ttl=1s", proxy.url()), inner, Degrade::Allow).await.expect("to open");
        let dice = Dice(number as u64 * 77 + 1);
        workers.push(tokio::spawn(work(domain, log.recorder(&format!("client-{number}")), dice, end)));
        proxies.push(proxy);
    }
    let mut dice = Dice(4_711);
    while Instant::now() < end {
        let proxy = &proxies[dice.index(4)];
        faults.fault("network", None, None);
        if dice.roll(2) == 0 {
            proxy.cut()
        } else {
            proxy.black_hole()
        }
        tokio::time::sleep(Duration::from_millis(100 + dice.roll(1_500))).await;
        proxy.heal();
        faults.healed("network", None, None);
        tokio::time::sleep(Duration::from_millis(dice.roll(400))).await;
    }
    let (mut whole, mut degraded) = (0, 0);
    for worker in workers {
        let (some, others) = worker.await.expect("no panic");
        (whole, degraded) = (whole + some, degraded + others);
    }
    let history = log.history();
    let report = Report::of(&history);
    println!("{whole} grants in both stores, {degraded} degraded\n{report}");
    report.assert_clean();
    assert!(whole > 0 && degraded > 0);
}
