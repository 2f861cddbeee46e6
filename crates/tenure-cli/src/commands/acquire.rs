//! `tenure acquire`.

use clap::Args;

use crate::args::{Domain, Format, Patience, Terms};

/// Acquire NAME and print a ticket for it, for scripts that can't wrap a command
#[derive(Debug, Args)]
pub(crate) struct Acquire {
    #[command(flatten)]
    domain: Domain,

    #[command(flatten)]
    patience: Patience,

    #[command(flatten)]
    terms: Terms,

    #[command(flatten)]
    format: Format,

    /// The name
    name: String,
}

impl Acquire {
    pub(crate) fn execute(&self) -> u8 {
        crate::output::say("not there yet");
        crate::exit_code::UNAVAILABLE
    }
}
