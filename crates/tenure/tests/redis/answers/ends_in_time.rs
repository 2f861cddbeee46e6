//! Faults that last longer than a command may take, on leases that are short: every call ends in its time, in success or in an error
//! that says that it may be tried again. Row 13 of the matrix of faults.

use std::time::Duration;

use tenure_testkit::redis::Fault;

use super::cell::{Terms, row};

const TERMS: Terms =
    Terms { ttl: Duration::from_millis(1_600), timeout: Duration::from_millis(250), may_fail: true };
/// After its client has given up.
const LATE: Duration = Duration::from_millis(700);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connection_falls_silent_when_the_command_was_executed() {
    row(Fault::Silence, TERMS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_and_all_after_it_are_lost() {
    row(Fault::Drop, TERMS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_comes_when_its_client_has_given_up() {
    row(Fault::DelayCommand(LATE), TERMS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reply_comes_when_its_client_has_given_up() {
    row(Fault::DelayReply(LATE), TERMS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reply_is_lost_and_the_connection_reset() {
    row(Fault::SwallowThenReset, TERMS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connection_is_reset_when_the_command_was_sent() {
    row(Fault::ResetAfter, TERMS).await;
}
