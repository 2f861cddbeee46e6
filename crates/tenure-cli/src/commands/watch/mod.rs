//! `tenure watch`.
//!
//! Making a store report events would cost holders and waiters. So `watch` reads the store a few times a second, and derives [events](events) from the
//! differences. After a slow reading it pauses longer, so that it spends at most a fifth of the time reading, however many names there are.

mod events;
mod line;
#[cfg(test)]
mod tests;

use std::io::stdout;
use std::time::{Instant, SystemTime};

use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tenure::Error;

use self::events::{Event, Snapshot, differences, present};
use crate::address::ObservedDomain;
use crate::args::{Domain, Format, Polling};
use crate::commands::obtain::TerminationSignals;
use crate::commands::{no_directory, on_domain_read_only};
use crate::exit_code;
use crate::glob::Glob;
use crate::json;
use crate::name_status;
use crate::output::{self, say};
use crate::text::{escaped, rough};

/// The pause after a reading is at least so many times as long as the reading.
const PAUSES: u32 = 4;

/// Print what happens to names, as it happens
#[derive(Debug, Args)]
pub(crate) struct Watch {
    #[command(flatten)]
    domain: Domain,

    #[command(flatten)]
    format: Format,

    #[command(flatten)]
    polling: Polling,
}

impl Watch {
    pub(crate) fn execute(&self) -> u8 {
        let glob = self.polling.glob();
        on_domain_read_only(&self.domain, no_directory, async |domain| {
            let mut signals = match TerminationSignals::new() {
                Ok(signals) => signals,
                Err(error) => {
                    output::refused_by_system(&error);
                    return Ok(exit_code::OS);
                }
            };
            tokio::select! {
                signal = signals.next() => Ok(exit_code::by_signal(signal.as_raw())),
                code = self.watch(ObservedDomain::new(&self.domain, domain.clone()), &glob) => code,
            }
        })
    }

    /// Watches until nobody reads it; returns the exit code.
    async fn watch(&self, observed: ObservedDomain, glob: &Glob) -> Result<u8, Error> {
        let (mut begun, mut before) = (Instant::now(), snapshot(&observed, glob, &Snapshot::new()).await?);
        if let Err(code) = self.print(&present(&before)).await {
            return Ok(code);
        }
        let (mut took, mut away) = (begun.elapsed(), None::<Instant>);
        loop {
            tokio::time::sleep(self.polling.interval.max(took * PAUSES)).await;
            if !is_read() {
                return Ok(0);
            }
            let now = Instant::now();
            let after = match snapshot(&observed, glob, &before).await {
                Ok(after) => after,
                Err(error) if error.is_transient() => {
                    if away.is_none() {
                        say(format_args!("store is away: {}", escaped(&error.to_string())));
                        away = Some(now);
                    }
                    continue;
                }
                Err(error) => return Err(error),
            };
            took = now.elapsed();
            if let Some(since) = away.take() {
                say(format_args!("store is back, after {}", rough(since.elapsed())));
            }
            if let Err(code) = self.print(&differences(&before, &after, begun.elapsed())).await {
                return Ok(code);
            }
            (begun, before) = (now, after);
            before.retain(|_, seen| seen.is_used());
        }
    }

    async fn print(&self, events: &[Event]) -> Result<(), u8> {
        if events.is_empty() {
            return Ok(());
        }
        let now = SystemTime::now();
        let line = |event| match self.format.json {
            true => json::to_line(&line::Line::new(event, now)) + "\n",
            false => line::text(event, now) + "\n",
        };
        output::show_aside("event", &events.iter().map(line).collect::<String>()).await
    }
}

/// Reads all names that match, and once more those that were held and are now unused: the store still knows how their leases ended.
async fn snapshot(observed: &ObservedDomain, glob: &Glob, before: &Snapshot) -> Result<Snapshot, Error> {
    let domain = &observed.domain()?;
    let names = name_status::list(domain, glob).await?;
    let mut names_now: Snapshot = names.into_iter().map(|seen| (seen.name.clone(), seen)).collect();
    for (name, seen) in before {
        if seen.holder.is_some() && !names_now.contains_key(name) {
            names_now.insert(name.clone(), name_status::inspect(domain, name).await?);
        }
    }
    Ok(names_now)
}

/// Whether stdout still has a reader. A closed pipe is noticed before there is anything to print.
fn is_read() -> bool {
    let stdout = stdout();
    let mut ends = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let is_known = poll(&mut ends, Some(&at_once)).is_ok_and(|count| count > 0);
    !(is_known && ends[0].revents().intersects(PollFlags::ERR | PollFlags::HUP))
}
