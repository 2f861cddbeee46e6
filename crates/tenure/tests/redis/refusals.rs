//! A server that refuses: what it means, and that nothing is lost by it.
