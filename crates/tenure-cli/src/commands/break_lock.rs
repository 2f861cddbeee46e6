//! `tenure break`.

use clap::Args;

use crate::args::{Domain, Format};

/// Take NAME away from a dead holder
#[derive(Debug, Args)]
pub(crate) struct Break {
    #[command(flatten)]
    domain: Domain,

    #[command(flatten)]
    format: Format,

    /// The fence that `tenure status` showed: only that lease is ended
    #[arg(long)]
    fence: u64,

    /// Do not ask
    #[arg(long)]
    yes: bool,

    /// The name
    name: String,
}

impl Break {
    pub(crate) fn execute(&self) -> u8 {
        crate::output::say("not there yet");
        crate::exit_code::UNAVAILABLE
    }
}
