//! Values: what the layers above pass to each other and to users. No I/O but the host name and the user of this process.

pub(crate) mod bytes;
pub(crate) mod duration;
pub(crate) mod error;
pub(crate) mod fence;
pub(crate) mod finding;
pub(crate) mod loss;
pub(crate) mod metrics;
pub(crate) mod name;
pub(crate) mod owner;
pub(crate) mod process;
pub(crate) mod release;
pub(crate) mod replicas;
pub(crate) mod status;
pub(crate) mod ticket;
