//! What a run leaves behind on the server and in the process: nothing.

pub(crate) mod traces;
