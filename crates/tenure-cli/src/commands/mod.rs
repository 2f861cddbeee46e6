//! One file for each command, with its options and `execute`, which returns the exit code.

pub(crate) mod acquire;
pub(crate) mod bench;
mod blocked_signals;
pub(crate) mod break_lock;
pub(crate) mod completions;
pub(crate) mod doctor;
mod give_back;
pub(crate) mod hold;
pub(crate) mod ls;
pub(crate) mod man;
mod obtain;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod run;
pub(crate) mod status;
mod ticket;
pub(crate) mod top;
pub(crate) mod waiting;
pub(crate) mod watch;

use std::path::Path;

use tenure::{Domain, Error};

use crate::address::{self, Refused, Source};
use crate::args;
use crate::exit_code;
use crate::output;
use crate::text::escaped;

/// Does the work of a command on its domain, prints errors, and returns the exit code.
pub(crate) fn on_domain(asked: &args::Domain, work: impl AsyncFnOnce(&Domain) -> Result<u8, Error>) -> u8 {
    match address::domain(asked) {
        Ok((domain, source)) => worked(&domain, &source, work),
        Err(refused) => refuse(refused),
    }
}

/// The same for a command that only reads, and creates no directory; `absent` handles a missing one.
pub(crate) fn on_domain_read_only(
    asked: &args::Domain,
    absent: impl FnOnce(&Path) -> u8,
    work: impl AsyncFnOnce(&Domain) -> Result<u8, Error>,
) -> u8 {
    match address::domain_read_only(asked) {
        Ok(Ok((domain, source))) => worked(&domain, &source, work),
        Ok(Err(directory)) => absent(&directory),
        Err(refused) => refuse(refused),
    }
}

/// The same for a command that releases or renews a lease of this machine.
pub(crate) fn on_existing_domain(
    asked: &args::Domain,
    work: impl AsyncFnOnce(&Domain) -> Result<u8, Error>,
) -> u8 {
    match address::existing_domain(asked) {
        Ok(Ok((domain, source))) => worked(&domain, &source, work),
        Ok(Err(directory)) => no_directory(&directory),
        Err(refused) => refuse(refused),
    }
}

/// Prints that a directory is missing, as an error; returns the exit code.
pub(crate) fn no_directory(directory: &Path) -> u8 {
    output::failed(exit_code::UNAVAILABLE, format_args!("{}; {}", absence(directory), WHAT_TO_DO));
    exit_code::UNAVAILABLE
}

/// The message for a missing directory.
pub(crate) fn absence(directory: &Path) -> String {
    format!("directory {} is not there, so nothing is held in it", escaped(&directory.to_string_lossy()))
}

/// The remedy for it.
pub(crate) const WHAT_TO_DO: &str = "check the URL; the first `tenure run` makes the directory";

fn refuse(refused: Refused) -> u8 {
    output::failed(refused.code, refused.message);
    refused.code
}

fn worked(domain: &Domain, source: &Source, work: impl AsyncFnOnce(&Domain) -> Result<u8, Error>) -> u8 {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::refused_by_system(&error);
            return exit_code::OS;
        }
    };
    runtime.block_on(work(domain)).unwrap_or_else(|error| failed(source, &error))
}

/// Prints an error; returns the exit code.
fn failed(source: &Source, error: &Error) -> u8 {
    let code = exit_code::of_error(error);
    output::failed(code, source.blamed(error));
    code
}
