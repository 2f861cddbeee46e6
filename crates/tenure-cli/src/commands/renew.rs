//! `tenure renew`.

use clap::Args;

use crate::args::{Domain, Format};

/// Make the lease of a ticket last longer
#[derive(Debug, Args)]
pub(crate) struct Renew {
    #[command(flatten)]
    domain: Domain,

    #[command(flatten)]
    format: Format,

    /// What `tenure acquire` printed, or - to read it from stdin
    ticket: String,
}

impl Renew {
    pub(crate) fn execute(&self) -> u8 {
        crate::output::say("not there yet");
        crate::exit_code::UNAVAILABLE
    }
}
