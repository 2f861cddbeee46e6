//! Faults after which the server can be asked again in time: the operation succeeds, and nobody is told. Row 13 of the matrix of faults.

use std::time::Duration;

use tenure_testkit::redis::Fault;

use super::cell::{Terms, row};

/// Time enough for a machine that is busy.
const TERMS: Terms = Terms { ttl: Duration::from_secs(16), timeout: Duration::from_secs(8), may_fail: false };
const SHORT: Duration = Duration::from_millis(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reply_is_lost_and_the_connection_reset() {
    row(Fault::SwallowThenReset, TERMS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connection_is_reset_when_the_command_was_sent() {
    row(Fault::ResetAfter, TERMS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_connection_is_reset_before_the_command_is_sent() {
    row(Fault::ResetBefore, TERMS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_is_executed_twice() {
    row(Fault::Duplicate, TERMS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_is_late() {
    row(Fault::DelayCommand(SHORT), TERMS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reply_is_late() {
    row(Fault::DelayReply(SHORT), TERMS).await;
}
