//! FAULTS 10: Sentinel makes another server the master, in each of the ways in which that happens.
//!
//! Without `replicas` the new master may not know the last leases: exclusion may break (it is counted), and fences grow. With
//! `replicas=all` nothing breaks. Then nobody gets a lock while a server is away, so each fault ends with a server that follows again.

use std::time::{Duration, Instant};

use tenure_testkit::patience::PATIENCE;
use tenure_testkit::redis::{RedisServer, Trio};

use crate::failover::cell::{Cell, TTL, pass};

const PLAIN: &str = "";
const ALL: &str = "&replicas=all";

fn url(trio: &Trio, replicas: &str) -> String {
    format!("{}?ttl={}s&timeout=500ms{replicas}", trio.url(), TTL.as_secs())
}

fn start(what: &str, trio: &Trio, replicas: &str) -> Cell {
    let cell = Cell::start(&format!("{what}{replicas}"), |_| url(trio, replicas));
    cell.wait_for_service();
    cell
}

/// A server that is no master any more follows the one that is.
fn rejoin(trio: &Trio, server: &RedisServer) {
    trio.make_follow(server);
    trio.wait_until_complete();
}

/// How many scripts a server has executed.
fn scripts(server: &RedisServer) -> u64 {
    let stats = server.question(&["INFO", "commandstats"]).text();
    let calls = stats.lines().filter_map(|line| line.strip_prefix("cmdstat_eval")?.split("calls=").nth(1));
    calls.filter_map(|calls| calls.split(',').next()?.parse::<u64>().ok()).sum()
}

fn killed(replicas: &str) {
    let trio = Trio::builder().down_after(Duration::from_secs(1)).start();
    let mut cell = start("master killed", &trio, replicas);
    while cell.goes_on() {
        cell.work_for(500, 2_500);
        let old = trio.master();
        cell.failover(
            || old.kill(),
            |_| {
                trio.wait_for_another_than(old.port());
                if !replicas.is_empty() {
                    old.restart();
                    rejoin(&trio, old);
                }
                0
            },
        );
        if replicas.is_empty() {
            cell.work_for(500, 1_000);
            old.restart();
            rejoin(&trio, old);
        }
    }
    cell.judge(!replicas.is_empty());
}

/// The service by which every second process knows the master. Nobody but the one Sentinel that they know has heard of it, so that they
/// never hear of a failover, and still reach the old master.
const STALE: &str = "stale";

/// They take this server for the master from now on.
fn believe_in(trio: &Trio, master: &RedisServer) {
    let (deaf, port) = (&trio.sentinels()[2], master.port().to_string());
    deaf.command(&["SENTINEL", "REMOVE", STALE]);
    assert_eq!(deaf.command(&["SENTINEL", "MONITOR", STALE, "127.0.0.1", &port, "9"]).text(), "OK");
}

fn start_half_deaf(what: &str, trio: &Trio, replicas: &str) -> Cell {
    believe_in(trio, trio.master());
    // It finds the replicas one by one; a domain that is open remembers how many there were.
    let (known, begin) = (trio.servers().len() - 1, Instant::now());
    while trio.sentinels()[2].command(&["SENTINEL", "REPLICAS", STALE]).items().len() < known {
        assert!(begin.elapsed() < PATIENCE, "it does not find {known} replicas");
        std::thread::sleep(Duration::from_millis(10));
    }
    let all = trio.url();
    let place = all.split("://").nth(1).expect("hosts and a service");
    let deaf = format!("127.0.0.1:{}/{STALE}", trio.sentinels()[2].port());
    let cell = Cell::start(&format!("{what}{replicas}"), |number| match number % 2 {
        0 => url(trio, replicas),
        _ => url(trio, replicas).replace(place, &deaf),
    });
    cell.wait_for_service();
    cell
}

fn paused(replicas: &str) {
    let trio = Trio::builder().down_after(Duration::from_secs(1)).start();
    let mut cell = start_half_deaf("master paused", &trio, replicas);
    while cell.goes_on() {
        cell.work_for(500, 2_500);
        let old = trio.master();
        cell.failover(
            || old.stop(),
            |dice| {
                trio.wait_for_another_than(old.port());
                pass(dice, 1, 1_000);
                old.cont();
                let before = scripts(old);
                pass(dice, 1_500, 1_500);
                let after = scripts(old);
                rejoin(&trio, old);
                believe_in(&trio, trio.master());
                after - before
            },
        );
    }
    cell.judge(!replicas.is_empty());
}

/// One replica does not hear of the master any more, and is the one that Sentinel prefers, when it is told to replace the master and
/// when it has to.
fn behind(replicas: &str) {
    let trio = Trio::builder().ranked().down_after(Duration::from_secs(1)).start();
    let mut cell = start_half_deaf("replica cut off and promoted", &trio, replicas);
    for is_ordered in [true, false].into_iter().cycle() {
        cell.work_for(500, 1_500);
        let (old, next) = (trio.master(), trio.preferred());
        next.command(&["REPLICAOF", "127.0.0.1", "1"]);
        // So that there are leases which it does not know, or which end meanwhile.
        cell.work_for(800, 1_000);
        let before = scripts(old);
        cell.failover(
            || match is_ordered {
                true => order(&trio),
                false => old.kill(),
            },
            |dice| {
                trio.wait_for_another_than(old.port());
                assert_eq!(trio.master().port(), next.port(), "the one that was behind");
                pass(dice, 500, 1_000);
                let stale = if is_ordered { scripts(old) - before } else { 0 };
                if !is_ordered {
                    old.restart();
                }
                rejoin(&trio, old);
                believe_in(&trio, next);
                stale
            },
        );
        if !cell.goes_on() {
            break;
        }
    }
    cell.judge(!replicas.is_empty());
}

fn order(trio: &Trio) {
    let ordered = trio.sentinels()[1].command(&["SENTINEL", "FAILOVER", trio.service()]);
    assert_eq!(ordered.text(), "OK");
}

fn ordered(replicas: &str) {
    let trio = Trio::start();
    let mut cell = start("failover ordered", &trio, replicas);
    while cell.goes_on() {
        cell.work_for(500, 2_000);
        let old = trio.master();
        cell.failover(
            || {
                order(&trio);
                // Until then the old one serves.
                trio.wait_for_another_than(old.port());
            },
            |dice| {
                let before = scripts(old);
                pass(dice, 500, 1_000);
                let after = scripts(old);
                rejoin(&trio, old);
                after - before
            },
        );
    }
    cell.judge(!replicas.is_empty());
}

// B1
#[test]
fn the_master_is_killed() {
    killed(PLAIN);
}

// B1
#[test]
#[ignore = "make chaos"]
fn the_master_is_killed_and_all_replicas_acknowledge() {
    killed(ALL);
}

// B1
#[test]
#[ignore = "make chaos"]
fn the_master_is_paused() {
    paused(PLAIN);
}

// B1
#[test]
fn the_master_is_paused_and_all_replicas_acknowledge() {
    paused(ALL);
}

// B1
#[test]
#[ignore = "make chaos"]
fn a_replica_is_cut_off_and_promoted() {
    behind(PLAIN);
}

// B1
#[test]
fn a_replica_is_cut_off_and_promoted_and_all_replicas_acknowledge() {
    behind(ALL);
}

// B1
#[test]
fn a_failover_is_ordered() {
    ordered(PLAIN);
}

// B1
#[test]
#[ignore = "make chaos"]
fn a_failover_is_ordered_and_all_replicas_acknowledge() {
    ordered(ALL);
}
