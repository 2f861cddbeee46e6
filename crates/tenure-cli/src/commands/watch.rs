//! `tenure watch`.

use clap::Args;

use crate::args::{Domain, Format};

/// Print what happens to names, as it happens
#[derive(Debug, Args)]
pub(crate) struct Watch {
    #[command(flatten)]
    domain: Domain,

    #[command(flatten)]
    format: Format,

    /// Which names: `*` stands for any characters, `?` for one [default: all]
    glob: Option<String>,
}

impl Watch {
    pub(crate) fn execute(&self) -> u8 {
        crate::output::say("not there yet");
        crate::exit_code::UNAVAILABLE
    }
}
