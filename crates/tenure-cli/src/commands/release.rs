//! `tenure release`.

use clap::Args;

use crate::args::{Domain, Format};

/// Give back the name of a ticket
#[derive(Debug, Args)]
pub(crate) struct Release {
    #[command(flatten)]
    domain: Domain,

    #[command(flatten)]
    format: Format,

    /// What `tenure acquire` printed, or - to read it from stdin
    ticket: String,
}

impl Release {
    pub(crate) fn execute(&self) -> u8 {
        crate::output::say("not there yet");
        crate::exit_code::UNAVAILABLE
    }
}
