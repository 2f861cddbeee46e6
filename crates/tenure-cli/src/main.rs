//! The `tenure` command: holds a name while another command runs.
//!
//! A command is a file in `commands/`, and a variant in `args.rs`. stdout belongs to the command that is run, or to what was asked for;
//! everything else is on stderr, one fact a line.

mod address;
mod args;
mod child;
mod commands;
mod deadline;
mod exit_code;
mod front;
mod holding;
mod minder;
mod output;
mod signals;
mod sys;
mod tree;
mod wire;

use std::process::ExitCode;

use args::{Cli, Command};

fn main() -> ExitCode {
    let code = match Cli::read(std::env::args_os()) {
        Ok(Cli { command: Command::Run(run) }) => commands::run::run(&run),
        Err(refused) => output::usage(refused),
    };
    ExitCode::from(code)
}
