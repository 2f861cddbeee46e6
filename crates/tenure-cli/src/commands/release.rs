//! `tenure release`. That the lease had ended before is not a success: a script learns by it that its work was not protected to its end.

use clap::Args;
use serde::Serialize;
use tenure::Release as Released;

use super::on_domain;
use super::ticket::{self, TicketArg};
use crate::args::{Domain, Format};
use crate::json::{self, Who};

/// Give back the name of a ticket
#[derive(Debug, Args)]
pub(crate) struct Release {
    #[command(flatten)]
    domain: Domain,

    #[command(flatten)]
    format: Format,

    #[command(flatten)]
    ticket: TicketArg,
}

/// What became of it, for programs.
#[derive(Serialize)]
struct Printed<'a> {
    name: &'a str,
    released: &'static str,
    by: Option<Who>,
}

impl Release {
    pub(crate) fn execute(&self) -> u8 {
        on_domain(&self.domain, async |domain| {
            let ticket = match self.ticket.read() {
                Ok(ticket) => ticket?,
                Err(code) => return Ok(code),
            };
            let (released, by) = match domain.release(&ticket).await? {
                Released::Done => ("released", None),
                Released::Taken { by } => ("taken", Some(by)),
                _ => ("expired", None),
            };
            if self.format.json {
                let by = by.as_ref().map(Who::new);
                json::print(&Printed { name: ticket.name(), released, by });
            }
            Ok(if released == "released" { 0 } else { ticket::had_ended(&ticket, by.as_ref()) })
        })
    }
}
