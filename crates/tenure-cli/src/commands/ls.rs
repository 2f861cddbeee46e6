//! `tenure ls`.

use clap::Args;

use crate::args::{Domain, Format};

/// Show the names that are held or waited for
#[derive(Debug, Args)]
pub(crate) struct Ls {
    #[command(flatten)]
    domain: Domain,

    #[command(flatten)]
    format: Format,

    /// Which names: `*` stands for any characters, `?` for one [default: all]
    glob: Option<String>,
}

impl Ls {
    pub(crate) fn execute(&self) -> u8 {
        crate::output::say("not there yet");
        crate::exit_code::UNAVAILABLE
    }
}
