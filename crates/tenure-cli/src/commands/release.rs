//! `tenure release`. If the lease had ended before, that is not a success: the script's work was not protected to its end.

use clap::Args;
use serde::Serialize;
use tenure::Release as Outcome;

use super::ticket::{TicketArgs, Used};
use crate::json::Who;

/// Give back the name of a ticket
#[derive(Debug, Args)]
pub(crate) struct Release {
    #[command(flatten)]
    asked: TicketArgs,
}

/// The result, for programs.
#[derive(Serialize)]
struct Printed {
    name: String,
    released: &'static str,
    by: Option<Who>,
}

impl Release {
    pub(crate) fn execute(&self) -> u8 {
        self.asked.used(async |domain, ticket| {
            let (released, by) = match ticket.release(domain).await? {
                Outcome::Released => ("released", None),
                Outcome::Taken { by } => ("taken", Some(by)),
                _ => ("gone", None),
            };
            let name = ticket.name().to_owned();
            let printed = Printed { name, released, by: by.as_ref().map(Who::new) };
            Ok(Used { printed, had_ended: released != "released", by })
        })
    }
}
