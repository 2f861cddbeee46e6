//! The list of all cases, with what each needs of the store and of the fixture.
//!
//! It is the only list: the tests of every backend, the index for the report, and the functions that run a case are made from it.

use super::fixture::{Ability, Doing, Fixture, Need};
use super::runner::Suite;

/// Hands the list to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! each_conformance_case {
    ($($callback:tt)+) => {
        $($callback)+! {
            exclusion {
                clients_exclude_each_other: [];
                tasks_of_a_client_exclude_each_other: [];
                other_names_are_not_concerned: [];
                no_update_is_lost_between_clients: [];
                no_update_is_lost_between_tasks_with_other_terms: [];
                no_update_is_lost_when_tasks_give_up: [];
                an_unrenewed_lease_excludes_while_it_lasts: [];
            }
            waiting {
                first_come_first_served_between_clients: [Fifo];
                first_come_first_served_within_a_client: [];
                nobody_overtakes_the_queue: [Fifo];
                a_waiter_keeps_its_place_past_its_ttl: [Fifo];
                a_dead_waiter_is_skipped: [Fifo, DieWaiting];
                a_row_of_dead_waiters_is_skipped: [Fifo, DieWaiting];
                a_dead_waiter_leaves_nothing_behind: [DieWaiting];
                a_waiter_whose_time_is_up_leaves_the_queue: [];
                a_waiter_that_is_dropped_leaves_the_queue: [];
                one_that_gives_up_costs_nobody_a_place: [Fifo];
                a_grant_to_one_that_gave_up_goes_to_the_next: [Fifo];
                a_grant_to_one_that_gave_up_is_given_back: [];
                a_waiter_that_is_not_polled_holds_nobody_up: [Fifo];
                everyone_who_waits_is_served: [];
                trying_does_not_wait: [];
                a_wait_with_a_limit_succeeds_within_it: [];
                the_limit_of_a_task_concerns_no_other: [];
            }
            keeping {
                renewal_keeps_a_lease_past_several_ttls: [];
                a_lease_that_was_handed_over_is_kept: [];
                a_lease_always_has_an_end: [];
                the_default_lease_is_ten_seconds: [];
                the_name_of_a_dead_holder_goes_to_the_next: [DieHolding];
                the_name_of_a_dead_holder_is_free_without_a_next: [DieHolding];
                a_stale_lock_is_not_kept_alive: [Force];
                max_hold_ends_renewal: [];
                max_hold_may_be_shorter_than_the_ttl: [];
                without_renewal_a_lease_ends_after_its_ttl: [];
                renewal_by_hand_extends: [];
                renewal_never_shortens: [];
                an_expiry_is_noticed_by_those_who_wait: [Fifo];
            }
            loss {
                a_holder_is_told_before_another_can_hold: [CutOff];
                an_unrenewed_holder_is_told_before_another_can_hold: [];
                a_holder_out_of_reach_of_its_store_is_told_why: [CutOff];
                a_short_outage_costs_no_lease: [CutOff];
                a_refused_renewal_is_told: [Force, CutOff];
                a_lease_that_is_gone_is_told: [Force, CutOff];
                a_loss_is_pushed_to_its_holder: [Force, LossPush];
                releasing_what_expired_says_so: [];
                releasing_what_another_holds_changes_nothing: [];
                dropping_what_another_holds_changes_nothing: [];
                a_lost_guard_can_change_nothing: [];
                a_loss_is_final: [];
                every_view_of_a_lease_is_told: [];
            }
            outage {
                a_store_out_of_reach_is_one_typed_error: [Force, List, Detach, CutOff];
                it_recovers_without_a_restart: [CutOff];
                a_failed_acquire_leaves_nothing_behind: [CutOff];
                a_waiter_learns_of_a_long_outage: [CutOff];
                a_wait_with_a_limit_outlasts_an_outage: [Fifo, CutOff];
                a_call_with_a_limit_waits_for_the_store: [CutOff];
                each_waiter_outlasts_the_outage_that_it_said: [CutOff];
                a_waiter_that_comes_back_has_its_place: [Fifo, CutOff];
                a_grant_that_was_not_heard_goes_to_the_next: [Fifo, CutOff];
                a_wait_with_a_limit_ends_in_an_outage_too: [CutOff];
                a_grant_that_nobody_wants_any_more_is_given_back: [Fifo, CutOff];
                nobody_overtakes_the_queue_after_an_expiry: [Fifo, CutOff];
            }
            release {
                a_release_says_that_it_was_done: [];
                a_release_that_did_not_reach_the_store_is_tried_again: [CutOff];
                a_release_that_did_not_reach_the_store_goes_on_by_itself: [CutOff];
                a_drop_that_did_not_reach_the_store_goes_on_by_itself: [CutOff];
                a_late_release_does_not_end_the_next_lease: [CutOff];
                a_task_can_not_release_the_turn_of_another: [];
                a_drop_gives_back: [];
                a_drop_outside_a_runtime_gives_back: [];
                a_guard_outlives_its_domain: [];
                a_panic_gives_back: [];
                a_lease_does_not_outlive_its_runtime_for_long: [];
                a_runtime_that_goes_down_gives_back: [];
                the_end_of_another_runtime_costs_no_lease: [];
            }
            force {
                the_old_holder_is_told_who_took_over: [Force];
                taking_over_a_free_name_takes_it: [Force];
                taking_over_does_not_disturb_the_queue: [Force];
                a_task_takes_over_from_another_of_its_client: [Force];
                a_lease_that_was_taken_over_is_kept: [Force];
                breaking_tells_the_holder: [Force];
                a_broken_lock_goes_to_the_next: [Force];
                breaking_compares: [Force];
                a_shared_lease_is_broken_as_one: [Force];
                what_was_ended_by_force_is_shown: [Force, List];
                a_cancelled_take_over_is_given_back: [Force];
            }
            closing {
                closing_tells_every_guard: [];
                a_lease_stays_until_its_guard_goes: [];
                a_guard_of_a_closed_domain_can_be_released: [];
                closing_waits_for_work_that_it_stops: [];
                closing_waits_in_vain_for_a_run_that_nobody_polls: [];
                closing_fails_those_who_wait: [];
                a_closed_domain_says_so: [Force];
                closing_is_graceful_when_nothing_was_started: [];
                an_acquire_that_races_with_close_leaves_nothing: [];
                a_hand_over_that_races_with_close_goes_to_the_next: [Fifo];
                a_wait_outlives_its_domain: [];
            }
            run {
                run_gives_back_at_the_end: [];
                run_gives_back_on_error: [];
                run_gives_back_on_panic: [];
                run_gives_back_on_cancellation: [];
                run_that_is_cancelled_in_the_queue_never_works: [];
                run_reports_how_long_it_waited_and_held: [];
                run_stops_the_work_on_loss: [Force];
                run_stops_the_work_when_its_time_is_over: [];
                try_run_tells_busy_from_the_works_own_value: [];
                run_keeps_the_value_when_the_release_fails: [CutOff];
            }
            cohort {
                tasks_share_one_lease_in_turn: [];
                fences_grow_over_many_turns: [];
                a_busy_client_does_not_starve_another: [Fifo];
                tasks_with_other_terms_get_their_own: [];
                a_task_that_gives_up_leaves_its_place_to_the_others: [Fifo];
                a_loss_does_not_concern_the_tasks_that_wait: [];
                every_turn_starts_with_time_left: [];
                a_turn_is_passed_on_or_waits_out_of_reach: [CutOff];
            }
            detach {
                a_ticket_is_adopted_under_a_higher_fence: [Detach];
                of_two_adopters_one_wins: [Detach];
                a_detached_lease_ends_after_its_ttl: [Detach];
                a_detached_lease_lasts_a_full_ttl: [Detach];
                an_adopted_lease_is_kept: [Detach];
                a_detached_lease_outlives_its_domain: [Detach];
                a_detached_lease_outlives_its_process: [Detach, DieDetached];
                those_who_wait_wait_for_the_adopter: [Detach, Fifo];
                a_detach_that_did_not_reach_the_store_is_tried_again: [Detach, CutOff];
                a_ticket_is_good_once: [Detach];
                a_ticket_is_renewed: [Detach];
                a_renewed_ticket_outlives_its_renewer: [Detach];
                a_ticket_is_released: [Detach];
                a_ticket_that_was_used_changes_nothing: [Detach];
            }
            fences {
                fences_grow_over_releases: [];
                fences_grow_over_names_that_were_forgotten: [];
                fences_grow_over_hand_overs: [];
                fences_grow_over_an_expiry: [];
                fences_grow_over_a_death: [DieHolding];
                fences_grow_over_force: [Force];
                fences_grow_over_tickets: [Detach];
                a_resource_refuses_the_holder_before: [];
            }
            names {
                names_of_any_characters_are_told_apart: [];
                names_of_a_thousand_bytes_are_told_apart: [];
                a_bad_name_is_invalid: [Force];
                a_bad_time_is_invalid: [Force];
                a_label_is_any_text_up_to_its_limit: [Force];
                names_in_use_are_listed: [List];
                nothing_is_listed_once_all_is_over: [List];
            }
            surface {
                is_it_locked_by_whom_and_for_how_long: [];
                those_who_wait_are_shown_with_their_place_and_time: [Fifo];
                busy_says_who_since_when_and_how_many_wait: [];
                busy_says_the_holders_fence: [Fifo];
                a_waiter_that_gives_up_claims_no_number_of_waiters: [];
                a_guard_knows_its_facts: [];
                a_guard_knows_its_facts_out_of_reach_too: [CutOff];
                every_lease_has_a_fresh_token: [];
                metrics_count: [];
                health_can_be_asked: [];
                looking_changes_nothing: [];
                a_lock_can_be_used_again: [];
            }
            retry {
                an_acquire_without_an_answer_is_asked_again: [LoseReplies];
                an_enqueue_without_an_answer_is_in_the_queue_once: [Fifo, LoseReplies];
                a_release_without_an_answer_is_sent_again: [LoseReplies];
                a_renewal_without_an_answer_costs_no_lease: [LoseReplies];
                a_take_over_without_an_answer_is_asked_again: [Force, LoseReplies];
                an_adoption_without_an_answer_is_asked_again: [Detach, LoseReplies];
                a_ticket_without_an_answer_is_asked_again: [Detach, LoseReplies];
                one_that_gives_up_on_an_answer_leaves_nothing: [LoseReplies];
                an_acquire_without_an_answer_ends_with_its_domain: [LoseReplies];
            }
        }
    };
}

/// Tests for every case on one backend, in a module of its name. `without` lists the cases that it can't do.
///
/// ```ignore
/// conformance!(memory, Memory::new());
/// conformance!(file, File::new(), without [outage::it_recovers_without_a_restart]);
/// ```
#[macro_export]
macro_rules! conformance {
    ($backend:ident, $fixture:expr) => {
        $crate::conformance!($backend, $fixture, without []);
    };
    ($backend:ident, $fixture:expr, without [$($theme:ident::$case:ident),* $(,)?]) => {
        mod $backend {
            use super::*;

            fn suite() -> $crate::conformance::Suite<impl $crate::conformance::Fixture> {
                $crate::conformance::Suite::new(
                    stringify!($backend),
                    || $fixture,
                    &[$(concat!(stringify!($theme), "::", stringify!($case))),*],
                )
            }

            #[test]
            fn the_suite_says_what_it_left_out() {
                suite().report();
            }

            $crate::each_conformance_case!($crate::conformance_tests);
        }
    };
}

/// A test for each case; stands in a module with a `suite`.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($($theme:ident { $($case:ident: [$($need:ident),*];)* })*) => {
        $(
            mod $theme {
                $(
                    #[test]
                    fn $case() {
                        $crate::conformance::checks::$theme::$case(super::suite());
                    }
                )*
            }
        )*
    };
}

macro_rules! need {
    (DieHolding) => {
        Need::Fixture(Ability::Die(Doing::Holding))
    };
    (DieWaiting) => {
        Need::Fixture(Ability::Die(Doing::Waiting))
    };
    (DieDetached) => {
        Need::Fixture(Ability::Die(Doing::Detached))
    };
    (CutOff) => {
        Need::Fixture(Ability::CutOff)
    };
    (LoseReplies) => {
        Need::Fixture(Ability::LoseReplies)
    };
    ($capability:ident) => {
        Need::Store(tenure::Capability::$capability)
    };
}

macro_rules! index_and_checks {
    ($($theme:ident { $($case:ident: [$($need:ident),*];)* })*) => {
        /// Every case, as `theme::case`, and what it needs.
        pub(super) const INDEX: &[(&str, &[Need])] = &[
            $($((concat!(stringify!($theme), "::", stringify!($case)), &[$(need!($need)),*]),)*)*
        ];

        /// Runs each case on a suite.
        #[doc(hidden)]
        pub mod checks {
            use super::*;

            $(
                pub mod $theme {
                    use super::*;

                    $(
                        pub fn $case<F: Fixture>(suite: Suite<F>) {
                            let case = concat!(stringify!($theme), "::", stringify!($case));
                            suite.check(case, &[$(need!($need)),*], crate::conformance::$theme::$case);
                        }
                    )*
                }
            )*
        }
    };
}

each_conformance_case!(index_and_checks);
