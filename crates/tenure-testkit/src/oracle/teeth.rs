//! A checker that never failed proves nothing: broken locks that the oracle must catch.
//!
//! Each is run on many schedules beside the sound lock, in the same world. The sound one must be clean on
//! every seed, and what is known to be wrong with each broken one must be found by the check that is there
//! for it, on nearly every seed: a check that only now and then finds a bug that is always there would miss
//! it in a short run.

use super::simulation::World;
use super::toy_store::Flaw;
use super::{Check, History, Report, Told};
use std::time::Duration;

const SEEDS: u64 = 24;

/// All checks, with bounds that the simulated network can keep.
fn judge(history: &History) -> Report<'_> {
    Report::of(history)
        .updates()
        .told("stop", Told::AfterHeal(Duration::ZERO))
        .idle_at_most(Duration::from_secs(1))
}

/// Runs the flaw on all seeds, and demands that the check fails on at least `share` percent of them.
fn is_caught(flaw: Flaw, loses_data: bool, check: Check, share: u64) {
    let (mut caught, mut grants, mut faults, mut violations) = (0, 0, 0, 0);
    let mut example = None;
    for seed in 0..SEEDS {
        let history = World::run(seed, flaw, loses_data);
        let report = judge(&history);
        let verdict = report.verdicts().iter().find(|verdict| verdict.check == check).expect("asked for");
        (grants, faults) = (grants + history.grants(), faults + history.faults());
        caught += u64::from(!verdict.violations.is_empty());
        violations += verdict.violations.len();
        example = example.or_else(|| verdict.violations.first().map(|v| format!("seed {seed}: {v}")));
    }
    let found = format!("{flaw:?}: {check:?} failed on {caught} of {SEEDS} seeds, {violations} times");
    println!("{found} in {grants} grants and {faults} faults\n{}", example.unwrap_or_default());
    assert!(caught * 100 >= SEEDS * share, "{found}");
}

#[test]
fn the_sound_lock_is_clean() {
    let (mut grants, mut faults, mut rejected, mut updates) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let history = World::run(seed, Flaw::None, false);
        let report = judge(&history);
        assert!(report.failed().is_empty(), "seed {seed}\n{report}");
        (grants, faults) = (grants + history.grants(), faults + history.faults());
        let counted = |what| report.verdicts().iter().map(|verdict| verdict.counted(what)).sum::<u64>();
        (rejected, updates) = (rejected + counted("stale writes rejected"), updates + counted("updates"));
        if seed == 0 {
            println!("{report}");
        }
    }
    println!(
        "{grants} grants, {faults} faults, {rejected} stale writes rejected, {updates} updates on {SEEDS} seeds"
    );
    assert!(grants > 3_000 && faults > 800 && rejected > 200 && updates > 2_500);
}

#[test]
fn the_sound_lock_keeps_its_fences_when_the_store_forgets() {
    let (mut grants, mut faults, mut broken) = (0, 0, 0);
    for seed in 0..SEEDS {
        let history = World::run(seed, Flaw::None, true);
        let report = judge(&history).told("data-loss", Told::AfterHeal(Duration::ZERO));
        report.assert_only_s1();
        (grants, faults) = (grants + history.grants(), faults + history.faults());
        broken += u64::from(report.failed().contains(&Check::S1));
    }
    println!("S1 broke on {broken} of {SEEDS} seeds, S2 never, in {grants} grants and {faults} faults");
    assert!(broken > 0, "a store that forgets should have broken exclusion");
}

#[test]
fn a_release_without_the_token_breaks_exclusion() {
    is_caught(Flaw::DeletesWithoutToken, false, Check::S1, 90);
    is_caught(Flaw::DeletesWithoutToken, false, Check::S3, 90);
}

#[test]
fn a_deadline_on_the_wall_clock_breaks_exclusion() {
    is_caught(Flaw::TrustsTheWallClock, false, Check::S1, 90);
}

#[test]
fn a_waiter_that_does_not_check_again_breaks_exclusion() {
    is_caught(Flaw::DoesNotCheckAgain, false, Check::S1, 90);
    is_caught(Flaw::DoesNotCheckAgain, false, Check::S3, 90);
}

#[test]
fn a_counter_as_fence_goes_back_when_the_store_forgets() {
    is_caught(Flaw::CountsFences, true, Check::S2, 90);
}

#[test]
fn a_retry_that_is_granted_twice_breaks_exclusion() {
    is_caught(Flaw::GrantsARetryTwice, false, Check::S1, 90);
}

#[test]
fn a_deadline_counted_from_the_receipt_breaks_exclusion() {
    is_caught(Flaw::CountsFromReceipt, false, Check::S1, 90);
}

#[test]
fn a_lease_without_end_leaves_everyone_waiting() {
    is_caught(Flaw::NeverExpires, false, Check::L1, 90);
}

#[test]
fn a_loss_that_is_not_told_is_missed() {
    is_caught(Flaw::KeepsLossesQuiet, false, Check::S4, 90);
}

#[test]
fn a_resource_that_ignores_fences_takes_stale_writes() {
    is_caught(Flaw::TakesStaleWrites, false, Check::S2, 90);
}

#[test]
fn one_seed_is_one_history() {
    let run = |seed| World::run(seed, Flaw::None, true).events().to_vec();
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}
