//! Log, S1, S2 and S3, on histories written by hand: one that it must pass beside each that it must not.
//!
//! Histories are lines of the log format, so that a test reads like what a person would find in the files.

use super::{Check, Event, History, Report, Verdict, log};

pub(super) fn history(lines: &str) -> History {
    let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
    History::from_events(lines.map(|line| log::decode(line).expect(line)).collect::<Vec<Event>>())
}

/// The verdict of one check, if all others are content.
pub(super) fn verdict(
    check: Check,
    lines: &str,
    ask: impl for<'h> FnOnce(Report<'h>) -> Report<'h>,
) -> Verdict {
    let history = history(lines);
    let report = ask(Report::of(&history));
    assert!(report.failed().iter().all(|failed| *failed == check), "{report}");
    report.verdicts().iter().find(|verdict| verdict.check == check).expect("asked for").clone()
}

pub(super) fn violations(check: Check, lines: &str) -> usize {
    verdict(check, lines, |report| report).violations.len()
}

pub(super) const A_HOLDS: &str = "0 a requested name=n \n 10 a granted name=n fence=1 deadline=100";

#[test]
fn s1_believed_intervals_may_touch_but_not_overlap() {
    let granted_to_b =
        |at| format!("{A_HOLDS} \n 5 b requested name=n \n {at} b granted name=n fence=2 deadline=300");
    assert_eq!(violations(Check::S1, &granted_to_b(100)), 0);
    let overlap = verdict(Check::S1, &granted_to_b(99), |report| report);
    assert_eq!(overlap.violations.len(), 1);
    assert_eq!(overlap.violations[0].why, "two believe to hold `n`, for 1ns");
    let clients: Vec<_> = overlap.violations[0].events.iter().map(|e| e.client.as_str()).collect();
    assert_eq!(clients, ["a", "b"]);
}

#[test]
fn s1_belief_ends_with_the_release_call_the_loss_or_the_death() {
    for (end, client) in
        [("released name=n fence=1", "a"), ("lost name=n fence=1", "a"), ("killed victim=a", "torturer")]
    {
        let ended_at = |at| {
            format!(
                "{A_HOLDS} \n {at} {client} {end} \n 5 b requested name=n \n 50 b granted name=n fence=2 deadline=300"
            )
        };
        assert_eq!(violations(Check::S1, &ended_at(50)), 0, "{end}");
        assert_eq!(violations(Check::S1, &ended_at(51)), 1, "{end}");
    }
}

#[test]
fn s1_a_kill_concerns_the_process_and_what_it_said_before_it_died() {
    let process = |victim, last_word| {
        format!(
            "0 p1/t1 requested name=n \n 10 p1/t1 granted name=n fence=1 deadline=100 \n 40 torturer killed victim={victim}
             {last_word} p1/t1 read name=n value=0 \n 5 b requested name=n \n 50 b granted name=n fence=2 deadline=300"
        )
    };
    assert_eq!(violations(Check::S1, &process("p1", 30)), 0);
    assert_eq!(violations(Check::S1, &process("p1/t1", 45)), 0);
    assert_eq!(violations(Check::S1, &process("p1", 60)), 1, "it still spoke at 60");
    assert_eq!(violations(Check::S1, &process("p1/t", 30)), 1, "another client");
    assert_eq!(violations(Check::S1, &process("p", 30)), 1, "another process");
}

#[test]
fn s1_a_renewal_counts_from_the_beginning_even_if_written_down_late() {
    let renewed = |at, granted| {
        format!(
            "{A_HOLDS} \n {at} a renewed name=n fence=1 deadline=200 \n 5 b requested name=n \n {granted} b granted name=n fence=2 deadline=300"
        )
    };
    assert_eq!(violations(Check::S1, &renewed(90, 200)), 0);
    assert_eq!(violations(Check::S1, &renewed(90, 199)), 1);
    assert_eq!(violations(Check::S1, &renewed(150, 120)), 1, "b was inside when a came back to life");
    let shorter = format!(
        "{A_HOLDS} \n 20 a renewed name=n fence=1 deadline=30 \n 5 b requested name=n \n 40 b granted name=n fence=2 deadline=300"
    );
    assert_eq!(violations(Check::S1, &shorter), 1, "a renewal never shortens");
}

#[test]
fn s1_every_overlap_with_a_long_hold_is_found_and_other_names_are_not_concerned() {
    let inside = "11 b requested name=n \n 20 b granted name=n fence=2 deadline=30
                  31 c requested name=n \n 40 c granted name=n fence=3 deadline=50";
    assert_eq!(violations(Check::S1, &format!("{A_HOLDS} \n {inside}")), 2);
    assert_eq!(violations(Check::S1, &format!("{A_HOLDS} \n {}", inside.replace("name=n", "name=m"))), 0);
}

#[test]
fn s1_one_client_granted_twice_overlaps_with_itself() {
    let twice = format!("{A_HOLDS} \n 15 a requested name=n \n 20 a granted name=n fence=2 deadline=120");
    assert_eq!(violations(Check::S1, &twice), 1);
}

#[test]
fn s1_a_grant_that_had_expired_on_arrival_is_counted_and_not_believed() {
    let late = "0 a requested name=n \n 5 b requested name=n \n 150 a granted name=n fence=1 deadline=100
                120 b granted name=n fence=2 deadline=300";
    let verdict = verdict(Check::S1, late, |report| report);
    assert_eq!((verdict.violations.len(), verdict.counted("of them expired on arrival")), (0, 1));
}

#[test]
fn s1_live_grants_out_of_order_are_no_proof_of_exclusion() {
    // b's window [5, 60] reaches back before a's grant: the store may have granted b first
    let inverted =
        "0 a requested name=n \n 50 a granted name=n fence=7 deadline=100 \n 55 a released name=n fence=7
                    5 b requested name=n \n 60 b granted name=n fence=6 deadline=300";
    assert_eq!(verdict(Check::S1, inverted, |report| report).counted("out of order"), 1);
}

#[test]
fn s2_fences_grow_where_the_order_is_certain() {
    let grants = |requested, fence, since| {
        format!(
            "0 a requested name=n \n 50 a granted name=n fence=7 deadline=100 \n 55 a released name=n fence=7
             {requested} b requested name=n \n 60 b granted name=n fence={fence} deadline=300{since}"
        )
    };
    assert_eq!(violations(Check::S2, &grants(51, 8, "")), 0);
    assert_eq!(violations(Check::S2, &grants(51, 6, "")), 1);
    assert_eq!(
        violations(Check::S2, &grants(5, 6, " since=51")),
        1,
        "the client knows better than its request"
    );
    assert_eq!(violations(Check::S2, &grants(5, 7, "")), 1, "no two grants share a fence");
}

#[test]
fn s2_a_fence_that_went_back_is_seen_across_other_grants() {
    let lines = "0 a requested name=n \n 10 a granted name=n fence=9 deadline=20 \n 21 b requested name=n
                 30 b granted name=n fence=10 deadline=40 \n 41 c requested name=n
                 50 c granted name=n fence=3 deadline=60 \n 61 d requested name=n \n 70 d granted name=n fence=4 deadline=80";
    assert_eq!(violations(Check::S2, lines), 2, "3 and 4 after 10");
}

#[test]
fn s2_the_resource_takes_no_stale_write() {
    let writes = |first: &str, second: &str| {
        format!(
            "{A_HOLDS} \n 20 a released name=n fence=1 \n 21 b requested name=n \n 30 b granted name=n fence=2 deadline=90
             40 b {first} \n 41 a {second}"
        )
    };
    let (high, low) = ("accepted name=n fence=2 seq=1", "accepted name=n fence=1 seq=2");
    assert_eq!(violations(Check::S2, &writes(high, low)), 1);
    assert_eq!(
        violations(Check::S2, &writes(high, "accepted name=n fence=2 seq=2")),
        0,
        "one fence, two writes"
    );
    assert_eq!(
        violations(Check::S2, &writes("accepted name=n fence=2 seq=2", "accepted name=n fence=1 seq=1")),
        0
    );
    assert_eq!(
        violations(Check::S2, &writes(high, "accepted name=n fence=2 seq=1")),
        1,
        "one number, two writes"
    );
    assert_eq!(violations(Check::S2, &writes(high, "accepted name=n fence=3 seq=2")), 1, "never granted");
    assert_eq!(violations(Check::S2, &writes(high, "rejected name=n fence=2 last=2")), 1, "not stale");
    let rejected = verdict(Check::S2, &writes(high, "rejected name=n fence=1 last=2"), |report| report);
    assert_eq!((rejected.violations.len(), rejected.counted("stale writes rejected")), (0, 1));
}

/// `a` adds one at 20 and `b` reads `value`, writes the next, and the end is `last`.
fn counted(a_wrote: &str, b_read: u64, last: u64) -> Verdict {
    let lines = format!(
        "{A_HOLDS} \n 15 a read name=n value=0 \n {a_wrote}
         5 b requested name=n \n 100 b granted name=n fence=2 deadline=300 \n 110 b read name=n value={b_read}
         120 b wrote name=n value={} \n 400 torturer final name=n value={last}",
        b_read + 1
    );
    verdict(Check::S3, &lines, |report| report.updates())
}

#[test]
fn s3_an_update_that_was_overwritten_is_lost() {
    assert!(counted("20 a wrote name=n value=1", 1, 2).is_clean());
    let lost = counted("20 a wrote name=n value=1", 0, 1);
    assert!(lost.violations[0].why.contains("was lost: [1] was there, 0 was read"), "{lost}");
    assert!(!counted("20 a wrote name=n value=1", 1, 1).is_clean(), "the final value counts");
    assert!(!counted("20 a wrote name=n value=1", 5, 6).is_clean(), "5 came from nowhere");
}

#[test]
fn s3_a_client_that_was_killed_may_have_written_and_a_stale_one_may_overwrite() {
    assert!(counted("20 torturer killed victim=a", 0, 1).is_clean());
    assert!(counted("20 torturer killed victim=a", 1, 2).is_clean());
    assert!(!counted("20 torturer killed victim=a", 2, 3).is_clean());
    assert!(!counted("20 a released name=n fence=1", 1, 2).is_clean(), "it released without a write");
    let stale = counted("130 a wrote name=n value=1", 0, 1);
    assert_eq!((stale.is_clean(), stale.counted("made after the loss")), (true, 1));
}

#[test]
fn s3_the_end_must_fit_the_chain_and_its_length() {
    let two =
        counted("20 a wrote name=n value=1 \n 25 a read name=n value=1 \n 30 a wrote name=n value=9", 9, 10);
    assert_eq!(two.violations.len(), 1, "a chain, but 10 is not 3 updates: {two}");
    assert!(
        !counted("130 a wrote name=n value=1", 0, 7).is_clean(),
        "after a stale write 1 is possible, 7 is not"
    );
    let went_on = counted("20 a released name=n fence=1 \n 30 torturer killed victim=a", 1, 2);
    assert!(!went_on.is_clean(), "it was not killed between the read and the write");
}

#[test]
fn s3_needs_a_final_value_reads_and_updates() {
    let update = format!("{A_HOLDS} \n 15 a read name=n value=0 \n 20 a wrote name=n value=1");
    assert_eq!(verdict(Check::S3, &update, |report| report.updates()).violations.len(), 1, "no final value");
    let blind = format!("{update} \n 21 a wrote name=n value=2 \n 30 t final name=n value=1");
    assert_eq!(
        verdict(Check::S3, &blind, |report| report.updates()).violations.len(),
        1,
        "a write without a read"
    );
    assert!(verdict(Check::S3, A_HOLDS, |report| report.updates()).nothing_checked.is_some());
}

#[test]
fn the_log_must_make_sense() {
    for nonsense in [
        "5 b granted name=m fence=1 deadline=9",
        "5 b released name=n fence=1",
        "20 a lost name=n fence=2",
        "20 a lost name=n fence=1 \n 21 a renewed name=n fence=1 deadline=30",
        "20 a released name=n fence=1 \n 21 a renewed name=n fence=1 deadline=30",
    ] {
        assert_eq!(violations(Check::Log, &format!("{A_HOLDS} \n {nonsense}")), 1, "{nonsense}");
    }
    let natural = "20 a lost name=n fence=1 \n 21 a released name=n fence=1 \n 22 a lost name=n fence=1";
    assert_eq!(violations(Check::Log, &format!("{A_HOLDS} \n {natural}")), 0);
}
