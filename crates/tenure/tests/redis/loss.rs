//! A holder whose key is gone or overwritten is told at once.
