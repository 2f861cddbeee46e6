//! Locks of other libraries on the same key (B6).
