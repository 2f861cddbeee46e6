//! The ticket that `renew` and `release` take, and what they say of one that is worth nothing any more.

use std::io::{self, BufRead as _};

use clap::Args;
use tenure::{Error, Owner, Ticket};

use crate::exit_code;
use crate::output::say;
use crate::text::{escaped, owner};

/// The argument.
#[derive(Debug, Args)]
pub(crate) struct TicketArg {
    /// What `tenure acquire` printed; - reads it from stdin, because ps shows arguments
    ticket: String,
}

impl TicketArg {
    /// The ticket; or the exit code, when it could not be read and that has been told.
    pub(crate) fn read(&self) -> Result<Result<Ticket, Error>, u8> {
        if self.ticket != "-" {
            return Ok(self.ticket.parse());
        }
        let mut line = String::new();
        match io::stdin().lock().read_line(&mut line) {
            Ok(0) => {
                say("ticket is missing: stdin is empty");
                Err(exit_code::USAGE)
            }
            Ok(_) => Ok(line.parse()),
            Err(error) => {
                say(format_args!("ticket could not be read from stdin: {error}"));
                Err(exit_code::USAGE)
            }
        }
    }
}

/// Says that the lease of a ticket had ended; returns the exit code.
pub(crate) fn had_ended(ticket: &Ticket, by: Option<&Owner>) -> u8 {
    let name = escaped(ticket.name());
    match by {
        Some(by) => {
            say(format_args!("lease on `{name}` had ended before, and {} holds it now", owner(by)));
        }
        None => {
            say(format_args!("lease on `{name}` had ended before, and nobody holds it now"));
            say("it expired, was given back, or was acquired with another --url or TENURE_URL");
        }
    }
    exit_code::LOST
}
