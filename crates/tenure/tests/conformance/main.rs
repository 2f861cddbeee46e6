//! The conformance suite on every store: one fixture and one line each.

mod cluster;
mod doomed;
mod examine;
mod file;
mod memory;
mod public;
mod quorum;
mod redis;
mod sentinel;

use tenure::Domain;
use tenure_testkit::conformance::Client;

/// A client that nothing can be done to.
pub(crate) struct Shared(pub(crate) Domain);

impl Client for Shared {
    fn domain(&self) -> &Domain {
        &self.0
    }
}

/// The suite on a store whose clients can't be cut off from it, and lose no replies.
macro_rules! without_a_line {
    ($backend:ident, $fixture:expr, nor [$($theme:ident::$case:ident),* $(,)?]) => {
        conformance!($backend, $fixture, without [
            $($theme::$case,)*
            loss::a_holder_is_told_before_another_can_hold,
            loss::a_holder_out_of_reach_of_its_store_is_told_why,
            loss::a_short_outage_costs_no_lease,
            loss::a_refused_renewal_is_told,
            loss::a_lease_that_is_gone_is_told,
            outage::a_store_out_of_reach_is_one_typed_error,
            outage::it_recovers_without_a_restart,
            outage::a_failed_acquire_leaves_nothing_behind,
            outage::a_waiter_learns_of_a_long_outage,
            outage::a_wait_with_a_limit_outlasts_an_outage,
            outage::a_call_with_a_limit_waits_for_the_store,
            outage::each_waiter_outlasts_the_outage_that_it_said,
            outage::a_waiter_that_comes_back_has_its_place,
            outage::a_grant_that_was_not_heard_goes_to_the_next,
            outage::a_wait_with_a_limit_ends_in_an_outage_too,
            outage::a_grant_that_nobody_wants_any_more_is_given_back,
            outage::nobody_overtakes_the_queue_after_an_expiry,
            release::a_release_that_did_not_reach_the_store_is_tried_again,
            release::a_release_that_did_not_reach_the_store_goes_on_by_itself,
            release::a_drop_that_did_not_reach_the_store_goes_on_by_itself,
            release::a_late_release_does_not_end_the_next_lease,
            run::run_keeps_the_value_when_the_release_fails,
            cohort::a_turn_is_passed_on_or_waits_out_of_reach,
            detach::a_detach_that_did_not_reach_the_store_is_tried_again,
            surface::a_guard_knows_its_facts_out_of_reach_too,
            retry::an_acquire_without_an_answer_is_asked_again,
            retry::an_enqueue_without_an_answer_is_in_the_queue_once,
            retry::a_release_without_an_answer_is_sent_again,
            retry::a_renewal_without_an_answer_costs_no_lease,
            retry::a_take_over_without_an_answer_is_asked_again,
            retry::an_adoption_without_an_answer_is_asked_again,
            retry::a_ticket_without_an_answer_is_asked_again,
            retry::one_that_gives_up_on_an_answer_leaves_nothing,
            retry::an_acquire_without_an_answer_ends_with_its_domain,
        ]);
    };
}

/// The suite on a store, or over connections, that keep no order: all cases that need [`Fifo`](tenure::Capability::Fifo).
macro_rules! without_order {
    ($backend:ident, $fixture:expr) => {
        conformance!($backend, $fixture, without [
            closing::a_hand_over_that_races_with_close_goes_to_the_next,
            cohort::a_busy_client_does_not_starve_another,
            cohort::a_task_that_gives_up_leaves_its_place_to_the_others,
            detach::those_who_wait_wait_for_the_adopter,
            keeping::an_expiry_is_noticed_by_those_who_wait,
            outage::a_grant_that_nobody_wants_any_more_is_given_back,
            outage::a_grant_that_was_not_heard_goes_to_the_next,
            outage::a_wait_with_a_limit_outlasts_an_outage,
            outage::a_waiter_that_comes_back_has_its_place,
            outage::nobody_overtakes_the_queue_after_an_expiry,
            retry::an_enqueue_without_an_answer_is_in_the_queue_once,
            surface::busy_says_the_holders_fence,
            surface::those_who_wait_are_shown_with_their_place_and_time,
            waiting::a_dead_waiter_is_skipped,
            waiting::a_grant_to_one_that_gave_up_goes_to_the_next,
            waiting::a_row_of_dead_waiters_is_skipped,
            waiting::a_waiter_keeps_its_place_past_its_ttl,
            waiting::a_waiter_that_is_not_polled_holds_nobody_up,
            waiting::first_come_first_served_between_clients,
            waiting::nobody_overtakes_the_queue,
            waiting::one_that_gives_up_costs_nobody_a_place,
        ]);
    };
}

pub(crate) use {without_a_line, without_order};
