//! `tenure hold`.

use clap::Args;

use crate::args::{Domain, Format, Patience, Terms};

/// Hold NAME until stdin closes
#[derive(Debug, Args)]
pub(crate) struct Hold {
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

impl Hold {
    pub(crate) fn execute(&self) -> u8 {
        crate::output::say("not there yet");
        crate::exit_code::UNAVAILABLE
    }
}
