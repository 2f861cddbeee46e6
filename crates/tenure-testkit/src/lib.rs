//! What the tests of tenure share: the oracle, which judges a lock by what its clients wrote down, the conformance suite, which
//! every backend runs, processes under load, what is warned of, and real Redis servers with the faults that a network and a clock can have.

pub mod conformance;
pub mod dice;
mod directory;
pub mod oracle;
pub mod patience;
pub mod redis;
pub mod soak;
pub mod warnings;
