//! What the tests of tenure share: the oracle, which judges a lock by what its clients wrote down, and the conformance suite, which
//! every backend runs.

pub mod conformance;
pub mod dice;
pub mod oracle;
