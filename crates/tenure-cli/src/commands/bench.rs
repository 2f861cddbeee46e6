//! `tenure bench`.

use clap::Args;

use crate::args::{Domain, Format};

/// A quick look at the speed of this store
#[derive(Debug, Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    domain: Domain,

    #[command(flatten)]
    format: Format,
}

impl Bench {
    pub(crate) fn execute(&self) -> u8 {
        crate::output::say("not there yet");
        crate::exit_code::UNAVAILABLE
    }
}
