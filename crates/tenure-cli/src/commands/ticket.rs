//! What `renew` and `release` share: their options, reading the ticket, and the message for a lease that had ended.

use std::io::{self, BufRead as _, Read as _};

use clap::Args;
use serde::Serialize;
use tenure::{Error, Owner, Ticket};

use super::on_existing_domain;
use crate::address;
use crate::args::{Domain, Format};
use crate::exit_code;
use crate::output::{self, say};
use crate::text::{escaped, owner};

/// The longest ticket: a name and a token with every byte escaped.
const LONGEST: u64 = 16 * 1_024;

/// The options.
#[derive(Debug, Args)]
pub(crate) struct TicketArgs {
    #[command(flatten)]
    domain: Domain,

    #[command(flatten)]
    format: Format,

    /// What `tenure acquire` printed; - reads it from stdin, because ps shows arguments
    ticket: String,
}

/// The result of using a ticket.
pub(crate) struct Used<T> {
    /// For programs.
    pub(crate) printed: T,
    /// Whether its lease had ended before.
    pub(crate) had_ended: bool,
    /// Who holds the name instead.
    pub(crate) by: Option<Owner>,
}

impl TicketArgs {
    /// Uses the ticket, and prints the result; returns the exit code.
    pub(crate) fn used<T: Serialize>(
        &self,
        work: impl AsyncFnOnce(&tenure::Domain, &Ticket) -> Result<Used<T>, Error>,
    ) -> u8 {
        on_existing_domain(&self.domain, async |domain| {
            let ticket = match self.read() {
                Ok(ticket) => ticket,
                Err(code) => return Ok(code),
            };
            let Used { printed, had_ended, by } = work(domain, &ticket).await?;
            let printed = if self.format.json { output::object("outcome", &printed) } else { Ok(()) };
            Ok(match had_ended {
                true => self.tell_end(&ticket, by.as_ref()),
                false => printed.err().unwrap_or(0),
            })
        })
    }

    /// The ticket; or the exit code, after a message.
    fn read(&self) -> Result<Ticket, u8> {
        let refused = |why: String| {
            output::failed(exit_code::USAGE, why);
            output::failed(exit_code::USAGE, output::WHERE_TICKETS_COME_FROM);
            exit_code::USAGE
        };
        let (text, empty) = if self.ticket == "-" {
            let mut line = String::new();
            if let Err(error) = io::stdin().lock().take(LONGEST).read_line(&mut line) {
                return Err(refused(format!("ticket could not be read from stdin: {error}")));
            }
            (line, "TICKET is missing: stdin is empty;")
        } else {
            (self.ticket.clone(), "TICKET is empty:")
        };
        if text.trim().is_empty() {
            return Err(refused(format!("{empty} did the `tenure acquire` before it fail?")));
        }
        text.parse().map_err(|error: Error| refused(escaped(&error.to_string())))
    }

    /// Prints that the lease of a ticket had ended; returns the exit code.
    fn tell_end(&self, ticket: &Ticket, by: Option<&Owner>) -> u8 {
        let name = escaped(ticket.name());
        match by {
            Some(by) => {
                say(format_args!("lease on `{name}` had ended before, and {} holds it now", owner(by)));
            }
            None => {
                say(format_args!("lease on `{name}` had ended before, and nobody holds it now"));
                let elsewhere = address::locate(&self.domain)
                    .map_or_else(|_| String::new(), |located| format!(" than {located}"));
                say(format_args!("it expired, was given back, or was acquired in another domain{elsewhere}"));
            }
        }
        exit_code::LOST
    }
}
