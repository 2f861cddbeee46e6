//! `tenure man`.

use clap::Args;

/// Print a man page
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The command; without it, the page of `tenure` itself
    command: Option<String>,
}

impl Man {
    pub(crate) fn execute(&self) -> u8 {
        crate::output::say("not there yet");
        crate::exit_code::UNAVAILABLE
    }
}
