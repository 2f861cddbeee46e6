//! `tenure acquire`: a lease as a line of text, for scripts that can't wrap a command.
//!
//! Only the script renews it, so its default ttl is longer. If the ticket can't be written, nobody could give the name back, so `acquire` gives it back
//! itself.

use std::future::pending;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tenure::{Error, Lock, Ticket};

use super::obtain::{self, Obtained, TerminationSignals};
use super::on_domain;
use super::waiting::Wait;
use crate::address;
use crate::args::{self, Domain, Format, VerbosityOptions, WaitOptions};
use crate::exit_code;
use crate::json;
use crate::output::{self, say, say_more};
use crate::stdout;
use crate::text::{escaped, rough};

/// How long a ticket lasts by default.
const DEFAULT_TTL: Duration = Duration::from_secs(60);

/// Acquire NAME and print a ticket for it, for scripts that can't wrap a command
#[derive(Debug, Args)]
pub(crate) struct Acquire {
    #[command(flatten)]
    domain: Domain,

    #[command(flatten)]
    pub(crate) wait_options: WaitOptions,

    /// How long an unrenewed ticket lasts: 100ms to 24h [default: 60s]
    #[arg(long, value_name = "DURATION", value_parser = args::ttl, allow_hyphen_values = true)]
    ttl: Option<Duration>,

    /// What others see when they find NAME held: at most 200 bytes
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    label: String,

    #[command(flatten)]
    verbosity: VerbosityOptions,

    #[command(flatten)]
    format: Format,

    /// What to hold: any text of up to 1,000 bytes
    name: String,
}

/// The ticket, for programs.
#[derive(Serialize)]
struct Printed<'a> {
    name: &'a str,
    ticket: String,
    fence: u64,
    ttl_ms: u64,
    waited_ms: u64,
}

impl Acquire {
    pub(crate) fn execute(&self) -> u8 {
        self.verbosity.take_effect();
        on_domain(&self.domain, async |domain| {
            let lock = self.lock(domain);
            let mut signals = match TerminationSignals::new() {
                Ok(signals) => signals,
                Err(error) => {
                    output::refused_by_system(&error);
                    return Ok(exit_code::OS);
                }
            };
            let wait = Wait { domain, name: &self.name, lock: &lock, wait_options: &self.wait_options };
            let (guard, waited) = match obtain::obtain(&wait, &self.domain, &mut signals, pending()).await? {
                Obtained::Held { guard, waited } => (guard, waited),
                Obtained::Not(code) => return Ok(code),
            };
            // After a signal, nobody reads the ticket.
            let detached = tokio::select! {
                biased;
                signal = signals.next() => Err(signal),
                detached = guard.detach() => Ok(detached.map_err(Error::from)),
            };
            match detached {
                Ok(Ok(ticket)) => Ok(self.hand_out(domain, &ticket, waited, &mut signals).await),
                Ok(Err(error)) => {
                    obtain::leave(&wait, &self.domain, signals.next()).await;
                    Err(error)
                }
                Err(signal) => {
                    obtain::leave(&wait, &self.domain, signals.next()).await;
                    Ok(exit_code::by_signal(signal.as_raw()))
                }
            }
        })
    }

    fn lock(&self, domain: &tenure::Domain) -> Lock {
        // It was parsed before without error.
        let of_url = || address::locate(&self.domain).ok().and_then(|located| located.url.ttl());
        let ttl = self.ttl.or_else(of_url).unwrap_or(DEFAULT_TTL);
        domain.lock(&self.name).label(&self.label).ttl(ttl)
    }

    /// Prints the ticket. If that fails, gives the name back.
    async fn hand_out(
        &self,
        domain: &tenure::Domain,
        ticket: &Ticket,
        waited: Duration,
        signals: &mut TerminationSignals,
    ) -> u8 {
        let (code, why) = tokio::select! {
            biased;
            printed = stdout::write_aside(self.line(ticket, waited) + "\n") => match printed {
                Ok(()) => {
                    say_more(format_args!("ticket lasts {}, unless it is renewed", rough(ticket.ttl())));
                    return 0;
                }
                Err(refusal) => (exit_code::IO, refusal.to_string()),
            },
            signal = signals.next() => (exit_code::by_signal(signal.as_raw()), "interrupted".to_owned()),
        };
        say(format_args!("ticket could not be written to stdout: {why}"));
        match ticket.release(domain).await {
            Ok(_) => say(format_args!("`{}` was given back", escaped(&self.name))),
            Err(error) => {
                let (fence, left, why) = (ticket.fence(), ticket.ttl(), error.to_string());
                output::not_given_back(&self.name, fence, &self.domain, left, &why);
            }
        }
        code
    }

    fn line(&self, ticket: &Ticket, waited: Duration) -> String {
        if !self.format.json {
            return ticket.to_string();
        }
        json::to_line(&Printed {
            name: ticket.name(),
            ticket: ticket.to_string(),
            fence: ticket.fence().get(),
            ttl_ms: json::millis(ticket.ttl()),
            waited_ms: json::millis(waited),
        })
    }
}
