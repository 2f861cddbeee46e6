//! A request that was executed, delayed, doubled or lost, at every step: it ends in a known state.
//!
//! A table: every operation meets every fault of the proxy. Where the server can be asked again within the time of the command it must
//! be, and nobody notices ([`noticed_by_nobody`]). Where there is not enough time, the operation ends all the same, in success or in an
//! error that says so, and what it left behind ends with its lease ([`ends_in_time`]). What must hold in every cell is in [`cell`].

mod cell;
mod ends_in_time;
mod noticed_by_nobody;
pub(crate) mod operation;
