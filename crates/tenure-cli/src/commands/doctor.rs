//! `tenure doctor`.

use clap::Args;

use crate::args::{Domain, Format};

/// Is this store fit to hold locks?
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    domain: Domain,

    #[command(flatten)]
    format: Format,
}

impl Doctor {
    pub(crate) fn execute(&self) -> u8 {
        crate::output::say("not there yet");
        crate::exit_code::UNAVAILABLE
    }
}
