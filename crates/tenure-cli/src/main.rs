//! The `tenure` command: holds a name while another command runs, and shows and changes what is held.
//!
//! A command is a file in `commands/`, with its options, and a variant in `args.rs`. stdout belongs to the command that is run, or to what was
//! asked for; everything else is on stderr, one fact a line.

mod address;
mod ancestry;
mod args;
mod commands;
mod exit_code;
mod glob;
mod json;
mod name_status;
mod notes;
mod output;
mod presence;
mod sample;
mod stdout;
mod sys;
mod table;
mod text;

use std::process::ExitCode;

use args::{Cli, Command};

fn main() -> ExitCode {
    let code = match Cli::read(std::env::args_os()) {
        Ok(cli) => match &cli.command {
            Command::Run(run) => run.execute(),
            Command::Ls(ls) => ls.execute(),
            Command::Status(status) => status.execute(),
            Command::Watch(watch) => watch.execute(),
            Command::Top(top) => top.execute(),
            Command::Acquire(acquire) => acquire.execute(),
            Command::Renew(renew) => renew.execute(),
            Command::Release(release) => release.execute(),
            Command::Hold(hold) => hold.execute(),
            Command::Break(breaking) => breaking.execute(),
            Command::Doctor(doctor) => doctor.execute(),
            Command::Bench(bench) => bench.execute(),
            Command::Completions(completions) => completions.execute(),
            Command::Man(man) => man.execute(),
        },
        Err(refused) => output::usage(refused),
    };
    output::flush_messages();
    ExitCode::from(code)
}
