//! The `tenure` command.
//!
//! So far it knows its version. `tenure run`, which holds a name while a command runs, comes with the first domain that outlives a
//! process.

use std::process::ExitCode;

/// The command line was wrong (`EX_USAGE` of sysexits).
const USAGE: u8 = 64;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("--version" | "-V") => {
            println!("tenure {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Some(other) => {
            eprintln!("tenure: no command `{other}` in this version; try `tenure --version`");
            ExitCode::from(USAGE)
        }
        None => {
            eprintln!("tenure: no command given; try `tenure --version`");
            ExitCode::from(USAGE)
        }
    }
}
