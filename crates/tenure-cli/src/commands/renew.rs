//! `tenure renew`.

use std::time::Instant;

use clap::Args;
use serde::Serialize;
use tenure::{Loss, LossKind};

use super::on_domain;
use super::ticket::{self, TicketArg};
use crate::args::{Domain, Format};
use crate::json::{self, Who};

/// Make the lease of a ticket last longer: its ttl, from now on
#[derive(Debug, Args)]
pub(crate) struct Renew {
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
    renewed: bool,
    lease_left_ms: u64,
    by: Option<Who>,
}

impl Renew {
    pub(crate) fn execute(&self) -> u8 {
        on_domain(&self.domain, async |domain| {
            let ticket = match self.ticket.read() {
                Ok(ticket) => ticket?,
                Err(code) => return Ok(code),
            };
            let sent = Instant::now();
            let renewal = domain.renew(&ticket).await;
            let left = ticket.ttl().saturating_sub(sent.elapsed());
            let (renewed, by) = match renewal {
                Ok(()) => (true, None),
                Err(error) => match error.loss().map(Loss::kind) {
                    Some(LossKind::Taken { by }) => (false, Some(by.clone())),
                    Some(_) => (false, None),
                    None => return Err(error),
                },
            };
            if self.format.json {
                json::print(&Printed {
                    name: ticket.name(),
                    renewed,
                    lease_left_ms: if renewed { json::millis(left) } else { 0 },
                    by: by.as_ref().map(Who::new),
                });
            }
            Ok(if renewed { 0 } else { ticket::had_ended(&ticket, by.as_ref()) })
        })
    }
}
