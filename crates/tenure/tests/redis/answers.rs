//! A request that was executed, delayed, doubled or lost, at every step: it ends in a known state.
