//! What runs behind the API: one client's tasks, leases and requests. It knows stores by the trait alone.

pub(crate) mod acquire;
pub(crate) mod bid;
pub(crate) mod client;
pub(crate) mod cohort;
pub(crate) mod floors;
pub(crate) mod keeper;
pub(crate) mod lease_state;
pub(crate) mod opening;
pub(crate) mod release;
pub(crate) mod seek;
pub(crate) mod table;
pub(crate) mod take_over;
pub(crate) mod tasks;
