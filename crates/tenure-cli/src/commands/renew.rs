//! `tenure renew`. The time left counts from before the request, so that it is never too long.

use std::time::Instant;

use clap::Args;
use serde::Serialize;
use tenure::{Loss, LossKind};

use super::ticket::{TicketArgs, Used};
use crate::json::{self, Who};

/// Make the lease of a ticket last longer: its ttl, from now on
#[derive(Debug, Args)]
pub(crate) struct Renew {
    #[command(flatten)]
    asked: TicketArgs,
}

/// The result, for programs.
#[derive(Serialize)]
struct Printed {
    name: String,
    renewed: bool,
    lease_left_ms: u64,
    by: Option<Who>,
}

impl Renew {
    pub(crate) fn execute(&self) -> u8 {
        self.asked.used(async |domain, ticket| {
            let sent = Instant::now();
            let renewal = ticket.renew(domain).await;
            let left = ticket.ttl().saturating_sub(sent.elapsed());
            let (renewed, by) = match renewal {
                Ok(()) => (true, None),
                Err(error) => match error.loss().map(Loss::kind) {
                    Some(LossKind::Taken { by }) => (false, Some(by.clone())),
                    Some(_) => (false, None),
                    None => return Err(error),
                },
            };
            let printed = Printed {
                name: ticket.name().to_owned(),
                renewed,
                lease_left_ms: if renewed { json::millis(left) } else { 0 },
                by: by.as_ref().map(Who::new),
            };
            Ok(Used { printed, had_ended: !renewed, by })
        })
    }
}
