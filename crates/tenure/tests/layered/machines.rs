//! Two machines: a directory each, and one server.

use std::time::Duration;

use tenure::{Degrade, Domain, DomainUrl, ErrorKind, Release};

use crate::scene::{LONG, Machine, NAME, Scene};

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
        assert!(guard.fence() > fence && !guard.degraded());
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
    assert_eq!(here.domain.break_lock(NAME, &holder).await.expect("to break"), Release::Done);
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
        let error = there.adopt(&ticket).await.map(drop).expect_err("it is held elsewhere");
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        there.renew(&ticket).await.expect_err("it is held elsewhere");
        assert_eq!(there.release(&ticket).await.expect("an answer"), Release::Expired);
        let adopted = here.domain.adopt(&ticket).await.expect("nothing was changed");
        adopted.release().await.expect("to release");
    }
}
