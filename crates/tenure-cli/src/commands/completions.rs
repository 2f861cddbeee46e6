//! `tenure completions`: made from the definition of the command line, so that they are always up to date.

use clap::Args;
use clap_complete::Shell;

use crate::args::Cli;
use crate::output;

/// Print the completions for a shell
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn execute(&self) -> u8 {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::definition(), "tenure", &mut script);
        output::print("completions", &script)
    }
}
