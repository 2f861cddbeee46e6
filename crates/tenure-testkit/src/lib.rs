//! What the tests of tenure share: the oracle, which judges a lock by what its clients wrote down, the conformance suite, which
//! every backend runs, and real Redis servers with the faults that a network and a clock can have.

pub mod conformance;
pub mod dice;
pub mod oracle;
pub mod patience;
pub mod redis;
