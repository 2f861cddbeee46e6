//! What the tests of tenure share.
