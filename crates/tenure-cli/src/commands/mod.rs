//! One file a command, with its options and `execute`, which returns the exit code.

pub(crate) mod acquire;
pub(crate) mod bench;
mod blocked;
pub(crate) mod break_lock;
pub(crate) mod completions;
pub(crate) mod doctor;
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

use tenure::{Domain, Error};

use crate::address::{self, Source};
use crate::args;
use crate::exit_code;
use crate::output;

/// Does the work of a command on its domain, says what went wrong, and returns the exit code.
pub(crate) fn on_domain(asked: &args::Domain, work: impl AsyncFnOnce(&Domain) -> Result<u8, Error>) -> u8 {
    let (domain, source) = match address::domain(asked) {
        Ok(domain) => domain,
        Err(refused) => {
            output::failed(refused.code, refused.message);
            return refused.code;
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::refused_by_system(&error);
            return exit_code::OS;
        }
    };
    runtime.block_on(work(&domain)).unwrap_or_else(|error| failed(&source, &error))
}

/// Says what went wrong; returns the exit code.
fn failed(source: &Source, error: &Error) -> u8 {
    let code = exit_code::of_error(error);
    output::failed(code, source.blamed(error));
    code
}
