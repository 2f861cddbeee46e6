//! `tenure top`.

use clap::Args;

use crate::args::Domain;

/// Live screen of names, holders and queues
#[derive(Debug, Args)]
pub(crate) struct Top {
    #[command(flatten)]
    domain: Domain,

    /// Which names: `*` stands for any characters, `?` for one [default: all]
    glob: Option<String>,
}

impl Top {
    pub(crate) fn execute(&self) -> u8 {
        crate::output::say("not there yet");
        crate::exit_code::UNAVAILABLE
    }
}
