//! What a run leaves behind on the server and in the process: nothing.

mod after_a_run;
mod fences;
mod memory;
pub(crate) mod traces;
