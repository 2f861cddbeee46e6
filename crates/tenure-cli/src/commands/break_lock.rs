//! `tenure break`.
//!
//! It ends only the lease that the user saw: the store compares its fence and token in the step that ends it. The user confirms by typing the name,
//! which can't be done by habit.
//!
//! `tenure` can't know whether a holder is dead, but it says what speaks against it: the process exists on this machine, or the lease was renewed while
//! the name was typed. Then it asks once more.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use tenure::{Error, Holder, Release};

use crate::address;
use crate::args::{Domain, Format, fence};
use crate::commands::status::facts;
use crate::commands::{no_directory, on_domain_read_only};
use crate::exit_code;
use crate::json;
use crate::name_status::{self, NameStatus};
use crate::output::{self, say};
use crate::presence::Presence;
use crate::text::{escaped, owner};

/// How far the clocks of the store and of this machine may drift apart between two readings, besides 1 %.
const JITTER: Duration = Duration::from_millis(50);

/// Take NAME away from a dead holder
#[derive(Debug, Args)]
pub(crate) struct Break {
    #[command(flatten)]
    domain: Domain,

    #[command(flatten)]
    format: Format,

    /// The fence that `tenure status` showed: only that lease is ended
    #[arg(long, value_parser = fence, allow_hyphen_values = true)]
    fence: u64,

    /// Do not ask
    #[arg(long)]
    yes: bool,

    /// The name
    name: String,
}

/// The outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum BreakOutcome {
    /// The lease was ended.
    Broken,
    /// Nobody holds the name.
    Free,
    /// The name has another lease than the given one.
    Other,
    /// It was not confirmed.
    Declined,
}

/// As programs read it.
#[derive(Serialize)]
struct Report {
    outcome: BreakOutcome,
    #[serde(flatten)]
    status: json::Status,
}

/// What was typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Typed {
    Name,
    SomethingElse,
}

impl Break {
    pub(crate) fn execute(&self) -> u8 {
        // Checked before the store is asked.
        let terminal = File::options().read(true).write(true).open("/dev/tty").ok();
        if !self.yes && terminal.is_none() {
            say("no terminal to confirm on; to end the lease without being asked, add --yes");
            return exit_code::USAGE;
        }
        // A missing inner directory holds no lease.
        on_domain_read_only(&self.domain, no_directory, async |domain| {
            let (outcome, seen) = self.end(domain, terminal).await?;
            let located = address::locate(&self.domain).ok();
            let printed = match self.format.json {
                true => {
                    output::object("outcome", &Report { outcome, status: json::Status::new(&seen, located) })
                }
                false => Ok(()),
            };
            Ok(printed.err().filter(|code| *code != 0).unwrap_or_else(|| outcome.code()))
        })
    }

    /// Ends the lease if it has the given fence; returns what the store showed of the name.
    async fn end(
        &self,
        domain: &tenure::Domain,
        terminal: Option<File>,
    ) -> Result<(BreakOutcome, NameStatus), Error> {
        let mut terminal = terminal.filter(|_| !self.yes);
        let (holder, mut seen) = match self.meant(domain).await? {
            Ok(found) => found,
            Err(other) => return Ok(other),
        };
        if terminal.is_some() {
            for (key, value) in facts(&seen) {
                say(format_args!("{key}: {value}"));
            }
        }
        if Presence::of(&holder.owner) == Presence::Here {
            let pid = holder.owner.pid().unwrap_or_default();
            say(format_args!("process {pid} is on this machine: its holder may be alive, and at work"));
        }
        let (mut shown, mut left) = (Instant::now(), holder.remaining);
        while let Some(asked) = terminal.take() {
            let (typed, answered) = self.ask(asked).await;
            let typing = shown.elapsed();
            if typed == Typed::SomethingElse {
                say("that is not the name; nothing was changed");
                return Ok((BreakOutcome::Declined, seen));
            }
            shown = Instant::now();
            let now = match self.meant(domain).await? {
                Ok((now, looked)) => {
                    seen = looked;
                    now.remaining
                }
                Err(other) => return Ok(other),
            };
            let before = std::mem::replace(&mut left, now);
            if now.saturating_add(typing) > before.saturating_add(typing / 100 + JITTER) {
                say("its lease was renewed while you typed: its holder is alive");
                terminal = Some(answered);
            }
        }
        let name = escaped(&self.name);
        // By the token of the lease that was shown: a lock of another library has no fence to tell it from the next.
        if domain.break_lock(&self.name, &holder).await? != Release::Released {
            // It may have ended by itself, or by a first request whose answer was lost. What is remembered with the fence of a lock of another
            // library is older.
            let now = name_status::inspect(domain, &self.name).await?;
            if holder.owner.is_foreign() || now.broken != Some(self.fence) {
                return Ok(self.not_there(now));
            }
        }
        say(format_args!("`{name}` was taken from {}, fence {}", owner(&holder.owner), holder.fence));
        Ok((BreakOutcome::Broken, seen))
    }

    /// The lease with the given fence; or the outcome, if there is none.
    async fn meant(
        &self,
        domain: &tenure::Domain,
    ) -> Result<Result<(Holder, NameStatus), (BreakOutcome, NameStatus)>, Error> {
        let status = domain.inspect(&self.name).await?;
        let holder = status.holder.clone().filter(|holder| holder.fence.get() == self.fence);
        let seen = NameStatus::from(status);
        Ok(match holder {
            Some(holder) => Ok((holder, seen)),
            None => Err(self.not_there(seen)),
        })
    }

    /// Prints what is there instead of the lease with the given fence.
    fn not_there(&self, seen: NameStatus) -> (BreakOutcome, NameStatus) {
        let name = escaped(&self.name);
        let Some(held) = &seen.holder else {
            say(format_args!("`{name}` is free; nothing was changed"));
            return (BreakOutcome::Free, seen);
        };
        let who = owner(&held.owner);
        match held.own_fence() {
            Some(fence) => {
                say(format_args!("`{name}` is held by {who}, with fence {fence}, not {}", self.fence))
            }
            None => say(format_args!("`{name}` is held by {who}")),
        }
        say("it is not the lease that you saw; nothing was changed");
        (BreakOutcome::Other, seen)
    }

    /// Asks for the name. Returns the terminal, to ask again.
    async fn ask(&self, terminal: File) -> (Typed, File) {
        let name = self.name.clone();
        let asking = tokio::task::spawn_blocking(move || {
            let line = read_line(&terminal).unwrap_or_default();
            // A name that can't be typed is typed as it is shown. Without Enter it is not confirmed.
            let is_name = line.strip_suffix('\n').is_some_and(|line| line == name || line == escaped(&name));
            (if is_name { Typed::Name } else { Typed::SomethingElse }, terminal)
        });
        asking.await.expect("reading a line does not panic")
    }
}

/// On the terminal itself: stderr may be a file.
fn read_line(mut terminal: &File) -> io::Result<String> {
    terminal.write_all(b"tenure: to end this lease, type the name: ")?;
    let mut line = String::new();
    BufReader::new(terminal).read_line(&mut line)?;
    if !line.ends_with('\n') {
        // After Ctrl-D the next message must begin on a new line.
        terminal.write_all(b"\n")?;
    }
    Ok(line)
}

impl BreakOutcome {
    fn code(self) -> u8 {
        match self {
            BreakOutcome::Broken | BreakOutcome::Free => 0,
            BreakOutcome::Other | BreakOutcome::Declined => exit_code::BUSY,
        }
    }
}
