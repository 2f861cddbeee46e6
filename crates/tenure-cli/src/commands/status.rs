//! `tenure status`.

use clap::Args;

use crate::args::{Domain, Format};

/// Show who holds a name and who waits for it
#[derive(Debug, Args)]
pub(crate) struct Status {
    #[command(flatten)]
    domain: Domain,

    #[command(flatten)]
    format: Format,

    /// Print nothing: exit 0 when NAME is free, 75 when it is held
    #[arg(short, long)]
    quiet: bool,

    /// The name
    name: String,
}

impl Status {
    pub(crate) fn execute(&self) -> u8 {
        crate::output::say("not there yet");
        crate::exit_code::UNAVAILABLE
    }
}
