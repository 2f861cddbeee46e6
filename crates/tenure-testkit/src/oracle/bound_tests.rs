//! S4, L1, L2 and the report as a whole, on histories written by hand.

use super::check_tests::{A_HOLDS, history, verdict};
use super::{Baseline, Check, Report, Told, Verdict};
use std::time::Duration;

const NS_10: Duration = Duration::from_nanos(10);

#[test]
fn s4_a_certain_loss_is_told_within_its_bound() {
    let told = |says: &str| {
        let lines = format!(
            "{A_HOLDS} \n 40 torturer fault kind=del name=n \n {says} \n 200 torturer fault kind=end"
        );
        verdict(Check::S4, &lines, |report| report.told("del", Told::After(NS_10))).is_clean()
    };
    assert!(told("50 a lost name=n fence=1"));
    assert!(told("50 a released name=n fence=1"));
    assert!(told("50 torturer killed victim=a"));
    assert!(!told("51 a lost name=n fence=1"));
    assert!(!told(""));
}

#[test]
fn s4_a_possible_loss_is_told_at_the_deadline_or_when_the_holder_runs_again() {
    let told = |bound, healed, says: &str| {
        let lines = format!(
            "0 p/1 requested name=n \n 10 p/1 granted name=n fence=1 deadline=100 \n 40 torturer fault kind=stop victim=p
             {healed} torturer healed kind=stop victim=p \n {says} \n 500 torturer fault kind=end"
        );
        verdict(Check::S4, &lines, |report| report.told("stop", bound)).is_clean()
    };
    let (at_deadline, at_heal) = (Told::AfterDeadline(NS_10), Told::AfterHeal(NS_10));
    assert!(told(at_deadline, 150, "110 p/1 lost name=n fence=1"));
    assert!(!told(at_deadline, 150, "111 p/1 lost name=n fence=1"));
    assert!(told(at_deadline, 60, "99 p/1 released name=n fence=1"), "nothing was lost");
    assert!(told(at_heal, 150, "160 p/1 lost name=n fence=1"));
    assert!(!told(at_heal, 150, "161 p/1 lost name=n fence=1"));
    assert!(told(at_heal, 60, "110 p/1 lost name=n fence=1"), "it ran again before its deadline");
    assert!(!told(at_heal, 60, "111 p/1 lost name=n fence=1"));
    let again = "155 torturer fault kind=stop victim=p \n 300 torturer healed kind=stop victim=p \n";
    assert!(told(at_heal, 150, &format!("{again} 310 p/1 lost name=n fence=1")), "stopped again");
    assert!(!told(at_heal, 150, &format!("{again} 311 p/1 lost name=n fence=1")));
}

#[test]
fn s4_who_released_in_time_lost_nothing() {
    let losses = |released| {
        let lines = format!(
            "{A_HOLDS} \n 40 t fault kind=cut victim=a \n {released} a released name=n fence=1 \n 500 t fault kind=end"
        );
        let ask = Told::AfterDeadline(NS_10);
        verdict(Check::S4, &lines, |report| report.told("cut", ask)).counted("losses")
    };
    assert_eq!((losses(99), losses(101)), (0, 1));
}

#[test]
fn s4_faults_of_others_do_not_count_and_the_end_of_the_log_is_no_proof() {
    fn ask(report: Report<'_>) -> Report<'_> {
        report.told("del", Told::After(NS_10))
    }
    for other in ["kind=del name=m", "kind=del victim=b", "kind=other"] {
        let lines = format!("{A_HOLDS} \n 40 torturer fault {other} \n 200 torturer fault kind=end");
        assert!(verdict(Check::S4, &lines, ask).nothing_checked.is_some(), "{other}");
    }
    let ended = verdict(Check::S4, &format!("{A_HOLDS} \n 40 torturer fault kind=del"), ask);
    assert_eq!((ended.violations.len(), ended.counted("ended too early to tell")), (0, 1));
}

/// `a` holds from 10 to 100; `b` asked at 5 and is granted at `granted`.
fn idle(granted: u64, faults: &str) -> Verdict {
    let lines = format!(
        "{A_HOLDS} \n 5 b requested name=n \n {granted} b granted name=n fence=2 deadline=900 \n {faults}"
    );
    verdict(Check::L1, &lines, |report| report.idle_at_most(NS_10))
}

#[test]
fn l1_a_name_is_not_free_for_long_while_one_waits() {
    assert!(idle(110, "").is_clean(), "a long hold is not idle time");
    let late = idle(111, "");
    assert_eq!(late.violations[0].why, "`n` was free for 11ns while one waited");
    assert!(!idle(110, "90 torturer killed victim=a").is_clean(), "a dead holder does not hold");
    let forever = format!("{A_HOLDS} \n 5 b requested name=n \n 200 torturer fault kind=end");
    fn ask(report: Report<'_>) -> Report<'_> {
        report.idle_at_most(NS_10)
    }
    assert!(!verdict(Check::L1, &forever, ask).is_clean());
    assert!(verdict(Check::L1, &format!("{forever} \n 105 b gave_up name=n"), ask).is_clean());
    assert!(verdict(Check::L1, &format!("{forever} \n 105 t killed victim=b"), ask).is_clean());
}

#[test]
fn l1_the_clock_starts_again_when_a_fault_of_the_store_ends() {
    let down = "105 torturer fault kind=down \n 150 torturer healed kind=down";
    assert!(idle(160, down).is_clean());
    assert!(!idle(161, down).is_clean());
    assert!(!idle(160, &down.replace("down", "down name=m")).is_clean(), "another name");
    assert!(!idle(160, "105 torturer fault kind=flushall").is_clean(), "an instant takes no time");
    let stopped = |victim| down.replace("down", &format!("stop victim={victim}"));
    assert!(idle(160, &stopped("b")).is_clean(), "b could not take it");
    assert!(!idle(160, &stopped("a")).is_clean(), "b could");
}

#[test]
fn l2_what_was_taken_is_given_back() {
    let before = Baseline::new().with("keys", 3).with("tasks", 1);
    let compare = |after: &Baseline| {
        let lines = verdict(Check::L2, A_HOLDS, |report| report.baseline(&before, after));
        (lines.violations.len(), lines.is_clean())
    };
    assert_eq!(compare(&before.clone()), (0, true));
    assert_eq!(compare(&before.clone().with("keys", 4)), (1, false));
    assert_eq!(compare(&before.clone().with("keys", 2)), (1, false), "less is no better");
    assert_eq!(compare(&Baseline::new().with("keys", 3).with("files", 1)), (2, false));
    let none = verdict(Check::L2, A_HOLDS, |report| report.baseline(&Baseline::new(), &Baseline::new()));
    assert!(none.nothing_checked.is_some());
}

#[test]
fn a_history_without_grants_proves_nothing() {
    let history = history("0 a requested name=n \n 9 a gave_up name=n");
    let report = Report::of(&history);
    assert_eq!(report.failed(), [Check::Log, Check::S1, Check::S2]);
    assert!(report.to_string().contains("nothing was checked: the history has no grants"), "{report}");
    assert!(panics(|| report.assert_clean()) && panics(|| report.assert_only_s1()));
}

#[test]
fn only_exclusion_is_excused_by_a_store_that_lost_its_data() {
    let overlap = |fence| {
        format!("{A_HOLDS} \n 12 b requested name=n \n 50 b granted name=n fence={fence} deadline=300")
    };
    let breaks = |lines: &str| {
        let history = history(lines);
        let report = Report::of(&history);
        (panics(|| report.assert_clean()), panics(|| report.assert_only_s1()))
    };
    assert_eq!(breaks(A_HOLDS), (false, false));
    let of_nothing = history(A_HOLDS);
    assert!(panics(|| Report::of(&of_nothing).updates().assert_only_s1()), "S3 had nothing to look at");
    assert_eq!(breaks(&overlap(2)), (true, false));
    assert_eq!(breaks(&overlap(1)), (true, true), "the fence was granted twice");
}

fn panics(assertion: impl FnOnce()) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(assertion)).is_err()
}

#[test]
fn the_numbers_stand_beside_every_zero() {
    let history = history(&format!("{A_HOLDS} \n 40 torturer fault kind=del \n 50 a lost name=n fence=1"));
    let report = Report::of(&history).told("del", Told::After(NS_10));
    for line in report.to_string().lines() {
        assert!(line.contains("1 grants") && line.contains("1 faults"), "{report}");
    }
}
