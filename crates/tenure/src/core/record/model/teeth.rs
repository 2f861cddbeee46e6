//! Mistakes that the model must find, each in the smallest world that has it; the same world without the mistake is among those
//! that hold.

use super::*;

#[test]
fn finds_a_deadline_that_counts_from_the_receipt() {
    static SCOPE: Scope = Scope { flaw: Some(Flaw::ReceiveBasedDeadline), ..TWO };
    bites(&SCOPE, Violation::TwoBelieve);
}

#[test]
fn finds_a_renewal_that_shortens() {
    static SCOPE: Scope = Scope {
        flaw: Some(Flaw::ShorteningRenewal),
        renews_longer: true,
        budget: Budget::UNANSWERED,
        ..COARSE
    };
    bites(&SCOPE, Violation::TwoBelieve);
}

#[test]
fn finds_a_token_that_is_used_again() {
    static SCOPE: Scope =
        Scope { flaw: Some(Flaw::ReusedToken), attempts: 2, budget: Budget::UNANSWERED, ..COARSE };
    bites(&SCOPE, Violation::TwoBelieve);
}

// Nobody is harmed by a ghost but those who wait: it holds the name for a ttl, and nobody is there to give it back.
#[test]
fn finds_an_acquire_that_is_executed_after_its_client_has_gone() {
    static SCOPE: Scope = Scope { flaw: Some(Flaw::NoNotAfter), budget: Budget::UNANSWERED, ..TWO };
    bites(&SCOPE, Violation::Haunted);
}

#[test]
fn finds_a_leave_that_is_not_repeated() {
    static SCOPE: Scope = Scope { flaw: Some(Flaw::LeavesOnce), budget: Budget::UNANSWERED, ..TWO };
    bites(&SCOPE, Violation::Haunted);
}

// A pause with the grant in flight, while another comes back and takes what has expired.
#[test]
fn finds_a_push_that_is_believed_from_its_receipt() {
    static SCOPE: Scope = Scope { flaw: Some(Flaw::PushBelievedFromReceipt), attempts: 2, ..COARSE };
    bites(&SCOPE, Violation::TwoBelieve);
}

#[test]
fn finds_a_waiter_that_relies_on_being_told() {
    static SCOPE: Scope = Scope { flaw: Some(Flaw::NoBeats), ..TWO };
    bites(&SCOPE, Violation::Stuck);
}

#[test]
fn finds_fences_that_are_the_time_and_nothing_else() {
    static SCOPE: Scope = Scope { flaw: Some(Flaw::FenceByClockAlone), ..TWO };
    bites(&SCOPE, Violation::FenceWentBack);
}
